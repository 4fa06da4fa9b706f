import pytest
import torch
from transformers import BartConfig, SwinConfig, T5Config

from gaflow.methods import METHODS, FlowMethod
from gaflow.models.cost import (
    SOLVER_STEPS,
    Geometry,
    MethodCost,
    estimate,
    largest_batch,
    longest_text,
    solve_flops,
)
from gaflow.models.memory import method_costs
from tests.support.models import FAMILIES

MINILM = Geometry(layers=6, heads=12, hidden_size=384, intermediate_size=1536)
BERT = Geometry(layers=12, heads=12, hidden_size=768, intermediate_size=3072)
PEELED = FlowMethod(preset="peeled_flow").cost


@pytest.mark.parametrize(
    ("geometry", "length", "batch", "trace", "flow"),
    [  # MiB that processes on Linux grew by, with rawatt and with agf or af, when every trace was copied
        (MINILM, 128, 8, 362, 351),
        (MINILM, 512, 1, 406, 442),
        (MINILM, 512, 4, 1156, 1389),
        (BERT, 512, 1, 970, 1031),
        (Geometry(layers=4, heads=2, hidden_size=128, intermediate_size=512), 512, 1, 52, 161),
    ],
)
def test_estimates_are_above_measured_peaks_and_not_far_above(geometry, length, batch, trace, flow):
    cost = estimate(geometry, length, batch)
    assert trace <= cost.trace / 2**20 < 1.5 * trace
    assert flow <= cost.flow / 2**20 < 1.5 * flow
    assert cost.peak == max(cost.trace, cost.flow)


@pytest.mark.parametrize(
    ("geometry", "length", "batch", "measured"),
    [  # MiB that processes on Linux grew by, with peeled_flow
        (MINILM, 128, 8, 624),
        (MINILM, 512, 1, 896),
        (MINILM, 512, 4, 2519),
        (BERT, 128, 1, 209),
        (BERT, 128, 4, 881),
        (BERT, 512, 1, 1927),
        (Geometry(layers=4, heads=2, hidden_size=128, intermediate_size=512), 512, 1, 267),
    ],
)
def test_estimates_of_peeled_methods_are_near_measured_peaks(geometry, length, batch, measured):
    assert 0.8 * measured <= estimate(geometry, length, batch, PEELED).peak / 2**20 < 1.5 * measured


MODERN = Geometry(layers=22, heads=12, hidden_size=768, intermediate_size=1152)


@pytest.mark.parametrize(
    ("geometry", "length", "batch", "method", "measured"),
    [  # MiB that processes on Linux grew by, with streamed attention
        (BERT, 128, 1, "agf", 79),
        (BERT, 128, 8, "agf", 461),
        (BERT, 128, 4, "relevance_flow", 266),
        (BERT, 128, 1, "peeled_flow", 140),
        (BERT, 512, 1, "agf", 211),
        (BERT, 512, 1, "relevance_flow", 235),
        (BERT, 512, 1, "attcat", 195),
        (MODERN, 1024, 1, "agf", 1331),
        (MODERN, 1024, 1, "attcat", 654),
        (MODERN, 4096, 1, "attcat", 2893),
    ],
)
def test_estimates_of_streamed_passes_are_near_measured_peaks(geometry, length, batch, method, measured):
    peak = estimate(geometry, length, batch, streamed(method)).peak / 2**20
    assert measured / 1.5 < peak < 1.5 * measured


def streamed(method, device="cpu"):
    """The cost of a method whose pass is streamed."""
    (cost,) = method_costs([METHODS[method]], torch.device(device), streamed=True)
    return cost


@pytest.mark.parametrize("method", ["agf", "peeled_flow", "attcat"])
def test_a_long_text_fits_on_a_gpu_only_if_it_is_streamed(method):
    memory = 139 << 30
    eager = getattr(METHODS[method], "cost", MethodCost())
    assert estimate(MODERN, 8192, 1, streamed(method, "cuda")).peak < memory < estimate(MODERN, 8192, 1, eager).peak


@pytest.mark.parametrize("length", [10, 255, 256, 1000, 5000])
@pytest.mark.parametrize("method", ["agf", "relevance_flow", "peeled_flow", "attcat"])
def test_a_streamed_pass_never_takes_more_than_an_eager_one(length, method):
    eager = getattr(METHODS[method], "cost", MethodCost())
    assert estimate(BERT, length, 4, streamed(method)).peak < estimate(BERT, length, 4, eager).peak


