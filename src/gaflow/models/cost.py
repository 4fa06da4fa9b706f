"""The memory and the operations that an explanation will take, known before anything is computed.

With `l` layers, `h` heads, hidden size `d`, intermediate size `f` and `b` texts of `t` tokens, in bytes:

    attention     4 b l h t^2          one copy of all attention weights
    activations   4 b l t (15 d + 2 f) what a block keeps for its backward pass, and its hidden states
    trace         activations + (4 + 3 / l) attention    weights and gradient, both once more to clear padding; scores
    flow          activations + 2 attention + 18 * 8 b l t^2    weights and gradient, and the float64 arrays of a solve
    contexts      activations + (7 + 3 / l) attention + 20 states    of peeled methods, next to the trace

A peeled method traces the batch again without its strongest tokens. It keeps hidden states, streams and gradients of
both traces, where `states` is `4 b l t d`, and one attention more for the flow. A signed flow has another one, the
negated gradient, and 8 more arrays while the second of its two networks is solved. With node capacities a network has
`2 l` layers.

The peak is the largest of the last three, because freed memory mostly stays with the process. The constants leave
room for padding and for GPUs, where a solve takes about 20 arrays. Without padding, on a CPU, measured peaks are 0.55
to 0.85 of the estimate, and 0.8 to 1.2 for peeled methods (benchmarks/results/memory.md). A solve factors `l` blocks of
`t x t` per step.

A **streamed** pass (`streamed_attention.py`) holds one matrix (t, t) per layer for each mean over heads in place of
attention. With `M` means, `states` of all layers as above and `E = 4 b l t^2` for one number per edge:

    trace         9 states + 1.5 inner states (long texts: 7 and 0.5) + M E + one layer, a few heads at a time
    flow          4 states + (M + 3) E + 18 * 2 E (long texts: 6 * 2 E, and 4 E for the first of two flows)
    contexts      trace + 8 states + (M + 4) E

From `LONG_TOKENS` on, outputs of linear layers are computed again; from `LEAN_TOKENS` on, the solver stores less and
solves two networks one after the other. Measured peaks on a CPU are 0.7 to 1.1 of these estimates
(benchmarks/results/streamed.md).

The convention this file owns: bytes and operations are functions of sizes alone, without the weights. So is the number
of inputs that share a pass.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import torch

from gaflow.arguments import whole_number
from gaflow.inputs.transformers_types import ModelConfig

_ATTENTION_PRODUCTS = 7  # of (t, t) and (t, d) matrices in a layer: two forward, and backward five of a streamed pass
_CALLS = {"cpu": 3e8, "cuda": 8e10}  # operations that take as long as the calls of a layer for a batch, solve included
SOLVER_STEPS = 15  # factorisations of a solve: 13 to 15 for most texts
_SOLVER_ARRAYS = 18  # (l, t, t) float64 arrays alive at the peak of a solve
_FIRST_FLOW_ARRAYS = 8  # more of them while a second flow is solved: those of the first, and fragmentation
_TRACE_COPIES = 4  # of the attention alive at the end of a trace, at most
_CONTEXT_COPIES = 7  # of the attention alive while a context is traced, those of the text included
_CONTEXT_STATE_ARRAYS = 20  # (l, t, d) arrays alive meanwhile: hidden states, streams and gradients of both traces
_SCORE_COPIES = 3  # of one layer's attention, before and after mask and softmax
_TOKENS_PER_PASS = {"cpu": 1 << 12, "cuda": 1 << 17}  # enough to keep a device busy
_PAIRS_PER_PASS = {"cpu": 1 << 19, "cuda": 1 << 26}  # attention weights of one head, few enough to fit into memory
_BYTES_OF_FLOAT64 = 8
LONG_TOKENS = {"cpu": 256, "cuda": 2048}  # from which on a pass computes again what it would keep
LEAN_TOKENS = {"cpu": 256, "cuda": 4096}  # from which on the solver stores less: its LEAN_MIN_TOKENS
CHUNK_WEIGHTS = {"cpu": 1 << 19, "cuda": 1 << 24}  # attention weights that are held at a time, at least one head
# of streamed passes, in arrays of the size of all hidden states, of one layer, or of one number for each edge
_STREAMED_STATES = 9  # that blocks keep
_LONG_STATES = 7  # likewise, where outputs of linear layers are computed again
_STORED_STATES = 4  # of a trace: hidden states, streams and their gradients
_LAYER_ARRAYS = 4  # that come and go inside a block
_CHUNK_ARRAYS = 6  # of the weights that are held at a time
_CONTEXT_STATES = 4  # beside those of both traces
_CONTEXT_MATRICES = 4  # networks and their sums
_LEAN_ARRAYS = 6  # (l, t, t) float64 arrays alive at the peak of a lean solve


@dataclass(frozen=True)
class Geometry:
    """The sizes of a model that memory depends on."""

    layers: int
    heads: int
    hidden_size: int = 0
    intermediate_size: int = 0  # of the feed-forward layers
    number_bytes: int = 4  # of a number in the trace: float32, or the model's dtype if that is wider

    @classmethod
    def of(cls, config: ModelConfig, number_bytes: int = 4) -> Geometry | None:
        """The sizes in a transformers config; None where it does not describe a single stack of attention layers.

        Of an encoder-decoder the encoder is traced. Its decoder reads a text of the same length and keeps about as
        much.
        """
        layers = _first_size(config, "num_hidden_layers")
        heads = _first_size(config, "num_attention_heads")
        if not layers or not heads:
            return None
        hidden_size = _first_size(config, "hidden_size")
        intermediate_size = _first_size(config, "intermediate_size", "encoder_ffn_dim", "d_ff") or 4 * hidden_size
        stacks = 2 if getattr(config, "is_encoder_decoder", False) else 1
        return cls(
            layers=layers,
            heads=heads,
            hidden_size=stacks * hidden_size,
            intermediate_size=stacks * intermediate_size,
            number_bytes=max(number_bytes, 4),
        )


def _first_size(config: ModelConfig, *names: str) -> int:
    """The first of these settings that is a positive whole number, else 0."""
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0


@dataclass(frozen=True)
class MethodCost:
    """What a method does with a trace, as far as memory depends on it. By default it solves one network at most."""

    peels: bool = False  # traces contexts, too: the batch without its strongest tokens
    networks: int = 1  # that are solved one after the other: two for a signed flow, none for methods without one
    layers: int = 1  # of a network for each of the model: two if nodes have capacities
    together: bool = False  # two networks are solved at a time, unless texts are long
    means: int = 1  # over heads, of each layer, that it needs of a streamed pass
    streamed: bool = False  # whether the pass is
    device: str = "cpu"  # its kind


ONE_TRACE = MethodCost()


@dataclass(frozen=True)
class Estimate:
    """Bytes and floating-point operations to explain a batch of texts of one length."""

    trace: int  # bytes while attention and gradient are computed
    contexts: int  # bytes while the contexts of a peeled method are traced; 0 for all other methods
    flow: int  # bytes while the flow is solved
    flops: int  # of the flow solver's factorisations

    @property
    def peak(self) -> int:
        """The most bytes at a time, without the weights of the model."""
        return max(self.trace, self.contexts, self.flow)


def estimate(geometry: Geometry, length: int, batch_size: int = 1, method_cost: MethodCost = ONE_TRACE) -> Estimate:
    """The cost of explaining one batch of texts with `length` tokens each."""
    whole_number("layers", geometry.layers)
    whole_number("heads", geometry.heads)
    whole_number("length", length)
    whole_number("batch_size", batch_size)
    if method_cost.streamed:
        return _estimate_streamed(geometry, length, batch_size, method_cost)
    edges = batch_size * geometry.layers * length * length
    attention = geometry.number_bytes * geometry.heads * edges
    attention_scores = _SCORE_COPIES * attention // geometry.layers
    activations = batch_size * _activation_bytes(geometry, length)
    contexts = 0
    attention_copies = 1 + method_cost.networks
    layers = method_cost.layers
    if method_cost.together:  # as much as one network of twice the layers
        attention_copies = 2
        layers *= 2
    if method_cost.peels:
        states = geometry.number_bytes * batch_size * geometry.layers * length * geometry.hidden_size
        contexts = activations + _CONTEXT_COPIES * attention + attention_scores + _CONTEXT_STATE_ARRAYS * states
        attention_copies += 1
    solver = _BYTES_OF_FLOAT64 * _solver_arrays(method_cost) * layers * edges
    flops = solve_flops(method_cost.layers * geometry.layers, length)
    trace = activations + _TRACE_COPIES * attention + attention_scores
    flow = activations + attention_copies * attention + solver
    return Estimate(trace=trace, contexts=contexts, flow=flow, flops=method_cost.networks * batch_size * flops)


def long_tokens(device_kind: str) -> int:
    """The length from which on a pass computes again what it would keep, on "cpu", "cuda" or another kind of device."""
    return LONG_TOKENS.get(device_kind, LONG_TOKENS["cpu"])


def _solver_arrays(method_cost: MethodCost) -> int:
    """(l, t, t) float64 arrays alive at the peak of the solves of a method."""
    if method_cost.networks == 0:
        return 0
    if method_cost.together:
        return _SOLVER_ARRAYS
    return _SOLVER_ARRAYS + _FIRST_FLOW_ARRAYS * (method_cost.networks - 1)


def _estimate_streamed(geometry: Geometry, length: int, batch_size: int, method_cost: MethodCost) -> Estimate:
    """The cost where no layer's attention is held for all heads."""
    is_long = length >= long_tokens(method_cost.device)
    tokens = batch_size * length
    states = geometry.number_bytes * geometry.layers * tokens * geometry.hidden_size
    inner_states = geometry.number_bytes * geometry.layers * tokens * geometry.intermediate_size
    pairs = tokens * length
    matrices = geometry.number_bytes * geometry.layers * pairs  # one number for each edge
    chunk = max(CHUNK_WEIGHTS.get(method_cost.device, CHUNK_WEIGHTS["cpu"]), pairs)
    if is_long:
        activations = _LONG_STATES * states + inner_states // 2
    else:
        activations = _STREAMED_STATES * states + 3 * inner_states // 2
    one_layer = geometry.number_bytes * (_CHUNK_ARRAYS * min(chunk, geometry.heads * pairs) + 4 * pairs)
    one_layer += _LAYER_ARRAYS * (states + inner_states) // geometry.layers
    trace = activations + method_cost.means * matrices + one_layer
    stored = _STORED_STATES * states + method_cost.means * matrices
    contexts = 0
    if method_cost.peels:
        contexts = trace + stored + _CONTEXT_STATES * states + _CONTEXT_MATRICES * matrices
    is_lean = length >= LEAN_TOKENS.get(method_cost.device, LEAN_TOKENS["cpu"])
    if not method_cost.networks:
        arrays = 0
    elif not is_lean:
        arrays = _solver_arrays(method_cost) * method_cost.layers * (2 if method_cost.together else 1)
    else:
        arrays = _LEAN_ARRAYS * method_cost.layers + 2 * (method_cost.networks - 1)
    solver = _BYTES_OF_FLOAT64 * arrays * geometry.layers * pairs
    flow = stored + (3 * matrices + solver if arrays else 0)
    flops = solve_flops(method_cost.layers * geometry.layers, length)
    return Estimate(trace=trace, contexts=contexts, flow=flow, flops=method_cost.networks * batch_size * flops)


