"""What explaining a text will cost, known before anything is computed.

With `l` layers, `h` heads, width `d`, inner width `f` and `b` texts of `t` tokens, in bytes:

    attention     4 b l h t^2          one copy of all attention weights
    activations   4 b l t (15 d + 2 f) what a block keeps for its backward pass, and its hidden states
    trace         activations + (4 + 3 / l) attention    weights and gradient, both once more to clear padding; scores
    flow          activations + 2 attention + 18 * 8 b l t^2    weights and gradient, and the float64 arrays of a solve
    path          5 attention + 20 states, and for each point in a pass 1 / b (activations + (2 + 3 / l) attention)

A method that walks paths holds their average beside the trace, and hidden states, streams and gradients of the trace
and of three points, `states` being `4 b l t d`; its points run in passes. The average stays for the flow, one attention
more. A signed flow has another, the turned gradient, and 8 more arrays while the second of its two is solved. With node
capacities a network has `2 l` layers.

The peak is the largest of the last three: what is freed in between mostly stays with the process. The constants
leave room for padding and for GPUs, where a solve takes about 20 arrays; without padding, on a CPU, measured peaks are
0.55 to 0.85 of it, of paths 0.7 to 1 (benchmarks/results/memory.md). A solve factors `l` blocks of `t x t` per step.

The convention this file owns: bytes and flops are functions of sizes alone, without the weights, and so is how many
inputs share a pass; seconds come from a small network that is solved on the spot, since no formula knows the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gaflow.flow.barrier.solve import solve

__all__ = [
    "ONE_TRACE",
    "Estimate",
    "Geometry",
    "MethodCost",
    "estimate",
    "extrapolate",
    "largest_batch",
    "longest_text",
    "points_in_a_pass",
    "rows_in_a_pass",
    "solve_flops",
    "solve_seconds",
]

STEPS = 15  # factorisations of a solve: 13 to 15 for most texts
_COPIES = 18  # (l, t, t) float64 arrays alive at the peak of a solve
_SOLVED = 8  # more of them while a second flow is solved: those of the first, and what it leaves in pieces
_HELD = 4  # copies of the attention alive at the end of a trace, at most
_STATES = 20  # (l, t, d) arrays that a text's paths hold: of the trace and of three points, and what copies take
_SCORES = 3  # of one layer's attention, before and after mask and softmax
_BUSY = {"cpu": 1 << 12, "cuda": 1 << 17}  # tokens in one pass: enough to keep a device busy
_PAIRS = {"cpu": 1 << 19, "cuda": 1 << 26}  # attention weights of one head in one pass, so that they fit into memory
_PASS = {"cpu": 1 << 29, "cuda": 1 << 32}  # bytes of one pass that keeps autograd's graph, unless one input needs more
_SAMPLE = 96  # tokens of the network that is solved to take the time


@dataclass(frozen=True)
class Geometry:
    """The sizes of a model that memory depends on."""

    layers: int
    heads: int
    width: int = 0  # of the hidden states
    inner: int = 0  # of the feed-forward layers
    item: int = 4  # bytes of a number in the trace: float32, or what the model has if that is wider

    @classmethod
    def of(cls, config: Any, item: int = 4) -> Geometry | None:
        """Of a transformers config; None where it does not describe a single stack of attention layers.

        Of an encoder-decoder the encoder is traced; its decoder reads as long a text and keeps about as much.
        """
        layers, heads, width = (
            _count(config, name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
        )
        if not layers or not heads:
            return None
        inner = _count(config, "intermediate_size", "encoder_ffn_dim", "d_ff") or 4 * width
        stacks = 2 if getattr(config, "is_encoder_decoder", False) else 1
        return cls(layers, heads, stacks * width, stacks * inner, max(item, 4))


def _count(config: Any, *names: str) -> int:
    """The first of these settings that is a positive whole number, else 0."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), 0)


@dataclass(frozen=True)
class MethodCost:
    """What a method does with a trace, as far as memory depends on it; by itself it solves one network at most."""

    points: int = 0  # of a text's paths that are asked about before the next are known; 0: no paths
    rows: int | None = None  # of them in one pass; None: as many as `points_in_a_pass` has it
    networks: int = 1  # that are solved, one after the other: two of a signed flow
    layers: int = 1  # of a network for each of the model: two if nodes have capacities


ONE_TRACE = MethodCost()


@dataclass(frozen=True)
class Estimate:
    """Bytes and floating-point operations to explain a batch of texts of one length."""

    trace: int  # bytes while attention and gradient are computed
    path: int  # bytes while paths are walked, if any are
    flow: int  # bytes while the flow is solved
    flops: int  # of the flow solver's factorisations

    @property
    def peak(self) -> int:
        """The most bytes at a time; the weights are not counted."""
        return max(self.trace, self.path, self.flow)


