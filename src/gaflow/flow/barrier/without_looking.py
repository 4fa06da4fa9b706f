"""Newton steps on a GPU with no look at convergence after each: the host would wait for every answer.

`advance` takes a state to where all its items seem to have converged; the loop of `solve.py` then makes sure. Short
texts are solved by one kernel ("one_kernel"). The steps of somewhat longer ones are recorded once for each shape and
replayed ("graph"): the host would take longer to start a hundred kernels than they take. For all others, steps take so
long that a look costs nothing ("looking").

The convention this file owns: **an item is frozen by the step that finds it converged**, so its result does not depend
on how long others take, nor on when somebody looks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

from gaflow.flow.barrier import gpu
from gaflow.flow.barrier.edges import Edges
from gaflow.flow.barrier.linear.dispatch import Way, solve_laplacian
from gaflow.flow.barrier.linear.system import System
from gaflow.flow.barrier.newton import MAX_SHRINK, SHRINK, SHRINK_PER_CUT_SHORT, TOLERANCE, lower_level
from gaflow.flow.barrier.state import State
from gaflow.progress import checkpoint

Loop = Literal["looking", "one_kernel", "graph"]
LOOPS: tuple[Loop, ...] = ("looking", "one_kernel", "graph")

# Milliseconds of a whole solve of 12 layers on an H200, in one kernel / by a graph: 2 x 16 tokens 4.5 / 7.3, 64 x 16
# 4.7 / 7.0, 1 x 32 8.3 / 7.2, 2 x 32 8.7 / 6.0, 64 x 32 9.8 / 10.7.
ONE_KERNEL_MAX_TOKENS = 16
GRAPH_MAX_EDGES = 1 << 23  # with more in a batch, a step takes longer than starting its kernels
CACHED_EDGES = 1 << 23  # in the graphs that are kept until the process ends, of 100 to 200 bytes each
STEPS_BEFORE_LOOK = 10  # hardly a network has converged by then
TOKENS_STEP = 16  # lengths are rounded up to multiples, which share a graph

CONSTANTS = {"SHRINK": SHRINK, "SHRINK_PER_CUT_SHORT": SHRINK_PER_CUT_SHORT, "MAX_SHRINK": MAX_SHRINK}


def choose_loop(state: State) -> Loop:
    """The fastest loop for the size and device of a state."""
    if not isinstance(state.edges, Edges) or state.subtraction_free or not gpu.available(state.edges.variables):
        return "looking"
    layers, t = state.shape
    if t <= ONE_KERNEL_MAX_TOKENS:
        return "one_kernel"
    edges = len(state.level) * layers * _rounded_up(t) ** 2
    return "graph" if edges <= GRAPH_MAX_EDGES else "looking"


def _rounded_up(tokens: int) -> int:
    """The length of the graph that such texts are solved by."""
    return -(-tokens // TOKENS_STEP) * TOKENS_STEP


def advance(state: State, steps: int, loop: Loop, way: Way | None) -> None:
    """Take Newton steps, at most `steps`, until all items seem to have converged; "looking" takes none."""
    if steps == 0 or loop == "looking" or not isinstance(state.edges, Edges):
        return
    if loop == "one_kernel":
        _advance_by_one_kernel(state, state.edges, steps)
    else:
        _advance_by_graph(state, state.edges, steps, way)
    state.first = False


def _advance_by_one_kernel(state: State, edges: Edges, steps: int) -> None:
    state.node = state.node.contiguous()
    state.level = state.level.clone()  # the start has one tensor for both
    state.before = state.before.clone()
    state.taken = gpu.solve_short(
        edges=edges,
        node=state.node,
        shape=state.shape,
        level=state.level,
        before=state.before,
        floor=state.floor.contiguous(),
        mean=state.mean.contiguous(),
        count=state.count,
        steps=steps,
        constants={**CONSTANTS, "TOLERANCE": TOLERANCE},
    )


def _advance_by_graph(state: State, edges: Edges, steps: int, way: Way | None) -> None:
    lower_level(state)
    key = _key(state, edges, way)
    recorded = _take_from_cache(key) or _RecordedStep.record(state, edges, key)
    recorded.load(state, edges)
    taken = 0
    while taken < steps:
        checkpoint()
        replays = STEPS_BEFORE_LOOK if taken == 0 else 1
        replays = min(replays, steps - taken)
        for _ in range(replays):
            recorded.graph.replay()
        taken += replays
        if recorded.frozen.all():
            break
    recorded.unload(state, edges)
    torch.cuda.current_stream(key.device).synchronize()  # other threads may have streams of their own
    _put_into_cache(key, recorded)


@dataclass(frozen=True)
class _Key:
    """What a recorded step is made for."""

    device: torch.device
    items: int
    layers: int
    tokens: int
    floats: int
    weighted: bool
    way: Way | None


def _key(state: State, edges: Edges, way: Way | None) -> _Key:
    layers, t = state.shape
    floats, items, _ = state.node.shape
    return _Key(
        device=state.node.device,
        items=items,
        layers=layers,
        tokens=_rounded_up(t),
        floats=floats,
        weighted=edges.target_mu.shape[1] > 1,
        way=way,
    )


@dataclass
class _RecordedStep:
    """A Newton step on tensors of its own, recorded as a graph; shorter texts have dead tokens at their end."""

    key: _Key
    edges: Edges
    node: Tensor  # (floats, b, n)
    level: Tensor  # (b,) of the next step
    before: Tensor  # (b,)
    floor: Tensor  # (b,)
    mean: Tensor  # (b,)
    count: Tensor  # (b,)
    taken: Tensor  # (b,)
    frozen: Tensor  # (b,) 1 for items that do not change any more
    graph: torch.cuda.CUDAGraph

    @classmethod
    def prepare(cls, state: State, key: _Key) -> _RecordedStep:
        """The tensors, and nothing recorded."""
        t = key.tokens
        m = key.layers * t * t + 2 * t + 1
        n = (key.layers + 1) * t + 1
        new = state.node.new_zeros
        capacity = new(key.items, m)
        edges = Edges(
            capacity=capacity,
            target_mu=torch.ones_like(capacity if key.weighted else capacity[:, :1]),
            variables=new(4, key.items, m),
        )
        return cls(
            key=key,
            edges=edges,
            node=new(key.floats, key.items, n),
            level=torch.empty_like(state.level),
            before=torch.empty_like(state.before),
            floor=torch.empty_like(state.floor),
            mean=torch.empty_like(state.mean),
            count=torch.empty_like(state.count),
            taken=torch.empty_like(state.taken),
            frozen=torch.zeros(key.items, dtype=torch.int32, device=key.device),
            graph=torch.cuda.CUDAGraph(),
        )

    @classmethod
    def record(cls, state: State, edges: Edges, key: _Key) -> _RecordedStep:
        """Record a step for states like this one."""
        step = cls.prepare(state, key)
        step.load(state, edges)
        current = torch.cuda.current_stream(key.device)
        stream = _recording_stream(key.device)
        with _recording, torch.cuda.device(key.device), torch.cuda.stream(stream):
            stream.wait_stream(current)
            step.run()  # compiles kernels, which cannot be recorded
            stream.synchronize()
            step.graph.capture_begin(capture_error_mode="thread_local")
            try:
                step.run()
            finally:  # or nothing could be recorded on the stream any more
                step.graph.capture_end()
        current.wait_stream(stream)
        return step

    def run(self) -> None:
        """The step itself."""
        shape = (self.key.layers, self.key.tokens)
        t = self.key.tokens
        balance = gpu.linearize(self.edges, self.node, shape, self.before, self.level, self.taken)
        gpu.judge(self.edges, balance, self.level, self.floor, self.frozen, TOLERANCE)
        weight = self.edges.weight
        source, target, returning = weight[:, -2 * t - 1 :].split([t, t, 1], 1)
        system = System(
            weight=weight[:, : -2 * t - 1].unflatten(1, (self.key.layers, t, t)),
            source=source,
            target=target,
            returning=returning[:, 0],
            right=balance.right,
            up=balance.up,
            down=balance.down,
            top=t,
        )
        change = solve_laplacian(system, self.key.way)
        cut_short = gpu.step(self.edges, shape, change, self.frozen)
        gpu.settle(
            node=self.node,
            change=change,
            level=self.level,
            before=self.before,
            floor=self.floor,
            mean=self.mean,
            count=self.count,
            cut_short=cut_short,
            taken=self.taken,
            frozen=self.frozen,
            constants=CONSTANTS,
        )

    def load(self, state: State, edges: Edges) -> None:
        """Copy a state."""
        if state.shape[1] < self.key.tokens:
            self.edges.capacity.zero_()
            self.edges.variables.zero_()
            self.node.zero_()
        constants = [(self.floor, state.floor), (self.mean, state.mean), (self.count, state.count)]
        constants += self._edge_pairs(self.edges.capacity, edges.capacity, state.shape)
        if self.key.weighted:
            constants += self._edge_pairs(self.edges.target_mu, edges.target_mu, state.shape)
        else:
            constants.append((self.edges.target_mu, edges.target_mu))
        for recorded, other in [*constants, *self._changing(state, edges)]:
            recorded.copy_(other)
        self.frozen.zero_()  # the first run was a rehearsal

    def unload(self, state: State, edges: Edges) -> None:
        """Copy what has changed back to the state."""
        for recorded, other in self._changing(state, edges):
            other.copy_(recorded)

    def _changing(self, state: State, edges: Edges) -> list[tuple[Tensor, Tensor]]:
        """What a step changes, here and in a state."""
        t = state.shape[1]
        recorded_layers = self.node[..., :-1].unflatten(-1, (-1, self.key.tokens))
        layers = state.node[..., :-1].unflatten(-1, (-1, t))
        return [
            (self.level, state.level),
            (self.before, state.before),
            (self.taken, state.taken),
            (recorded_layers[..., :t], layers),
            (self.node[..., -1], state.node[..., -1]),
            *self._edge_pairs(self.edges.variables, edges.variables, state.shape),
        ]

    def _edge_pairs(self, recorded: Tensor, other: Tensor, shape: tuple[int, int]) -> list[tuple[Tensor, Tensor]]:
        """Numbers of edges (..., m) here and in a state of this shape."""
        layers, t = shape
        tokens = self.key.tokens
        if t == tokens:
            return [(recorded, other)]
        recorded_sizes = [layers * tokens**2, tokens, tokens, 1]
        recorded_inner, recorded_source, recorded_target, recorded_return = recorded.split(recorded_sizes, -1)
        inner, source, target, returning = other.split([layers * t**2, t, t, 1], -1)
        recorded_layers = recorded_inner.unflatten(-1, (layers, tokens, tokens))
        return [
            (recorded_layers[..., :t, :t], inner.unflatten(-1, (layers, t, t))),
            (recorded_source[..., :t], source),
            (recorded_target[..., :t], target),
            (recorded_return, returning),
        ]


_recording = Lock()  # one at a time, on one stream


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of its own, as recording wants; memory that is freed on it is used again there only."""
    return torch.cuda.Stream(device)


_cache: OrderedDict[_Key, _RecordedStep] = OrderedDict()
_cache_lock = Lock()


def _take_from_cache(key: _Key) -> _RecordedStep | None:
    """A recorded step for this thread alone, until it is put back."""
    with _cache_lock:
        return _cache.pop(key, None)


def _put_into_cache(key: _Key, step: _RecordedStep) -> None:
    """Keep a step, and let go of those that were not used for longest."""
    if step.edges.capacity.numel() > 2 * CACHED_EDGES:
        return
    with _cache_lock:
        _cache[key] = step
        while len(_cache) > 1 and sum(other.edges.capacity.numel() for other in _cache.values()) > CACHED_EDGES:
            _cache.popitem(last=False)
