"""A trace averaged along paths: its gradients describe the whole way from a baseline to the text, not only its end.

A path leads from a baseline, a text whose ordinary tokens are removed (`token_removal.py`), to the text itself. On the
straight path, that of integrated gradients, all tokens enter together. With groups, an order of the tokens is cut into
groups of equal size that enter one after the other, each of them on a straight leg. Most tokens are then either there or
removed, as they are in a masked text. One group gives Aumann-Shapley values; as many groups as tokens give Shapley
values by drawn orders. Orders are

- drawn, or
- ranked: by the contributions of the tokens on the paths so far, for which it matters most which token enters first,

and each order is followed in both directions. Without drawn orders the first path is the straight one.

Every path is cut into the same number of steps, those of a leg times groups. From point `p` to the next point `q`, with
`g` half the sum of the gradients at both:

    gradient of attention  ->  mean over all steps of g
    hidden                 ->  mean over paths of the sum over steps of <g, hidden(q) - hidden(p)>, its gradient -> 1

likewise for the residual stream, and attention weights stay those of the text. This is the trapezoidal rule for the
line integral of the gradient along the curve of the hidden states, which normalisation layers bend. The contributions of
every layer therefore sum to the gain of `y`, up to the error of the rule; those of word embeddings are integrated
gradients. The convention this file owns: the result **is a trace**, so every method of a trace has a path-averaged twin.
Each text draws its own orders and a batch gives the same as each text alone; points of as many texts as fit run together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from gaflow.arguments import whole_number
from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.methods.media_removal import MediaRemoval, removal_for
from gaflow.methods.removal import Removal, check_batch_size, check_replacement
from gaflow.methods.text_random import TextGenerator, token_ids
from gaflow.methods.token_removal import TokenRemoval
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import Geometry, points_in_a_pass
from gaflow.models.forward import forward
from gaflow.models.memory import geometry_of
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, TracedModel

__all__ = ["Paths", "along_path"]

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
    replacement: str | int | None = None  # the baseline of a token, as in integrated gradients
    batch_size: int | None = None  # points in one pass; None: as many as fit

    def __post_init__(self) -> None:
        if self.steps is not None:
            whole_number("steps", self.steps)
        whole_number("groups", self.groups)
        whole_number("orders", self.orders, least=0)
        whole_number("ranked", self.ranked, least=0)
        whole_number("seed", self.seed, least=0)
        check_replacement(self.replacement)
        check_batch_size(self.batch_size)
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
                generator=TextGenerator(paths.seed, token_ids(encoding)),
                batch_size=batch_size,
                gradients=[g[item, :, :n, :n] for g in gradients],
            )
        )
    stages = 1 + paths.ranked
    for stage in range(stages):
        waiting = []
        for accumulator in accumulators:
            waiting += [(accumulator, point) for point in accumulator.plan_stage(stage)]
        done = 0
        for batch in _batches(waiting):
            _evaluate(batch, residual=bool(trace.stream))
            done += len(batch)
            traced_model.report((stage + done / len(waiting)) / stages)
    return _averaged_trace(replace(trace, gradients=gradients), accumulators)


@dataclass(frozen=True)
class _PointValues:
    """Hidden states and residual streams at some points of one text, and the gradients of `y` by them."""

    numbers: list[int]  # (r,) of the points
    gradients: list[Tensor]  # (r, n, d) each
    states: list[Tensor]  # (r, n, d) each

    def concatenate(self, other: _PointValues) -> _PointValues:
        """These points, then those of `other`."""
        return _PointValues(
            self.numbers + other.numbers,
            [torch.cat(pair) for pair in zip(self.gradients, other.gradients, strict=True)],
            [torch.cat(pair) for pair in zip(self.states, other.states, strict=True)],
        )

    def select(self, numbers: set[int]) -> _PointValues:
        """Only the points of these numbers."""
        rows = [row for row, number in enumerate(self.numbers) if number in numbers]
        return _PointValues(
            [self.numbers[row] for row in rows], [g[rows] for g in self.gradients], [x[rows] for x in self.states]
        )


class PathAccumulator:
    """Plans the paths of one text, and adds up the values at their points."""

    def __init__(
        self,
        removal: Removal,
        paths: Paths,
        generator: TextGenerator,
        batch_size: int,
        gradients: list[Tensor],
    ) -> None:
        self.removal = removal
        self.batch_size = batch_size  # points in one pass
        self.contributions: list[Tensor] = []  # (n,) of every hidden state and stream, summed over steps
        self.points = torch.empty(0)  # (r, m) of this stage: inclusion weights of the tokens
        self._paths = paths
        self._generator = generator
        self._gradients = gradients  # l x (h, n, n) to add to: in the end the mean over the steps of all paths
        self._weights = torch.empty(0)  # (r,) of each point in that mean
        self._steps: list[tuple[int, int]] = []  # of this stage, from point to point, that are still to be added
        self._stored: _PointValues | None = None
        self._needed_later: set[int] = set()  # points that the next stage uses, too

    def plan_stage(self, stage: int) -> range:
        """Plan the paths of a stage, first drawn or straight ones, then ranked; returns the points to compute."""
        if stage > self._paths.ranked:  # a text of one token
            return range(0)
        orders = self._first_orders() if stage == 0 else self._ranked_orders()
        self._plan_points(orders)
        self._needed_later = _ENDS if stage < self._paths.ranked else set()
        weights = torch.bincount(torch.tensor(self._steps).flatten(), minlength=len(self.points)).double()
        weights[: len(_ENDS)] = self._paths.count  # both ends are computed once for all paths
        self._weights = weights / (2 * self._paths.count * self._paths.steps_of_a_path)
        first_new = 0 if stage == 0 else len(_ENDS)
        return range(first_new, len(self.points))

    def add(self, attention_gradients: Sequence[Tensor], values: _PointValues) -> None:
        """Add what the model gave at some points of this stage."""
        for total, gradient in zip(self._gradients, attention_gradients, strict=True):
            weights = self._weights[values.numbers].to(gradient)
            total += torch.tensordot(weights, gradient, 1).to(total)
        stored = values if self._stored is None else self._stored.concatenate(values)
        available = set(stored.numbers)
        complete = []
        waiting = []
        for step in self._steps:
            if available.issuperset(step):
                complete.append(step)
            else:
                waiting.append(step)
        self._add_steps(stored, complete)
        self._steps = waiting
        self._stored = stored.select(self._needed_later.union(*waiting))  # long texts need the memory

    def _first_orders(self) -> list[Tensor | None]:
        """Drawn orders, forwards and backwards; None is the straight path."""
        if self._paths.orders == 0:
            return [None]
        with self._generator:
            drawn = [torch.randperm(len(self.removal)) for _ in range(self._paths.orders)]
        orders = []
        for order in drawn:
            orders += [order, order.flip(0)]
        return orders

    def _ranked_orders(self) -> list[Tensor | None]:
        if not self.contributions:
            raise UnsupportedModelError("ranked paths need hidden states, which this model does not return")
        order = self.contributions[0][self.removal.positions].argsort(stable=True).cpu()
        return [order, order.flip(0)]

    def _add_steps(self, stored: _PointValues, steps: Sequence[tuple[int, int]]) -> None:
        """Add some steps of the trapezoidal rule."""
        if not self.contributions:
            self.contributions = [x.new_zeros(x.shape[1]) for x in stored.states]
        if not steps:
            return
        row_of = {number: row for row, number in enumerate(stored.numbers)}
        before = torch.tensor([row_of[start] for start, _ in steps])
        after = torch.tensor([row_of[end] for _, end in steps])
        for total, gradient, state in zip(self.contributions, stored.gradients, stored.states, strict=True):
            i = before.to(state.device)
            j = after.to(state.device)
            products = (gradient[i] + gradient[j]) * (state[j] - state[i])
            total += products.sum((0, -1)) / (2 * self._paths.count)

    def _plan_points(self, orders: Sequence[Tensor | None]) -> None:
        """Set the points and steps of the paths on which groups enter by these orders."""
        tokens = len(self.removal)
        # paths meet at both their ends, and may meet elsewhere
        numbers = {(0.0,) * tokens: _BASELINE, (1.0,) * tokens: _TEXT}
        self._steps = []
        for order in orders:
            if order is None:
                legs = [slice(None)]
            else:
                legs = order.tensor_split(self._paths.groups)
            steps_of_a_leg = self._paths.steps_of_a_path // len(legs)
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


def _evaluate(batch: Sequence[_WaitingPoint], residual: bool) -> None:
    """Run the model at points of one or more texts in one pass, and add the results to their accumulators."""
    numbers_of: dict[PathAccumulator, list[int]] = {}
    for accumulator, number in batch:
        numbers_of.setdefault(accumulator, []).append(number)
    changed_inputs = [(accumulator.removal, accumulator.points[numbers]) for accumulator, numbers in numbers_of.items()]
    attention_gradients, gradients, states = _forward_and_backward(changed_inputs, residual)
    start = 0
    for accumulator, numbers in numbers_of.items():
        rows = slice(start, start + len(numbers))
        n = accumulator.removal.length
        accumulator.add(
            [g[rows, :, :n, :n] for g in attention_gradients],
            _PointValues(numbers, [g[rows, :n] for g in gradients], [x[rows, :n] for x in states]),
        )
        start += len(numbers)


_ChangedInput = tuple[Removal, Tensor]  # a text and the inclusion weights (r, m) of its tokens


def _forward_and_backward(
    changed_inputs: Sequence[_ChangedInput], residual: bool
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Gradients of `y` by attention l x (r, h, n, n), by states (r, n, d), and these states, in float32 or wider."""
    traced_model = changed_inputs[0][0].traced_model
    n = max(removal.length for removal, _ in changed_inputs)
    items = []
    for removal, points in changed_inputs:
        items += [removal.item] * len(points)
    batch = _changed_batch(traced_model, changed_inputs, items, n)
    embeddings = _embeddings(changed_inputs, n)
    with borrow(traced_model.model):
        forward_pass = forward(traced_model.model, batch, residual=residual, embeddings=embeddings)
        gradients = forward_pass.gradients(traced_model.scalar(forward_pass.logits, items))
    with torch.no_grad():
        states = []
        for state in (*forward_pass.hidden, *(residual_sum.stream for residual_sum in forward_pass.residual_sums)):
            if state.shape[1] != n:
                raise UnsupportedModelError(
                    f"a path needs one hidden state per token, not {state.shape[1]} for {n} tokens"
                )
            states.append(state.detach().to(accumulation_dtype(state)))
        state_gradients = []
        for state, gradient in zip(states, [*gradients.hidden, *gradients.residual_sums], strict=True):
            state_gradients.append(torch.zeros_like(state) if gradient is None else gradient.to(state))
        attention_gradients = [g.to(accumulation_dtype(g)) for g in gradients.attention]
    return attention_gradients, state_gradients, states