def estimate(
    geometry: Geometry, length: int, batch: int = 1, work: MethodCost = ONE_TRACE, device: torch.device | str = "cpu"
) -> Estimate:
    """The cost of one batch of texts with `length` tokens each, for a method that does this `work` on such a device."""
    sizes = {"layers": geometry.layers, "heads": geometry.heads, "length": length, "batch": batch}
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    edges = batch * geometry.layers * length * length
    attention = geometry.item * geometry.heads * edges
    kept = batch * _activations(geometry, length)
    path = 0
    if work.points:
        states = geometry.item * batch * geometry.layers * length * geometry.width
        path = 5 * attention + _STATES * states + _pass(geometry, length, batch * work.points, work.rows, device)
    held = 1 + (work.points > 0) + work.networks
    return Estimate(
        trace=kept + _HELD * attention + _SCORES * attention // geometry.layers,
        path=path,
        flow=kept + held * attention + 8 * (_COPIES + _SOLVED * (work.networks - 1)) * work.layers * edges,
        flops=work.networks * batch * solve_flops(work.layers * geometry.layers, length),
    )


def _activations(geometry: Geometry, length: int) -> int:
    """Bytes that the blocks keep of one text for the backward pass."""
    return geometry.item * geometry.layers * length * (15 * geometry.width + 2 * geometry.inner)


def _graph(geometry: Geometry, length: int) -> int:
    """Bytes of one input in a pass that keeps autograd's graph: activations, attention and gradient, scores."""
    one = geometry.item * geometry.heads * length * length
    return _activations(geometry, length) + (2 * geometry.layers + _SCORES) * one


def _pass(geometry: Geometry, length: int, points: int, rows: int | None, device: torch.device | str) -> int:
    """Bytes of a pass of at most so many points and rows; never less for a longer text, as whole rows would have it."""
    one, kind = _graph(geometry, length), _kind(device)
    most = rows * one if rows else max(one, min(_PASS[kind], _BUSY[kind] * one // length))
    return min(points * one, most)


def points_in_a_pass(geometry: Geometry, length: int, device: torch.device | str) -> int:
    """How many inputs of `length` tokens run together where each keeps its attention and autograd's graph."""
    kind = _kind(device)
    return max(1, min(_BUSY[kind] // length, _PASS[kind] // _graph(geometry, length)))


def rows_in_a_pass(device: torch.device | str, length: int) -> int:
    """How many inputs of `length` tokens run together: enough to keep a device busy, few enough to fit."""
    kind = _kind(device)
    return max(1, min(_BUSY[kind] // length, _PAIRS[kind] // length**2))


def _kind(device: torch.device | str) -> str:
    kind = torch.device(device).type
    return kind if kind in _BUSY else "cpu"


def longest_text(
    geometry: Geometry, memory: int, work: MethodCost = ONE_TRACE, device: torch.device | str = "cpu"
) -> int:
    """The most tokens of a text whose peak is within `memory` bytes; 0 if not even one token is."""
    # a token costs a byte at the very least
    return _most(lambda n: estimate(geometry, n, 1, work, device).peak <= memory, 1 + math.isqrt(max(memory, 0)))


def largest_batch(
    geometry: Geometry, length: int, memory: int, work: MethodCost = ONE_TRACE, device: torch.device | str = "cpu"
) -> int:
    """The most texts of `length` tokens whose peak is within `memory` bytes; 0 if not even one is."""
    above = 1 + max(memory, 0) // estimate(geometry, length).trace
    return _most(lambda n: estimate(geometry, length, n, work, device).peak <= memory, above)


def _most(fits: Callable[[int], bool], high: int) -> int:
    """The largest number that fits, of those below `high`, which does not; 0 if none does."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def solve_flops(layers: int, length: int) -> int:
    """Operations of one solve: per step and layer a Cholesky factor, a triangular solve and a product, 3 t^3."""
    return STEPS * 3 * layers * length**3


def extrapolate(seconds: float, small: int, large: int, layers: int, rate: float) -> float:
    """Seconds at `large` tokens from those at `small`: per edge up to there, and the further flops at `rate` each.

    At small sizes nearly all time goes into passes over the edges, which grow as t^2; the t^3 shows later.
    """
    growth = (large / small) ** 2
    further = solve_flops(layers, large) - growth * solve_flops(layers, small)
    return growth * seconds + further / rate


def solve_seconds(layers: int, length: int) -> float:
    """About how long one solve takes on this machine's CPU, from a random network of at most 96 tokens."""
    small = min(length, _SAMPLE)
    information = torch.rand(layers, small, small, generator=torch.Generator().manual_seed(0))
    solve(information[:1, :2, :2])  # what is only slow once does not count
    seconds = min(_time(lambda: solve(information)) for _ in range(2))
    if small == length:
        return seconds
    square = torch.ones(256, 256, dtype=torch.float64)
    rate = 2 * 256**3 / min(_time(lambda: square @ square) for _ in range(3))
    return extrapolate(seconds, small, length, layers, rate)


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
