"""Forward passes of one text in which some tokens have no values: attention reads nothing from them.

To zero the value vectors of token `j` is to zero column `j` of the attention weights, without normalising the rows
again. So a torch function mode changes the weights as the softmax returns them, and no code of a model is copied. Each
row of a batch is the same text without the values of other tokens.

The convention this file owns: **every layer is changed by itself**. What a layer hands on is what it would have handed
on without the change, so that the next one reads its usual input, and one pass serves all layers. Calls are
found again by their number: a pass makes the same calls in the same order whatever the tokens are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from gaflow.errors import UnsupportedModelError
from gaflow.models.adapters.observed import SOFTMAX_FUNCTIONS, AttentionLayer
from gaflow.models.forward import compute_logits, forward
from gaflow.models.residual_stream import ResidualSum
from gaflow.models.restore import borrow, modules_of, uncompiled
from gaflow.models.tracing import TracedModel

_IN_PLACE_ADDITIONS = (Tensor.add_, Tensor.__iadd__)
_ADDITIONS = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, *_IN_PLACE_ADDITIONS)
_TOLERANCE = 1e-3  # of attention weights that the model returns to those of its softmaxes, for half precision

Function = Callable[..., Any]
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Change = Callable[[Tensor], Tensor]  # of what a call returns


class CallNumber(NamedTuple):
    """A call of a pass that can be found again."""

    kind: Literal["softmax", "addition"]
    number: int  # among the calls of this kind


@dataclass(frozen=True)
class BlockCall:
    """A call of a module that turns hidden states into hidden states."""

    module: nn.Module
    number: int  # among the calls of this module
    softmaxes: range  # numbers of those inside
    state: Tensor  # (1, n, d) its output


@dataclass(frozen=True)
class LayerNormCall:
    """A LayerNorm over the last axis, as the model called it."""

    source: Node | None  # of its input, in autograd's graph
    weight: Tensor | None
    bias: Tensor | None
    eps: float


@dataclass(frozen=True)
class AttentionSum:
    """Where the attention of a layer joins the residual stream."""

    call: CallNumber
    stream: Tensor  # (1, n, d) what attention is added to
    total: Tensor  # (1, n, d) the sum
    norm: LayerNormCall | None  # through which all reads the sum, as in BERT; None: the sum is the stream of the next


@dataclass(frozen=True)
class _Sum:
    """An addition of hidden states."""

    result: Tensor  # (1, n, d)
    node: Node | None
    operands: Sequence[Node | None]


class _Numbering(TorchFunctionMode, ABC):
    """While active, numbers the softmaxes over the last axis and the additions that give hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(
        self, func: Function, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        """Run `func`; if its kind is numbered, what it returns is that of `at`."""
        kwargs = kwargs or {}
        if func in SOFTMAX_FUNCTIONS:
            kind = "softmax"
        elif func in _ADDITIONS:
            kind = "addition"
        else:
            return self.other(func, args, kwargs)
        operands = [*args[:2], *kwargs.values()]
        nodes = [_node(operand) for operand in operands] if kind == "addition" else []
        result = func(*args, **kwargs)
        if kind == "addition" and result.dim() != 3:
            return result
        call = CallNumber(kind, self.counts[kind])
        self.counts[kind] += 1
        return self.at(call, result, nodes)

    def other(self, func: Function, args: Arguments, kwargs: Keywords) -> Any:
        """The result of a call of no numbered kind."""
        return func(*args, **kwargs)

    @abstractmethod
    def at(self, call: CallNumber, result: Tensor, nodes: Sequence[Node | None]) -> Tensor:
        """What a numbered call returns; `nodes` are those of the operands of an addition."""


class _Recording(_Numbering):
    """Keeps what a pass of the text itself shows. A model may overwrite its tensors, so copies are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.softmaxes: list[Tensor] = []
        self.sums: list[_Sum] = []
        self.norms: list[LayerNormCall] = []
        self.blocks: list[BlockCall] = []  # inner ones first

    def at(self, call: CallNumber, result: Tensor, nodes: Sequence[Node | None]) -> Tensor:
        """Keep the result."""
        if call.kind == "softmax":
            self.softmaxes.append(result.detach().clone())
        else:
            self.sums.append(_Sum(result.detach().clone(), _node(result), nodes))
        return result

    def other(self, func: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Keep LayerNorms."""
        if func is nn.functional.layer_norm:
            self._keep_norm(*args, **kwargs)
        return func(*args, **kwargs)

    def _keep_norm(
        self,
        input: Tensor,
        normalized_shape: Sequence[int],
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> None:
        if len(normalized_shape) == 1:
            self.norms.append(LayerNormCall(_node(input), weight, bias, eps))

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Inside this block, calls of modules are kept."""
        begun: list[int] = []  # softmaxes before each running call
        calls: Counter[nn.Module] = Counter()

        def enter(_module: nn.Module, _args: object) -> None:
            begun.append(self.counts["softmax"])

        def leave(module: nn.Module, args: Arguments, kwargs: Keywords, output: object) -> None:
            inside = range(begun.pop(), self.counts["softmax"])
            states = _states(output)
            shapes = [state.shape for state in _states((args, kwargs))]
            if inside and states and states[0].shape in shapes:
                self.blocks.append(BlockCall(module, calls[module], inside, states[0].detach().clone()))
            calls[module] += 1

        with ExitStack() as hooks:
            for module in modules_of(model):
                hooks.enter_context(module.register_forward_pre_hook(enter))
                hooks.enter_context(module.register_forward_hook(leave, with_kwargs=True))
            yield

    def attention_sum(self, residual_sum: ResidualSum, model: nn.Module) -> AttentionSum:
        """The addition that gives a residual sum, and the LayerNorm after it."""
        node = residual_sum.total.node
        numbers = [number for number, addition in enumerate(self.sums) if addition.node is node]
        if not numbers:
            raise _unsupported(model, "the addition of its attention to the residual stream is not found again")
        number = numbers[-1]
        norms = [norm for norm in self.norms if norm.source is node]
        goes_on = any(node in addition.operands for addition in self.sums[number + 1 :])
        if not goes_on and not norms:
            raise _unsupported(model, "what follows the residual sum of its attention is neither a sum nor a LayerNorm")
        return AttentionSum(
            call=CallNumber("addition", number),
            stream=residual_sum.stream,
            total=self.sums[number].result,
            norm=None if goes_on else norms[0],
        )


class _Changing(_Numbering):
    """Changes what some calls return."""

    def __init__(self, changes: Mapping[CallNumber, Change]) -> None:
        super().__init__()
        self._changes = changes

    def at(self, call: CallNumber, result: Tensor, nodes: Sequence[Node | None]) -> Tensor:
        """What the change makes of the result."""
        change = self._changes.get(call)
        return result if change is None else change(result)


@dataclass(frozen=True)
class ObservedText:
    """One text as the model reads it, and where in a pass its layers of attention are."""

    traced_model: TracedModel  # of this text alone
    softmaxes: tuple[int, ...]  # (l,) numbers of the layers' softmaxes
    counts: Counter[str]  # numbered calls of a pass, by kind
    module_calls: Sequence[BlockCall]  # inner ones first
    attention_sums: tuple[AttentionSum, ...]  # (l,), or none unless asked for
    length: int  # nodes of a layer

    @property
    def model(self) -> nn.Module:
        """The model that runs."""
        return uncompiled(self.traced_model.model)

    def run(self, keep: Tensor, changes: Mapping[CallNumber, Change]) -> None:
        """Run the text once for each row of `keep` (n, t), 1 for tokens with values and 0 for those without."""
        columns = keep[:, None, None, :]

        def zero_values(weights: Tensor) -> Tensor:
            by_head = weights.reshape(len(keep), -1, *weights.shape[-2:])
            changed = by_head * columns.to(by_head)
            return changed.reshape(weights.shape)

        all_changes: dict[CallNumber, Change] = dict(changes)
        for number in self.softmaxes:
            all_changes[CallNumber("softmax", number)] = zero_values
        mode = _Changing(all_changes)
        inputs = self.traced_model.batch.select([0] * len(keep)).inputs
        with borrow(self.model), torch.no_grad(), mode:
            compute_logits(self.model, inputs)
        if mode.counts != self.counts:
            raise _unsupported(self.model, "another pass of the same text has other softmaxes or additions")

    def blocks(self) -> list[BlockCall]:
        """The blocks of the layers: the outermost modules that hold the attention of one layer only."""
        layers = set(self.softmaxes)
        blocks: dict[int, BlockCall] = {}
        for call in self.module_calls:
            inside = layers.intersection(call.softmaxes)
            if len(inside) == 1:
                blocks[inside.pop()] = call
        for layer, number in enumerate(self.softmaxes):
            if number not in blocks:
                raise _unsupported(self.model, f"no module with hidden states as input and output is its block {layer}")
        return [blocks[number] for number in self.softmaxes]

    @contextmanager
    def block_outputs(self, blocks: Sequence[BlockCall], use: Callable[[int, Tensor], None]) -> Iterator[None]:
        """Inside this block, `use` gets the number of each block and its output, which is then what it was before."""
        layers = {(block.module, block.number): layer for layer, block in enumerate(blocks)}
        calls: Counter[nn.Module] = Counter()

        def leave(module: nn.Module, _args: object, output: object) -> None:
            layer = layers.get((module, calls[module]))
            calls[module] += 1
            if layer is not None:
                state = _states(output)[0]
                use(layer, state)
                state.copy_(blocks[layer].state)

        with ExitStack() as hooks:
            for module in {block.module for block in blocks}:
                hooks.enter_context(module.register_forward_hook(leave))
            yield


def observe_text(traced_model: TracedModel, item: int, *, residual: bool = False) -> ObservedText:
    """A pass of a text of the batch without its padding; `residual` also finds the residual sums."""
    is_media = traced_model.batch.encodings[item].media is not None
    tokens = None if is_media else int(traced_model.batch.mask[item].sum())  # pictures and sounds have no padding
    batch = traced_model.batch.select([item], tokens)
    alone = TracedModel(traced_model.model, batch, [traced_model.terms[item]])
    model = uncompiled(alone.model)
    recordings: list[_Recording] = []

    @contextmanager
    def recording() -> Iterator[None]:
        recordings.append(_Recording())
        with recordings[-1].watching(model), recordings[-1]:
            yield

    with borrow(model):
        forward_pass = forward(model, batch, residual=residual, context=recording)
        recorded = recordings[-1]
        softmaxes = list(_softmaxes_of(forward_pass.layers, recorded.softmaxes, model))
        sums = [recorded.attention_sum(residual_sum, model) for residual_sum in forward_pass.residual_sums]
    return ObservedText(
        traced_model=alone,
        softmaxes=tuple(softmaxes),
        counts=recorded.counts,
        module_calls=recorded.blocks,
        attention_sums=tuple(sums),
        length=forward_pass.layers[0].weights().shape[-1],
    )


def _softmaxes_of(layers: Sequence[AttentionLayer], softmaxes: Sequence[Tensor], model: nn.Module) -> Iterator[int]:
    """The number of the softmax that gives the weights of each layer, in order."""
    number = 0
    for layer, attention in enumerate(layers):
        weights = attention.weights().detach()
        while number < len(softmaxes) and not _same(softmaxes[number], weights):
            number += 1
        if number == len(softmaxes):
            raise _unsupported(model, f"no softmax that torch shows gives the attention weights of layer {layer}")
        yield number
        number += 1


def _same(softmax: Tensor, weights: Tensor) -> bool:
    if softmax.numel() != weights.numel() or softmax.shape[-2:] != weights.shape[-2:]:
        return False
    difference = softmax.reshape(weights.shape).to(weights) - weights
    return bool((difference.abs() <= _TOLERANCE).all())


def _node(value: object) -> Node | None:
    """The node of a tensor in autograd's graph."""
    if not isinstance(value, Tensor) or not value.requires_grad:
        return None
    return get_gradient_edge(value).node


def _states(values: object) -> list[Tensor]:
    """Tensors that may be hidden states (b, n, d), in arguments or outputs of any structure."""
    states = []
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim() == 3:
            states.append(leaf)
    return states


def _unsupported(model: nn.Module, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the values of tokens cannot be zeroed in {type(model).__name__}: {reason}; use rollout, or a "
        "method of another family, such as agf"
    )