def _embeddings(changed_inputs: Sequence[_ChangedInput], n: int) -> Tensor | None:
    """The word embeddings (r, n, d) of the points, padded on the right; None for media."""
    parts = []
    for removal, points in changed_inputs:
        if isinstance(removal, TokenRemoval):
            embeddings = removal.embeddings_at(points)
            parts.append(pad(embeddings, (0, 0, 0, n - embeddings.shape[1])))
    return torch.cat(parts).requires_grad_() if parts else None


def _changed_batch(
    traced_model: TracedModel, changed_inputs: Sequence[_ChangedInput], items: list[int], n: int
) -> Batch:
    """A row for each point: the inputs of its text, cut to `n` tokens; pixels or samples are those of the point."""
    source = traced_model.batch
    rows = torch.tensor(items, device=source.mask.device)
    inputs = {}
    for name, value in source.inputs.items():
        inputs[name] = value[rows, :n] if value.dim() == 2 else value[rows]
    media = [(removal, points) for removal, points in changed_inputs if isinstance(removal, MediaRemoval)]
    if media:
        inputs[media[0][0].input_name] = torch.cat([removal.values_at(points) for removal, points in media])
    return Batch(
        inputs=inputs,
        mask=source.mask[rows, :n],
        padded=any(removal.length < n for removal, _ in changed_inputs),
        encodings=tuple(source.encodings[item] for item in items),
    )


def _averaged_trace(trace: Trace, accumulators: Sequence[PathAccumulator]) -> Trace:
    """The trace of the whole batch with the contributions of each text; its gradients are already averaged."""
    b, t = trace.mask.shape
    layers = len(trace.hidden)
    contributions = trace.gradients[0].new_zeros(layers + len(trace.stream), b, t, 1)
    for item, accumulator in enumerate(accumulators):
        n = accumulator.removal.length
        for total, values in zip(contributions, accumulator.contributions, strict=True):
            total[item, :n, 0] = values.to(total)
    ones = contributions.new_ones(b, t, 1)
    return replace(
        trace,
        hidden=tuple(contributions[:layers]),
        hidden_gradient=tuple(None if g is None else ones for g in trace.hidden_gradient),
        stream=tuple(contributions[layers:]),
        stream_gradient=tuple(ones for _ in trace.stream),
    )