def _activation_bytes(geometry: Geometry, length: int) -> int:
    """Bytes that the blocks keep of one text for the backward pass."""
    numbers_per_token = 15 * geometry.hidden_size + 2 * geometry.intermediate_size
    return geometry.number_bytes * geometry.layers * length * numbers_per_token


def work_of_text(geometry: Geometry, length: int, device: torch.device | str) -> float:
    """What a text of `length` tokens takes in a forward and backward pass, in units of the calls of one batch.

    A token takes four operations for each weight, two forward and two backward, since weights get no gradient.
    """
    weights = 4 * geometry.hidden_size**2 + 2 * geometry.hidden_size * geometry.intermediate_size
    attention = 2 * _ATTENTION_PRODUCTS * length**2 * geometry.hidden_size
    operations_of_layer = 4 * length * weights + attention
    return operations_of_layer / _CALLS.get(torch.device(device).type, _CALLS["cpu"])


def rows_in_a_pass(device: torch.device | str, length: int) -> int:
    """How many inputs of `length` tokens run together: enough to keep a device busy, few enough to fit."""
    kind = torch.device(device).type
    if kind not in _TOKENS_PER_PASS:
        kind = "cpu"
    return max(1, min(_TOKENS_PER_PASS[kind] // length, _PAIRS_PER_PASS[kind] // length**2))


def longest_text(geometry: Geometry, memory: int, method_cost: MethodCost = ONE_TRACE) -> int:
    """The most tokens of a text whose peak is within `memory` bytes; 0 if not even one token is."""
    lengths = range(1, 1 + math.isqrt(max(memory, 0)))  # a pair of tokens costs a byte at the very least
    return bisect_right(lengths, memory, key=lambda n: estimate(geometry, n, 1, method_cost).peak)


def largest_batch(geometry: Geometry, length: int, memory: int, method_cost: MethodCost = ONE_TRACE) -> int:
    """The most texts of `length` tokens whose peak is within `memory` bytes; 0 if not even one is."""
    batch_sizes = range(1, 1 + max(memory, 0) // length)  # a token costs a byte at the very least
    return bisect_right(batch_sizes, memory, key=lambda n: estimate(geometry, length, n, method_cost).peak)


def solve_flops(layers: int, length: int) -> int:
    """Operations of one solve: per step and layer a Cholesky factor, a triangular solve and a product, 3 t^3."""
    return SOLVER_STEPS * 3 * layers * length**3
