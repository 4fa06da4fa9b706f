import math

import pytest
from transformers import BartConfig, SwinConfig, T5Config

from gaflow.estimate import STEPS, Geometry, estimate, extrapolate, longest_text, solve_flops, solve_seconds
from tests.models import FAMILIES

MINILM = Geometry(layers=6, heads=12, width=384, inner=1536)
BERT = Geometry(layers=12, heads=12, width=768, inner=3072)


@pytest.mark.parametrize(
    ("geometry", "length", "batch", "trace", "flow"),
    [  # MiB that processes on Linux grew by, with rawatt and with agf or af
        (MINILM, 128, 8, 362, 351),
        (MINILM, 512, 1, 406, 442),
        (MINILM, 512, 4, 1156, 1389),
        (BERT, 512, 1, 970, 1031),
        (Geometry(layers=4, heads=2, width=128, inner=512), 512, 1, 52, 161),
    ],
)
def test_estimates_are_above_measured_peaks_and_not_far_above(geometry, length, batch, trace, flow):
    cost = estimate(geometry, length, batch)
    assert trace <= cost.trace / 2**20 < 1.5 * trace
    assert flow <= cost.flow / 2**20 < 1.5 * flow
    assert cost.peak == max(cost.trace, cost.flow)


def test_a_trace_without_width_is_four_copies_of_the_attention_and_the_scores_of_a_layer():
    one = 4 * (2 * 3 * 5 * 5)
    assert estimate(Geometry(2, 3), 5).trace == 4 * one + 3 * one // 2


def test_wider_numbers_take_more_but_for_the_solver_which_has_its_own():
    narrow, wide = (estimate(Geometry(6, 12, 384, 1536, item), 100) for item in (4, 8))
    assert wide.trace == 2 * narrow.trace
    assert wide.flow - narrow.flow == narrow.flow - 8 * 18 * 6 * 100 * 100


def test_flops_are_three_cubes_per_layer_and_step():
    assert solve_flops(7, 10) == STEPS * 3 * 7 * 1000
    assert estimate(Geometry(7, 2), 10).flops == solve_flops(7, 10)


def test_a_batch_costs_as_much_as_its_items():
    one, many = estimate(MINILM, 9), estimate(MINILM, 9, 4)
    assert (many.trace, many.flow, many.flops) == (4 * one.trace, 4 * one.flow, 4 * one.flops)


@pytest.mark.parametrize("memory", [0, 1, 10**6, 10**9, 10**11])
def test_the_longest_text_fits_and_one_token_more_does_not(memory):
    length = longest_text(MINILM, memory)
    assert length == 0 or estimate(MINILM, length).peak <= memory
    assert estimate(MINILM, length + 1).peak > memory


@pytest.mark.parametrize("family", FAMILIES)
def test_the_geometry_is_that_of_the_model(family):
    model, _ = FAMILIES[family]()
    found = Geometry.of(model.config)
    assert found is not None
    layers = 2 if family in ("distilbert", "gpt2") else 3
    assert (found.layers, found.heads, found.width) == (layers, 4, 32)
    assert found.inner in (48, 4 * 32)  # where the config has no name of its own for it


def test_of_encoder_decoders_the_encoder_counts_and_what_the_decoder_keeps():
    bart = BartConfig(encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, d_model=32, encoder_ffn_dim=48)
    t5 = T5Config(num_layers=3, num_heads=4, d_model=32, d_ff=48)
    assert Geometry.of(bart) == Geometry.of(t5) == Geometry(3, 4, 64, 96)


def test_models_without_layers_of_attention_have_no_geometry():
    assert Geometry.of(object()) is None
    assert Geometry.of(SwinConfig()) is None


def test_extrapolating_to_the_same_size_changes_nothing():
    assert extrapolate(0.25, 64, 64, 12, 1e9) == 0.25


def test_extrapolated_seconds_grow_by_edges_and_then_by_flops():
    assert math.isclose(extrapolate(1.0, 10, 30, 2, math.inf), 9.0)
    flops = solve_flops(2, 30) - 9 * solve_flops(2, 10)
    assert math.isclose(extrapolate(1.0, 10, 30, 2, 1e6), 9.0 + flops / 1e6)


@pytest.mark.parametrize("length", [1, 100])
def test_seconds_are_taken_on_the_spot(length):
    assert 0 < solve_seconds(2, length) < math.inf


@pytest.mark.parametrize("size", ["layers", "heads", "length", "batch"])
def test_sizes_below_one_are_refused_by_name(size):
    sizes = {"layers": 1, "heads": 1, "length": 1, "batch": 1, size: 0}
    with pytest.raises(ValueError, match=f"{size} must be at least 1, not 0"):
        estimate(Geometry(sizes["layers"], sizes["heads"]), sizes["length"], sizes["batch"])