def test_a_signed_flow_with_node_capacities_solves_two_networks_of_twice_the_layers():
    plain, both = estimate(BERT, 100), estimate(BERT, 100, 1, FlowMethod(signed=True, nodes=True).cost)
    attention, edges = 4 * 12 * 12 * 100 * 100, 8 * 12 * 100 * 100
    assert both.flow - plain.flow == attention + (18 + 2 * 8) * edges
    assert both.flops == 2 * solve_flops(24, 100)
    assert (both.trace, both.contexts) == (plain.trace, plain.contexts) == (plain.trace, 0)


def test_a_peeled_method_holds_a_second_trace_and_solves_two_networks_at_a_time():
    plain, peeled = estimate(BERT, 100, 3), estimate(BERT, 100, 3, PEELED)
    attention, states, edges = 4 * 3 * 12 * 12 * 100 * 100, 4 * 3 * 12 * 100 * 768, 8 * 3 * 12 * 100 * 100
    assert peeled.trace == plain.trace
    assert peeled.contexts - plain.trace == 3 * attention + 20 * states
    assert peeled.flow - plain.flow == attention + 18 * edges
    assert peeled.flops == 2 * plain.flops
    assert estimate(BERT, 100, 3, FlowMethod(preset="relevance_flow").cost).contexts == plain.contexts == 0


def test_a_trace_without_width_is_four_copies_of_the_attention_and_the_scores_of_a_layer():
    one = 4 * (2 * 3 * 5 * 5)
    assert estimate(Geometry(2, 3), 5).trace == 4 * one + 3 * one // 2


def test_wider_numbers_take_more_but_for_the_solver_which_has_its_own():
    narrow, wide = (estimate(Geometry(6, 12, 384, 1536, item), 100) for item in (4, 8))
    assert wide.trace == 2 * narrow.trace
    assert wide.flow - narrow.flow == narrow.flow - 8 * 18 * 6 * 100 * 100


def test_flops_are_three_cubes_per_layer_and_step():
    assert solve_flops(7, 10) == SOLVER_STEPS * 3 * 7 * 1000
    assert estimate(Geometry(7, 2), 10).flops == solve_flops(7, 10)


def test_a_batch_costs_as_much_as_its_items():
    one, many = estimate(MINILM, 9), estimate(MINILM, 9, 4)
    assert (many.trace, many.flow, many.flops) == (4 * one.trace, 4 * one.flow, 4 * one.flops)


@pytest.mark.parametrize("work", [MethodCost(), PEELED])
@pytest.mark.parametrize("memory", [0, 1, 10**6, 10**9, 10**11])
def test_the_longest_text_fits_and_one_token_more_does_not(memory, work):
    length = longest_text(MINILM, memory, work)
    assert length == 0 or estimate(MINILM, length, 1, work).peak <= memory
    assert estimate(MINILM, length + 1, 1, work).peak > memory


@pytest.mark.parametrize("work", [MethodCost(), PEELED])
@pytest.mark.parametrize("memory", [0, 10**8, 10**9, 10**11])
def test_the_largest_batch_fits_and_one_text_more_does_not(memory, work):
    texts = largest_batch(MINILM, 128, memory, work)
    assert texts == 0 or estimate(MINILM, 128, texts, work).peak <= memory
    assert estimate(MINILM, 128, texts + 1, work).peak > memory
    assert texts == memory // estimate(MINILM, 128, 1, work).peak


@pytest.mark.parametrize("family", FAMILIES)
def test_the_geometry_is_that_of_the_model(family):
    model, _ = FAMILIES[family]()
    geometry = Geometry.of(model.config)
    assert geometry is not None
    layers = 2 if family in ("distilbert", "gpt2") else 3
    assert (geometry.layers, geometry.heads, geometry.hidden_size) == (layers, 4, 32)
    assert geometry.intermediate_size in (48, 4 * 32)  # where the config has no name of its own for it


def test_of_encoder_decoders_the_encoder_counts_and_what_the_decoder_keeps():
    bart = BartConfig(encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, d_model=32, encoder_ffn_dim=48)
    t5 = T5Config(num_layers=3, num_heads=4, d_model=32, d_ff=48)
    assert Geometry.of(bart) == Geometry.of(t5) == Geometry(3, 4, 64, 96)


def test_models_without_layers_of_attention_have_no_geometry():
    assert Geometry.of(object()) is None
    assert Geometry.of(SwinConfig()) is None


@pytest.mark.parametrize("size", ["layers", "heads", "length", "batch_size"])
def test_sizes_below_one_are_refused_by_name(size):
    sizes = {"layers": 1, "heads": 1, "length": 1, "batch_size": 1, size: 0}
    with pytest.raises(ValueError, match=f"{size}.* 0"):
        estimate(Geometry(sizes["layers"], sizes["heads"]), sizes["length"], sizes["batch_size"])
