"""A trace averaged along paths: its gradients describe the whole way from a baseline to the text, not only its end.

A path leads from a baseline, a text whose ordinary tokens are removed (`token_removal.py`), to the text itself. On
the straight path, that of integrated gradients, all tokens enter together. With groups, an order of the tokens is cut
into groups of equal size that enter one after the other, each of them on a straight leg. Most tokens are then either
there or removed, as they are in a masked text. One group gives Aumann-Shapley values; as many groups as tokens give
Shapley values by drawn orders. Orders are

- drawn, or
- ranked: by the contributions of the tokens on the paths so far, for which it matters most which token enters first,

and each order is followed in both directions. Without drawn orders the first path is the straight one.

Every path is cut into the same number of steps, those of a leg times groups. From point `p` to the next point `q`, with
`g` half the sum of the gradients at both:

    gradient of attention  ->  mean over all steps of g
    hidden                 ->  mean over paths of the sum over steps of <g, hidden(q) - hidden(p)>, its gradient -> 1

likewise for the residual stream, and attention weights stay those of the text. This is the trapezoidal rule for the
line integral of the gradient along the curve of the hidden states, which normalisation layers bend. The contributions
of every layer therefore sum to the gain of `y`, up to the error of the rule, which is not small for few steps; those of
word embeddings are integrated gradients. The convention this file owns: the result **is a trace**, so every method of a
trace has a path-averaged twin. Each text draws its own orders and a batch gives the same as each text alone; points of
as many texts as fit run together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gaflow.arguments import optional_whole_number, whole_number
from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.methods.balanced import forward_with
from gaflow.methods.media_removal import changed_inputs, removal_for
from gaflow.methods.removal import Removal, Replacement, check_replacement
from gaflow.methods.text_random import token_ids, torch_generator
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import Geometry, points_in_a_pass
from gaflow.models.memory import geometry_of
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace

_LENGTH_RATIO = 0.8  # texts share a pass if the shortest has at least this share of the longest one's tokens

_BASELINE = 0  # number of the point at which every path begins
_TEXT = 1  # number of the point at which every path ends
_ENDS = {_BASELINE, _TEXT}


@dataclass(frozen=True)
class Paths:
    """The paths that gradients are averaged along."""

    steps: int | None = None  # of each leg of a path; None: no paths, gradients are those at the text itself
    groups: int = 1  # of tokens that enter one after the other; 1: the straight path
    orders: int = 0  # drawn for the groups, each followed in both directions
    ranked: int = 0  # times that the groups enter by rank, likewise
    seed: int = 0  # other seeds draw other orders
    replacement: Replacement = None  # the baseline of a token, as in integrated gradients
    batch_size: int | None = None  # points in one pass; None: as many as fit

    def __post_init__(self) -> None:
        optional_whole_number("steps", self.steps)
        whole_number("groups", self.groups)
        whole_number("orders", self.orders, least=0)
        whole_number("ranked", self.ranked, least=0)
        whole_number("seed", self.seed, least=0)
        check_replacement(self.replacement)
        optional_whole_number("batch_size", self.batch_size)
        has_groups = self.groups > 1
        has_orders = self.orders + self.ranked > 0
        if has_groups != has_orders:
            raise ArgumentError(
                Argument("groups", self.groups),
                f" and {self.orders + self.ranked} orders do not fit: pass more than one group and at least one of ",
                Argument("orders"),
                " or ",
                Argument("ranked"),
                ", or none of them",
            )
        if has_groups and self.steps is None:
            raise ArgumentError(
                Argument("groups", self.groups), " is for paths; also pass ", Argument("steps"), ", those of each leg"
            )

    @property
    def count(self) -> int:
        """How many paths there are."""
        return self._first_paths + 2 * self.ranked

    @property
    def passes(self) -> int:
        """Points at which the model runs, for a text with at least as many tokens as groups."""
        return self.count * self._inner_points + len(_ENDS)

    @property
    def largest_stage(self) -> int:
        """The most points of one stage, which are known before any of them is computed; 0 without paths."""
        if self.steps is None:
            return 0
        ranked_paths = 2 if self.ranked else 0
        return max(self._first_paths, ranked_paths) * self._inner_points + len(_ENDS)

    @property
    def steps_of_a_path(self) -> int:
        """Steps of one whole path, over all its legs."""
        return self.groups * (self.steps or 0)

    @property
    def _first_paths(self) -> int:
        """Paths of the first stage: two for each drawn order, or the straight path."""
        return 2 * self.orders or 1

    @property
    def _inner_points(self) -> int:
        """Points of one path but its two ends, which all paths share."""
        return self.steps_of_a_path - 1

    def for_tokens(self, tokens: int) -> Paths:
        """The paths of a text with so many tokens: never more groups than tokens."""
        if tokens >= self.groups:
            return self
        if tokens > 1:
            return replace(self, groups=tokens)
        return replace(self, steps=self.steps_of_a_path, groups=1, orders=0, ranked=0)


def along_path(trace: Trace, paths: Paths) -> Trace:
    """The trace of the same batch, averaged along `paths`; without steps, the trace itself."""
    if paths.steps is None:
        return trace
    traced_model = trace.require_model()
    gradients = tuple(torch.zeros_like(g) for g in trace.gradients)
    contributions = gradients[0].new_zeros(len(trace.hidden) + len(trace.stream), *trace.mask.shape)
    geometry = geometry_of(traced_model.model) or Geometry(len(gradients), gradients[0].shape[1])
    accumulators = []
    for item, encoding in enumerate(traced_model.batch.encodings):
        removal = removal_for(traced_model, item, paths.replacement, paths.batch_size)
        n = removal.length
        batch_size = paths.batch_size
        if batch_size is None:
            batch_size = min(removal.batch_size, points_in_a_pass(geometry, n, gradients[0].device))
        accumulators.append(
            PathAccumulator(
                removal=removal,
                paths=paths.for_tokens(len(removal)),
                generator=torch_generator(paths.seed, token_ids(encoding)),
                batch_size=batch_size,
                gradients=[g[item, :, :n, :n] for g in gradients],
                contributions=contributions[:, item, :n],
            )
        )
    stages = 1 + paths.ranked
    for stage in range(stages):
        waiting = []
        for accumulator in accumulators:
            waiting += [(accumulator, point) for point in accumulator.plan_stage(stage)]
        done = 0
        for batch in _batches(waiting):
            _evaluate(batch, trace.gradient_kind, residual=bool(trace.stream))
            done += len(batch)
            traced_model.report((stage + done / len(waiting)) / stages)
    states = contributions[..., None].unbind()
    ones = contributions.new_ones(*trace.mask.shape, 1)
    return replace(
        trace,
        gradients=gradients,
        hidden=states[: len(trace.hidden)],
        hidden_gradient=tuple(None if g is None else ones for g in trace.hidden_gradient),
        stream=states[len(trace.hidden) :],
        stream_gradient=tuple(ones for _ in trace.stream),
    )


@dataclass(eq=False)
class PathAccumulator:
    """Plans the paths of one text, and adds up the values at their points."""

    removal: Removal
    paths: Paths
    generator: torch.Generator
    batch_size: int  # points in one pass
    gradients: list[Tensor]  # l x (h, n, n) to add to: in the end the mean over the steps of all paths
    contributions: Tensor  # (k, n) of hidden states and streams, to add to: in the end the mean over paths
    points: Tensor = field(init=False)  # (r, m) of this stage: inclusion weights of the tokens
    _weights: Tensor = field(init=False)  # (r,) of each point in the mean of gradients
    _steps: list[tuple[int, int]] = field(init=False)  # of this stage, from point to point, that are still to be added
    _needed_later: set[int] = field(init=False)  # points that the next stage uses, too
    _numbers: list[int] = field(init=False, default_factory=list)  # (r,) of the points that are stored
    _values: list[Tensor] = field(init=False)  # (r, n, d) gradients by states at these points, then the states

    def plan_stage(self, stage: int) -> range:
        """Plan the paths of a stage, first drawn or straight ones, then ranked; returns the points to compute."""
        if stage > self.paths.ranked:  # a text of one token
            return range(0)
        self._plan_points(self._first_paths() if stage == 0 else self._ranked_paths())
        self._needed_later = _ENDS if stage < self.paths.ranked else set()
        weights = torch.bincount(torch.tensor(self._steps).flatten(), minlength=len(self.points)).double()
        weights[: len(_ENDS)] = self.paths.count  # both ends are computed once for all paths
        self._weights = weights / (2 * self.paths.count * self.paths.steps_of_a_path)
        first_new = 0 if stage == 0 else len(_ENDS)
        return range(first_new, len(self.points))

    def add(self, numbers: list[int], attention_gradients: Sequence[Tensor], values: list[Tensor]) -> None:
        """Add what the model gave at some points of this stage: gradients by states and these states, (r, n, d)."""
        for total, gradient in zip(self.gradients, attention_gradients, strict=True):
            weights = self._weights[numbers].to(gradient)
            total += torch.tensordot(weights, gradient, 1).to(total)
        if self._numbers:
            numbers = self._numbers + numbers
            values = [torch.cat(pair) for pair in zip(self._values, values, strict=True)]
        row_of = {number: row for row, number in enumerate(numbers)}
        complete = []
        waiting = []
        for start, end in self._steps:
            if start in row_of and end in row_of:
                complete.append((row_of[start], row_of[end]))
            else:
                waiting.append((start, end))
        self._add_steps(values, complete)
        self._steps = waiting
        needed = self._needed_later.union(*waiting)
        self._numbers = [number for number in numbers if number in needed]  # long texts need the memory
        rows = [row_of[number] for number in self._numbers]
        self._values = [value[rows] for value in values]

    def _first_paths(self) -> list[Sequence[Tensor]]:
        """The legs of drawn orders, forwards and backwards, or of the straight path."""
        tokens = len(self.removal)
        if self.paths.orders == 0:
            return [[torch.arange(tokens)]]
        orders = [torch.randperm(tokens, generator=self.generator) for _ in range(self.paths.orders)]
        paths = []
        for order in orders:
            paths += self._both_directions(order)
        return paths

    def _ranked_paths(self) -> list[Sequence[Tensor]]:
        """The legs by rank, forwards and backwards."""
        if len(self.contributions) == 0:
            raise UnsupportedModelError("ranked paths need hidden states, which this model does not return")
        positions = self.removal.positions
        order = self.contributions[0].to(positions.device)[positions].argsort(stable=True)
        return self._both_directions(order.cpu())

    def _both_directions(self, order: Tensor) -> list[Sequence[Tensor]]:
        groups = self.paths.groups
        return [order.tensor_split(groups), order.flip(0).tensor_split(groups)]

    def _add_steps(self, values: Sequence[Tensor], steps: Sequence[tuple[int, int]]) -> None:
        """Add some steps of the trapezoidal rule, from row to row of the values."""
        if not steps:
            return
        layers = len(values) // 2
        rows = torch.tensor(steps)
        for total, gradient, state in zip(self.contributions, values[:layers], values[layers:], strict=True):
            before, after = rows.to(state.device).unbind(1)
            products = (gradient[before] + gradient[after]) * (state[after] - state[before])
            contribution = products.sum((0, -1)) / (2 * self.paths.count)
            total += contribution.to(total)

    def _plan_points(self, paths: Sequence[Sequence[Tensor]]) -> None:
        """Set the points and steps of these paths. Each leg is a group of tokens that enter together."""
        tokens = len(self.removal)
        # paths meet at both their ends, and may meet elsewhere
        numbers = {(0.0,) * tokens: _BASELINE, (1.0,) * tokens: _TEXT}
        self._steps = []
        for legs in paths:
            steps_of_a_leg = self.paths.steps_of_a_path // len(legs)
            inclusion = torch.zeros(tokens, dtype=torch.float64)
            last = _BASELINE
            for leg in legs:
                for k in range(1, steps_of_a_leg + 1):
                    inclusion[leg] = k / steps_of_a_leg
                    number = numbers.setdefault(tuple(inclusion.tolist()), len(numbers))
                    self._steps.append((last, number))
                    last = number
        self.points = torch.tensor(list(numbers), dtype=torch.float64).reshape(len(numbers), tokens)


_WaitingPoint = tuple[PathAccumulator, int]  # a point of one text


def _batches(waiting: Sequence[_WaitingPoint]) -> Iterator[list[_WaitingPoint]]:
    """Points that run together: as many as fit, of texts of similar length, which need little padding."""
    batch: list[_WaitingPoint] = []
    lengths: set[int] = set()
    most = math.inf
    for accumulator, point in waiting:
        lengths.add(accumulator.removal.length)
        most = min(most, accumulator.batch_size)
        if batch and (len(batch) >= most or min(lengths) < _LENGTH_RATIO * max(lengths)):
            yield batch
            batch = []
            lengths = {accumulator.removal.length}
            most = accumulator.batch_size
        batch.append((accumulator, point))
    if batch:
        yield batch


def _evaluate(points: Sequence[_WaitingPoint], kind: str, residual: bool) -> None:
    """Run the model at points of one or more texts in one pass, and add the results to their accumulators.

    Its gradients are of a `kind` as in `balanced.py`.
    """
    numbers_of: dict[PathAccumulator, list[int]] = {}
    for accumulator, number in points:
        numbers_of.setdefault(accumulator, []).append(number)
    attention_gradients, values = _forward_and_backward(numbers_of, kind, residual)
    start = 0
    for accumulator, numbers in numbers_of.items():
        rows = slice(start, start + len(numbers))
        n = accumulator.removal.length
        accumulator.add(numbers, [g[rows, :, :n, :n] for g in attention_gradients], [x[rows, :n] for x in values])
        start += len(numbers)


def _forward_and_backward(
    numbers_of: Mapping[PathAccumulator, list[int]], kind: str, residual: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of `y` by attention l x (r, h, n, n), and by states (r, n, d) followed by these states themselves.

    All are in float32 or wider.
    """
    inclusions = []
    for accumulator, numbers in numbers_of.items():
        inclusions.append((accumulator.removal, accumulator.points[numbers]))
    traced_model = inclusions[0][0].traced_model
    items, batch, embeddings = changed_inputs(inclusions)
    n = max(accumulator.removal.length for accumulator in numbers_of)
    with borrow(traced_model.model):
        forward_pass = forward_with(kind, traced_model.model, batch, residual=residual, embeddings=embeddings)
        gradients = forward_pass.gradients(traced_model.scalar(forward_pass.logits, items))
    with torch.no_grad():
        streams = [residual_sum.stream for residual_sum in forward_pass.residual_sums]
        states = [_widened(state) for state in (*forward_pass.hidden, *streams)]
        state_gradients = []
        for state, gradient in zip(states, [*gradients.hidden, *gradients.residual_sums], strict=True):
            if state.shape[1] != n:
                raise UnsupportedModelError(
                    f"a path needs one hidden state per token, not {state.shape[1]} for {n} tokens"
                )
            state_gradients.append(torch.zeros_like(state) if gradient is None else gradient.to(state))
        return [_widened(g) for g in gradients.attention], state_gradients + states


def _widened(tensor: Tensor) -> Tensor:
    return tensor.detach().to(accumulation_dtype(tensor))
