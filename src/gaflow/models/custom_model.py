"""Models that are no classes of Transformers: a torch module of your own around an encoder of Transformers.

The attention weights are those of the encoder, and the logits are what the module returns.

The convention this file owns: the module notices nothing. Its encoder also computes attention weights and hidden
states, but hands the module the output that it asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from torch import Tensor, nn

from gaflow.arguments import checked, distinct, one_of
from gaflow.errors import Argument, ArgumentError, unsupported
from gaflow.inputs.transformers_types import ModelConfig, ModelOutput, PretrainedModel
from gaflow.models.restore import modules_of, uncompiled

Call = Callable[[Mapping[str, Tensor]], Any]
Positional = tuple[Any, ...]
Keywords = dict[str, Any]
_TASKS = ("text-classification", "token-classification")
# ending of the name of an output -> the argument that asks for it
_SWITCHES = {
    "attentions": "output_attentions",
    "hidden_states": "output_hidden_states",
}


class CustomModel(nn.Module):
    """Your own torch module: an encoder of Transformers, and a head that makes logits of its output.

    Args:
        module: called with the tokenizer's output by name (`input_ids`, `attention_mask`, ...), as far as its `forward`
            has these parameters. It returns the logits, or a tuple, dict or object that begins with or has `logits`:
            (b, c) for classes of texts, (b, t, c) for tags.
        labels: the names of the c classes or tags.
        encoder: the transformers model inside. None finds it, if there is only one.
        task: "text-classification" or "token-classification".
        multi_label: whether several classes may be right at once: probabilities then come from a sigmoid.
        call: how to call the module if it does not take the tokenizer's names: a function of the tokenizer's output.

        >>> model = gaflow.CustomModel(my_module, labels=["negative", "positive"])
        >>> explainer = gaflow.Explainer(model, tokenizer)
    """

    main_input_name = "input_ids"

    @checked
    def __init__(
        self,
        module: nn.Module,
        labels: Sequence[str],
        *,
        encoder: nn.Module | None = None,
        task: str = "text-classification",
        multi_label: bool = False,
        call: Call | None = None,
    ) -> None:
        super().__init__()
        one_of("task", task, list(_TASKS))
        names = [str(label) for label in labels]
        distinct("labels", names, "targets name them")
        if not names:
            raise ArgumentError(Argument("labels"), " is empty; name the classes in the order of the logits")
        self.module = uncompiled(module)
        self.task = task
        self.multi_label = multi_label
        self.call = call
        inner = _find_encoder(self.module, encoder)
        self._encoders = (inner,)  # in a tuple, so its weights are not counted twice
        self.config: ModelConfig = inner.config
        self.head_config: ModelConfig = copy(inner.config)
        self.head_config.id2label = dict(enumerate(names))
        self.head_config.problem_type = "multi_label_classification" if multi_label else None
        self.training = module.training

    @property
    def encoder(self) -> PretrainedModel:
        """The transformers model inside the module."""
        return self._encoders[0]

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings of the encoder."""
        return self.encoder.get_input_embeddings()

    def forward(
        self, output_attentions: bool = False, output_hidden_states: bool = False, **keywords: object
    ) -> ModelOutput:
        """The encoder's output, and the module's as `logits`."""
        inputs = {name: value for name, value in keywords.items() if isinstance(value, Tensor)}  # and no switches
        observed = {_SWITCHES["attentions"]: output_attentions, _SWITCHES["hidden_states"]: output_hidden_states}
        with _observed(self.encoder, observed) as outputs:
            if self.call is None:
                result = self.module(**_accepted(self.module, inputs))
            else:
                result = self.call(inputs)
        if len(outputs) != 1:
            reason = f"it calls its encoder {len(outputs)} times for a batch of texts, and gaflow follows one call"
            raise unsupported(self.module, reason)
        logits = _find_logits(self.module, result)
        labels = self.head_config.num_labels
        if logits.shape[-1:] != (labels,):
            problem = f" are {labels}, but the module returns logits of shape {tuple(logits.shape)}; name each of them"
            raise ArgumentError(Argument("labels"), problem)
        outputs[0]["logits"] = logits
        return outputs[0]


def _find_encoder(module: nn.Module, encoder: nn.Module | None) -> PretrainedModel:
    """The transformers model inside a module: the outermost one, or the one that the caller names."""
    kind = type(module).__name__
    if encoder is not None:
        if not any(part is encoder for part in modules_of(module)):
            raise ArgumentError(Argument("encoder"), f" is no part of the {kind}; pass the one that it calls")
        return encoder
    encoders = _outermost_encoders(module)
    if not encoders:
        raise unsupported(module, "there is no transformers model inside")
    if len(encoders) > 1:
        problem = f"the {kind} has {len(encoders)} transformers models inside; choose one by "
        raise ArgumentError(problem, Argument("encoder"))
    return encoders[0]


def _outermost_encoders(module: nn.Module) -> list[nn.Module]:
    encoders: list[nn.Module] = []
    for child in module.children():
        if hasattr(child, "config") and hasattr(child, "get_input_embeddings"):
            encoders.append(child)
        else:
            encoders += _outermost_encoders(child)
    return encoders


def _accepted(module: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs that the `forward` of a module has parameters for."""
    parameters = inspect.signature(module.forward).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(inputs)
    accepted = {name: value for name, value in inputs.items() if name in parameters}
    if not accepted:
        raise unsupported(module, f"its forward takes none of {', '.join(inputs)}; pass gaflow.CustomModel(call=...)")
    return accepted


@contextmanager
def _observed(encoder: nn.Module, observed: Mapping[str, bool]) -> Iterator[list[ModelOutput]]:
    """Collect the outputs of an encoder, with what these switches are for, behind the back of its caller."""
    outputs: list[ModelOutput] = []
    requested: dict[str, bool] = {}

    def ask_for_more(_encoder: nn.Module, positional: Positional, keywords: Keywords) -> tuple[Positional, Keywords]:
        for switch in (*_SWITCHES.values(), "return_dict"):
            value = keywords.get(switch)
            requested[switch] = bool(getattr(encoder.config, switch, False) if value is None else value)
        switches = {switch: observed[switch] or requested[switch] for switch in _SWITCHES.values()}
        return positional, {**keywords, **switches, "return_dict": True}

    def hide(_encoder: nn.Module, _positional: Positional, output: ModelOutput) -> Any:
        outputs.append(output)
        left_out = tuple(ending for ending, switch in _SWITCHES.items() if not requested[switch])
        visible = {name: value for name, value in output.items() if not name.endswith(left_out)}
        as_requested = type(output)(**visible)
        return as_requested if requested["return_dict"] else as_requested.to_tuple()

    hooks = [
        encoder.register_forward_pre_hook(ask_for_more, with_kwargs=True),
        encoder.register_forward_hook(hide),
    ]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _find_logits(module: nn.Module, result: object) -> Tensor:
    """The logits in what a module returns."""
    if isinstance(result, Mapping):
        logits = result.get("logits")
    elif isinstance(result, tuple):
        logits = next(iter(result), None)
    else:
        logits = getattr(result, "logits", result)
    if not isinstance(logits, Tensor):
        raise unsupported(module, f"it returns a {type(result).__name__} without logits")
    return logits
