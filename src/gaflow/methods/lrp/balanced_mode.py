"""A torch function mode under which autograd gives balanced gradients: those of a model that is linear around the text.

Forward values do not change. Derivatives are those of AttnLRP (Achtibat et al. 2024) and LibraGrad (Mehri et al. 2024):

- normalisations, fused or written by hand, divide by a constant; the mean that they subtract is no constant
- activations, in one operation or in several, are lines through their value at 0 (`balanced_rules.py`)
- each factor of a product of two carriers gets half of its gradient
- softmax, linear maps, sums and routing have their own derivative

Up to biases the products of hidden states and their gradients then sum to `y` in every layer. With the attention rule
"constant" (CP-LRP, Ali et al. 2022), attention weights are constants for what lies below them: a product with them is
linear, and nothing goes back through their softmax.

The convention this file owns: linear operations are run as the model calls them, and autograd differentiates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from gaflow.methods.lrp import operation_table as table
from gaflow.methods.lrp.balanced_rules import Activation, Elementwise, LayerNorm, Scaled
from gaflow.methods.lrp.marks import CARRIER, STATISTIC, Mark, Marks, float_tensors
from gaflow.methods.lrp.operation_mode import OperationMode, is_statistic
from gaflow.methods.lrp.operation_table import Call, uncovered
from gaflow.methods.lrp.rules import Identity
from gaflow.models.streamed_attention import Derivative, streamed_attention

AttentionRule = Literal["half", "constant"]

_ATTENTION = Mark(attention=True)
_DIFFERENTIATED_AS_THEY_ARE = table.EXTREMES | {"sum", "mean"}  # sums are linear; a maximum picks one element


class BalancedMode(OperationMode[Marks]):
    """Makes autograd give balanced gradients of what depends on the `roots` or on the `inputs`."""

    def __init__(
        self, roots: Iterable[Tensor], attention_rule: AttentionRule = "half", inputs: Iterable[Tensor] = ()
    ) -> None:
        super().__init__(roots, Marks())
        self._attention_rule = attention_rule
        for tensor in inputs:
            self.marks.put(tensor)

    def _value(self, call: Call) -> Any:
        with torch.no_grad():
            return call.run()

    def _run_constant(self, call: Call, tensors: list[Tensor]) -> Any:
        if not any(tensor.requires_grad for tensor in tensors):
            return call.run()
        if self._reads_input(call, tensors):
            return self.marks.put(call.run())
        return self._value(call)

    def _cast(self, call: Call) -> Any:
        x = call.args[0]
        if x not in self.marks:
            return self._value(call)
        result = call.run()
        if result is x or not float_tensors(result):
            return result
        mark = self.marks[x]
        if not mark.statistic and not mark.attention:
            mark = self.marks.function_of(x, self._function(x))
        return self.marks.put(result, mark)

    def _statistic(self, call: Call) -> Any:
        """Statistics divide and scale as constants. Those that are subtracted, as a mean is, keep their graph."""
        if call.op.name in table.ROUTING:
            return self.marks.put(call.run(), STATISTIC)
        if call.op.name not in table.ELEMENTWISE | table.BINARY:
            return self._query(call)
        return self.marks.put(self._value(call), STATISTIC)

    def _combine(self, call: Call) -> Tensor:
        name = call.op.name
        if call.kwargs.get("rounding_mode") is not None:
            raise uncovered(call.op)
        operands = call.operands()
        carriers = self.marks.carriers(operands)
        if name in ("add", "sub"):
            return self._put(call, call.run(), carriers)
        if len(carriers) == 2 or (name == "div" and carriers[0] is operands[1]):
            return self._combine_carriers(call, carriers)
        if name == "div":
            self._refuse_softmax(call, *operands)
        statistics = [x for x in operands if x in self.marks and not self.marks.carries(x)]
        call = call.replacing({statistic: statistic.detach() for statistic in statistics})
        return self._put(call, call.run(), carriers)

    def _combine_carriers(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """A product of two carriers, a quotient of two, or a quotient of a constant by one."""
        if self.marks.alike(carriers):
            return self._activate(call, carriers)
        if call.op.name == "div":
            raise uncovered(call.op)
        return self._multiply(call)

    def _refuse_softmax(self, call: Call, dividend: Tensor, divisor: object) -> None:
        """Refuse `e / e.sum(-1)` of a function `e` of scores: a softmax written by hand, which is no normalisation."""
        mark = self.marks.get(divisor)
        scores = self.marks.origin(dividend)
        if mark is not None and mark.origin is scores and scores is not dividend:
            raise uncovered(call.op)

    def _multiply(self, call: Call) -> Tensor:
        if call.op.in_place:
            return self._in_place(call, self._multiply)
        carriers = self.marks.carriers(call.operands())
        if len(carriers) > 2:
            raise uncovered(call.op)
        if len(carriers) == 2 and not any(self.marks[x].attention for x in carriers):
            call = call.replacing({x: Scaled.apply(x, 0.5) for x in carriers})
        return self.marks.put(call.run())

    def _activate(self, call: Call, carriers: list[Tensor]) -> Tensor:
        """One activation, of the operand or, if there are several, of the tensor that all are functions of."""
        if not self.marks.alike(carriers):
            raise uncovered(call.op)
        if call.overwrites:
            if not self.marks.carries(call.args[0]):
                raise uncovered(call.op)
            others = [carrier for carrier in carriers if carrier is not call.args[0]]
            return self._in_place(call, lambda copied: self._activate(copied, [copied.args[0], *others]))
        value = self._value(call)
        if any(value is carrier for carrier in carriers):  # nothing was done, as by dropout
            return value
        of_origin = self._composed(call, carriers)
        x = self.marks.origin(carriers[0])
        function = of_origin
        if len(carriers) == 1 and x is not carriers[0]:
            x = carriers[0]
            function = _with_replaced(call, {x: _itself})
        result = Activation.apply(x, lambda: value, function, call.op)
        return self.marks.put(result, self.marks.function_of(x, of_origin))

    def _normalise(self, call: Call, carriers: list[Tensor]) -> Tensor:
        name = call.op.name
        x = carriers[0]
        if name in ("softmax", "log_softmax"):
            return self._attend(call, x)
        if name == "batch_norm":  # of stored statistics: linear
            return self.marks.put(call.run())
        if name == "layer_norm":
            shape = call.get(1, "normalized_shape")
            weight = call.get(2, "weight")
            bias = call.get(3, "bias")
            eps = call.get(4, "eps", default=1e-5)
            return self.marks.put(LayerNorm.apply(x, list(shape), weight, bias, eps))
        if name not in _NORMALISED:
            raise uncovered(call.op)
        value = self._value(call)
        return self.marks.put(Identity.apply(_NORMALISED[name](call, x), lambda: value))

    def _attend(self, call: Call, x: Tensor) -> Tensor:
        if self._attention_rule == "half":
            return self.marks.put(call.run())
        call = call.replacing({x: Scaled.apply(x, 0.0)})
        return self.marks.put(call.run(), _ATTENTION)

    def _reduce(self, call: Call, carriers: list[Tensor]) -> Any:
        name = call.op.name
        if name in table.EXTREMES and isinstance(call.get(1, "other"), Tensor):
            return self._activate(call, carriers)
        x = carriers[0]
        result = call.run() if name in _DIFFERENTIATED_AS_THEY_ARE else self._value(call)
        if name != "logsumexp" and is_statistic(x, float_tensors(result)[0]):
            origin = self.marks.origin(x) if name == "sum" else None
            return self.marks.put(result, Mark(statistic=True, origin=origin))
        if name not in _DIFFERENTIATED_AS_THEY_ARE:
            raise uncovered(call.op)
        return self.marks.put(result)

    def _route(self, call: Call) -> Any:
        result = call.run()
        if call.op.in_place or call.op.name == "setitem":
            self.marks.overwritten(call.args[0])
            return result
        source = call.get(0, "input")
        constant_below = source in self.marks and self.marks[source].attention
        return self.marks.put(result, _ATTENTION if constant_below else CARRIER)

    def _add_up(self, call: Call) -> Any:
        is_product = call.kwargs.get("reduce") is not None
        if call.op.name.endswith("grouped_mm"):
            is_product = len(self.marks.carriers(call.args)) > 1
        if is_product:
            raise uncovered(call.op)
        return self._route(call)

    def _stream(self, call: Call) -> Tensor:
        query, key, value, scores, layer = call.args[:5]
        if self._attention_rule == "constant":
            derivative = Derivative(product=0.0, cap_is_line=True)
        else:
            carriers = self.marks.carriers([query, key])
            product = 0.5 if len(carriers) == 2 else 1.0
            readout = 0.5 if carriers and self.marks.carries(value) else 1.0
            derivative = Derivative(product, readout, cap_is_line=True)
        return self.marks.put(streamed_attention(query, key, value, scores, layer, derivative))

    def _gate(self, call: Call) -> Tensor:
        passed, gate = self.marks.put(call.get(0, "input").chunk(2, call.get(1, "dim", default=-1)))
        activated = Activation.apply(gate, lambda: gate.detach().sigmoid(), torch.sigmoid, call.op)
        value = self._value(call)
        product = Scaled.apply(passed, 0.5) * Scaled.apply(activated, 0.5)
        return self.marks.put(Identity.apply(product, lambda: value))

    def _put(self, call: Call, result: Tensor, carriers: list[Tensor]) -> Tensor:
        """The result of a linear operation, marked."""
        mark = self._mark_of_linear(call, carriers)
        if call.op.in_place:
            self.marks.overwritten(result)
        return self.marks.put(result, mark)

    def _mark_of_linear(self, call: Call, carriers: list[Tensor]) -> Mark:
        """The mark of a linear operation: with numbers alone its result is still a function of the same tensor."""
        if len(carriers) == 1 and self.marks[carriers[0]].attention:
            return _ATTENTION
        others = [x for x in call.operands() if isinstance(x, Tensor) and not self.marks.carries(x)]
        only_numbers = all(x.numel() == 1 and x not in self.marks for x in others)
        if not only_numbers or not self.marks.alike(carriers):
            return CARRIER
        if call.op.in_place:
            target = call.args[0]
            if target._base is not None or target not in self.marks or self.marks.origin(target) is target:
                return CARRIER  # what it was a function of is overwritten, or may be through a view
            call = call.on_copies(target)
        return self.marks.function_of(carriers[0], self._composed(call, carriers))

    def _function(self, x: Tensor) -> Elementwise:
        """What `x` is as a function of its origin."""
        function = self.marks[x].function
        return _itself if function is None or self.marks.origin(x) is x else function

    def _composed(self, call: Call, carriers: list[Tensor]) -> Elementwise:
        """The result as a function of the tensor that all carriers are functions of."""
        return _with_replaced(call, {x: self._function(x) for x in carriers})

    def _in_place(self, call: Call, rule: Callable[[Call], Tensor]) -> Tensor:
        """The rule for a copy of the operand that is overwritten, then the result written over it."""
        target = call.args[0]
        before = target.clone()
        if self.marks.carries(target):
            is_function = self.marks.origin(target) is not target
            self.marks.put(before, self.marks[target] if is_function else CARRIER)
        result = rule(call.replacing({target: before}).on_copies(before))
        target.copy_(result)
        self.marks.overwritten(target)
        if target._base is not None:
            return target  # what it is a function of changes if the tensor that it is a view of is overwritten
        return self.marks.put(target, self.marks[result])


def _itself(x: Tensor) -> Tensor:
    return x


def _with_replaced(call: Call, functions: dict[Tensor, Elementwise]) -> Elementwise:
    """The call as a function of one tensor, of which some of its arguments are functions."""

    elementwise = list(functions.values())
    stand_ins = [operand.new_zeros(()) for operand in functions]
    # the call itself would keep its operands in memory, and see numbers that are overwritten later
    replacements = dict(zip(functions, stand_ins, strict=True))
    for operand in call.operands():
        if isinstance(operand, Tensor) and operand not in functions:
            replacements[operand] = operand.detach().clone()
    without_operands = call.replacing(replacements)

    def apply(x: Tensor) -> Tensor:
        values = {stand_in: function(x) for stand_in, function in zip(stand_ins, elementwise, strict=True)}
        return without_operands.replacing(values).run()

    return apply


def _rms_norm(call: Call, x: Tensor) -> Tensor:
    axes = tuple(range(-len(call.get(1, "normalized_shape")), 0))
    weight = call.get(2, "weight")
    eps = call.get(3, "eps")
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    mean_square = x.detach().square().mean(axes, keepdim=True)
    normalised = x * (mean_square + eps).rsqrt()
    return normalised if weight is None else normalised * weight


def _group_norm(call: Call, x: Tensor) -> Tensor:
    groups = call.get(1, "num_groups")
    weight = call.get(2, "weight")
    parts = x.reshape(len(x), groups, -1)
    centred = parts - parts.mean(-1, keepdim=True)
    variance = centred.detach().square().mean(-1, keepdim=True)
    normalised = centred * (variance + call.get(4, "eps", default=1e-5)).rsqrt()
    normalised = normalised.reshape(x.shape)
    return normalised if weight is None else normalised * weight.reshape(-1, *[1] * (x.dim() - 2))


def _normalize(call: Call, x: Tensor) -> Tensor:
    order = call.get(1, "p", default=2.0)
    axis = call.get(2, "dim", default=1)
    norm = x.detach().norm(order, axis, keepdim=True)
    return x / norm.clamp_min(call.get(3, "eps", default=1e-12))


# Fused normalisations with a constant statistic. Biases are left out: the value is the model's own.
_NORMALISED: dict[str, Callable[[Call, Tensor], Tensor]] = {
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "normalize": _normalize,
}
