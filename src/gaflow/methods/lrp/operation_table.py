"""Which rule each torch operation gets: tables of names.

The convention this file owns: an operation has one name, whether it is called as a function, as a method, by an
operator or in place. `torch.add(x, y)`, `x.add(y)`, `x + y`, `2 + x`, `x.add_(y)` and `x += y` are all `add`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import resolve_name
from torch.utils._pytree import tree_map

from gaflow.errors import UnsupportedModelError
from gaflow.models.streamed_attention import streamed_attention


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Identity: every element of the result comes from one element of the operand.
ELEMENTWISE = _names(
    "abs celu clamp clamp_max clamp_min clip dropout elu erf exp expm1 gelu hardsigmoid hardswish hardtanh leaky_relu "
    "log log1p logsigmoid maximum minimum mish nan_to_num neg negative positive pow reciprocal relu relu6 rsqrt selu "
    "sigmoid silu softplus softsign sqrt square tanh"
)

# Identity as well, by the tradition of the method: they change the scale of a vector, not its direction.
NORMALISING = _names("batch_norm group_norm layer_norm log_softmax normalize rms_norm softmax")

# Relevance follows the elements to where they came from, as gradients do.
ROUTING = _names(
    "T mT adjoint as_strided broadcast_tensors broadcast_to cat chunk clone concat concatenate contiguous diagonal "
    "expand expand_as flatten flip gather getitem hstack index_select masked_fill masked_scatter masked_select "
    "moveaxis movedim narrow pad permute ravel repeat repeat_interleave reshape reshape_as roll select "
    "setitem copy split split_with_sizes squeeze stack swapaxes swapdims t take_along_dim tensor_split tile transpose "
    "tril triu unbind unflatten unsqueeze view view_as vstack where"
)

# Linear in all their tensors together: balanced gradients are their own derivative. They may add elements up, which
# takes more than routing, so relevance propagation has no rule for them. `topk` is how experts are chosen: the choice
# is a constant, and the weights of the chosen ones are their gates. `grouped_mm` multiplies tokens by their experts.
LINEAR = _names(
    "_grouped_mm adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d fold grouped_mm index_add index_copy "
    "index_put scatter scatter_add sort topk unfold view_as_complex view_as_real"
)

# Addition rule, product rule, or the identity if one operand is a constant.
BINARY = frozenset(["add", "sub", "mul", "div"])

# Linear rule if one operand is a constant, product rule if none is.
BILINEAR = frozenset(["linear", "matmul", "addmm", "baddbmm", "einsum", "conv1d", "conv2d"])

# Over the last axis and keeping it: a statistic of a normalisation written by hand, which is a constant. Otherwise
# sums and means get the addition rule with one part for each position, and extremes are routed.
REDUCTION = _names("amax amin logsumexp max mean min norm std sum var vector_norm")
EXTREMES = _names("amax amin max min")

# Attention in one operation, which gaflow itself puts into models: it is differentiated as its parts would be.
STREAMED = frozenset(["streamed_attention"])

CAST = _names("bfloat16 cpu cuda double float half to type type_as")

# What the model itself takes for a constant, cut off from autograd.
CONSTANT = _names(
    "data detach empty_like full_like item new_empty new_full new_ones new_tensor new_zeros numpy ones_like rand_like "
    "randn_like retain_grad tolist zeros_like"
)

# Asked of nearly every tensor, and answered without further ado.
QUESTION = _names("device dim dtype grad_fn is_floating_point is_leaf ndim requires_grad shape size")

# A weight of the input embedding in one of these is where the relevance of the input is collected.
START = frozenset(["embedding", "linear", "conv1d", "conv2d", "getitem", "index_select"])

_OPERATORS = ("add", "sub", "mul", "truediv", "matmul", "pow")
_AUGMENTED = {f"__i{name}__": name for name in _OPERATORS}  # such as x += y
_REFLECTED = {f"__r{name}__": name for name in _OPERATORS} | {"rsub": "sub"}  # such as 2 + x

_ALIASES = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "truediv": "div",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "dot": "matmul",
}


@dataclass(frozen=True)
class Operation:
    """What a torch function does, however it was called."""

    name: str  # as in the tables
    path: str  # as a reader knows it, e.g. "torch.cumsum"
    in_place: bool = False
    swapped: bool = False  # the operands come in reverse order


def _replace_tensors(value: Any, tensors: Mapping[Tensor, Any]) -> Any:
    """A value with others in place of some tensors, which are freed at once: no function here refers to itself."""
    if isinstance(value, Tensor):
        return tensors.get(value, value)
    if isinstance(value, list | tuple | dict):  # most calls need no look into depth, which takes time
        return tree_map(lambda leaf: tensors.get(leaf, leaf) if isinstance(leaf, Tensor) else leaf, value)
    return value


@dataclass(frozen=True)
class Call:
    """One call of a torch function."""

    func: Callable[..., Any]
    op: Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        """The call as the model makes it."""
        return self.func(*self.args, **self.kwargs)

    def get(self, position: int, *names: str, default: Any = None) -> Any:
        """An argument by its position or by any of its names."""
        if position < len(self.args):
            return self.args[position]
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return default

    @property
    def overwrites(self) -> bool:
        """Whether the call may write into its first argument: by its name, or by an option `inplace`."""
        if self.op.in_place or self.kwargs.get("inplace"):
            return True
        return any(value is True for value in self.args[1:])

    def operands(self) -> list[Any]:
        """The terms or factors of an operation in BINARY or BILINEAR, the first one first."""
        if self.op.name == "einsum":
            _, *operands = self.args
            return list(operands[0]) if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
        first = 1 if self.op.name in ("addmm", "baddbmm") else 0  # after what is added
        left = self.get(first, "mat1", "batch1", "input", "self")
        right = self.get(first + 1, "other", "mat2", "batch2", "vec", "tensor", "weight")
        return [right, left] if self.op.swapped else [left, right]

    def replacing(self, tensors: Mapping[Tensor, Any]) -> Call:
        """The same call with other values in place of some of its tensors."""
        args = tuple(_replace_tensors(value, tensors) for value in self.args)
        kwargs = {name: _replace_tensors(value, tensors) for name, value in self.kwargs.items()}
        return Call(self.func, self.op, args, kwargs)

    def on_copies(self, first: Tensor) -> Call:
        """The same call for `first` in place of what it would have overwritten, which overwrites a copy of that."""

        def run_on_copy(operand: Tensor, *args: Any, **kwargs: Any) -> Any:
            return self.func(operand.clone(), *args, **kwargs)

        args = (first, *(False if value is True else value for value in self.args[1:]))
        kwargs = {name: value for name, value in self.kwargs.items() if name != "inplace"}
        return replace(self, func=run_on_copy, op=replace(self.op, in_place=False), args=args, kwargs=kwargs)

    def out_of_place(self, first: Tensor) -> Call:
        """The same call with a result of its own, for `first` in place of what it would have overwritten."""
        return replace(self, op=replace(self.op, in_place=False), args=(first, *self.args[1:]))


@lru_cache(maxsize=1024)
def operation(func: Callable[..., Any]) -> Operation:
    """The operation that a function shown to a torch function mode stands for."""
    if func is streamed_attention:
        return Operation("streamed_attention", "gaflow.models.streamed_attention")
    path = resolve_name(func) or _search(func)
    if not path.startswith("torch."):
        return Operation(f"unknown {path}", path)  # whatever it is called, it may be something else
    *_, owner, name = path.split(".")
    if name == "__get__":
        return Operation(owner, path.removesuffix(".__get__"))
    in_place = name in _AUGMENTED or (name.endswith("_") and not name.endswith("__"))
    swapped = name in _REFLECTED
    name = (_AUGMENTED | _REFLECTED).get(name, name)
    name = name.removeprefix("__").removesuffix("__").removesuffix("_")
    return Operation(_ALIASES.get(name, name), path, in_place, swapped)


def _search(func: Callable[..., Any]) -> str:
    """The path of a function that torch does not list as one that can be overridden, such as `x.new_zeros`."""
    name = getattr(func, "__name__", repr(func))
    for path, owner in (("torch.Tensor", Tensor), ("torch", torch), ("torch.nn.functional", torch.nn.functional)):
        if getattr(owner, name, None) == func:
            return f"{path}.{name}"
    return name


def uncovered(op: Operation) -> UnsupportedModelError:
    """The error for an operation that carries relevance and has no rule."""
    return UnsupportedModelError(
        f"no rule of relevance propagation covers {op.path} as this model uses it; use a method that does without "
        "these rules, such as agf or attcat"
    )
