"""Edited attributions, against flows of networks that are built and solved here."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import ArgumentError, GaflowError
from gaflow.flow.result import VALUE_AGAINST
from tests.support import attributions
from tests.support.networks import random_attention

TEXT = "the dog's ok. the dog is not ok"


def attribution(signed: bool = False, barrier: str = "uniform", **changes):
    """Scores of a flow through random capacities, as a method gives them."""
    plain = attributions.make(TEXT)
    t = len(plain.tokens)
    flow = gaflow.solve(random_attention(1, 3, t), barrier=barrier)  # type: ignore[arg-type]
    flow_against = gaflow.solve(random_attention(2, 3, t), barrier=barrier) if signed else None  # type: ignore[arg-type]
    through = flow.through() - (flow_against.through() if flow_against is not None else 0)
    return replace(
        plain,
        scores=through[0, 0].numpy(),
        layers=through[0].numpy(),
        flow=flow,
        flow_against=flow_against,
        certificate=flow.certificate[0],
        origin={"settings": {"barrier": barrier, "terminal": None}},
        layer=0,
        **changes,
    )


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_both_flows_of_signed_scores_are_solved_again(barrier):
    att = attribution(signed=True, barrier=barrier)
    t = len(att.tokens)
    expected = []
    for seed in (1, 2):
        capacity = random_attention(seed, 3, t)
        capacity[1, 2, 4] = 0
        expected.append(gaflow.solve(capacity, barrier=barrier).through()[0])  # type: ignore[arg-type]
    edited = att.edit(cut_edges=[(1, 2, 4)])
    difference = (expected[0] - expected[1]).numpy()
    assert edited.layers is not None
    np.testing.assert_allclose(edited.layers, difference, atol=1e-10)
    np.testing.assert_allclose(edited.scores, difference[0], atol=1e-10)
    assert edited.diagnostics[VALUE_AGAINST] == pytest.approx(expected[1][0].sum().item())
    assert edited.certificate is not None
    assert edited.certificate.converged
    assert gaflow.axioms(edited).ok


def test_both_flows_are_changed_alike_by_generators():
    att = attribution(signed=True)
    edges = [(1, 0, 1), (0, 2, 2)]
    edited = att.edit(cut_edges=iter(edges), cut_nodes=iter([(1, 3)]), skip_layers=iter([2]))  # type: ignore[arg-type]
    expected = att.edit(cut_edges=edges, cut_nodes=[(1, 3)], skip_layers=[2])
    np.testing.assert_array_equal(edited.scores, expected.scores)
    assert edited.diagnostics == expected.diagnostics


def test_the_scored_layer_stays():
    att = attribution().at_layer(2)
    edited = att.edit(cut_nodes=[(1, 3)])
    assert edited.layer == 2
    assert edited.layers is not None
    np.testing.assert_array_equal(edited.scores, edited.layers[2])
    assert edited.layers[1, 3] == 0


def test_words_become_the_tokens_of_the_text():
    att = attribution(read_positions=(3,))
    words = [word for word in att.words() if len(word.tokens) > 1]
    assert words, "some word has several tokens"
    edited = att.edit(groups="word")
    ordinary = [token for token, segment in zip(edited.tokens, edited.segments, strict=True) if segment == 0]
    assert [word.text for word in edited.words()] == [word.text for word in att.words()]
    assert len(ordinary) == len(att.words())
    assert [edited.tokens[0], edited.tokens[-1]] == [att.tokens[0], att.tokens[-1]]
    (position,) = edited.read_positions
    start, end = edited.offsets[position]
    token_start, token_end = att.offsets[3]
    assert start <= token_start < token_end <= end
    member = np.zeros((len(edited.tokens), len(att.tokens)))
    for row, (start, end) in enumerate(edited.offsets):
        for column, span in enumerate(att.offsets):
            if edited.segments[row] == 0 == att.segments[column] and start <= span[0] < span[1] <= end:
                member[row, column] = 1
    member[0, 0] = member[-1, -1] = 1
    capacity = random_attention(1, 3, len(att.tokens)).numpy()
    flow = gaflow.solve(member @ capacity @ member.T)
    np.testing.assert_allclose(edited.scores, flow.target[0], rtol=1e-9)


def test_sentences_become_the_tokens_of_the_text():
    att = attribution()
    edited = att.edit(groups="sentence")
    texts = [sentence.text for sentence in att.sentences()]
    assert len(texts) == 2
    assert list(edited.tokens[1:-1]) == texts
    assert [sentence.text for sentence in edited.sentences()] == texts
    assert gaflow.axioms(edited).ok


def test_an_edited_result_says_so_and_is_kept_in_files(tmp_path):
    edited = attribution(signed=True).edit(cut_edges=[(0, 0, 0)], skip_layers=[1], epsilon=0.01)
    assert "edited" in edited.diagnostics
    for name in ("edited.safetensors", "edited.json"):
        edited.save(tmp_path / name)
        assert gaflow.load(tmp_path / name) == edited


@pytest.mark.parametrize("name", ["kept.safetensors", "kept.json"])
@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
def test_a_stored_flow_is_solved_again_under_its_barrier(tmp_path, name, barrier):
    att = attribution(barrier=barrier)
    att.save(tmp_path / name)
    loaded = gaflow.load(tmp_path / name)
    expected = att.edit(epsilon=0.1, cut_edges=[(1, 1, 1)])
    np.testing.assert_allclose(loaded.edit(epsilon=0.1, cut_edges=[(1, 1, 1)]).scores, expected.scores, rtol=1e-9)


def test_a_flow_from_a_file_without_settings_needs_its_barrier(tmp_path):
    att = replace(attribution(), origin={})
    att.save(tmp_path / "old.json")
    loaded = gaflow.load(tmp_path / "old.json")
    with pytest.raises(ArgumentError, match="barrier"):
        loaded.edit(epsilon=0.1)
    np.testing.assert_allclose(loaded.edit(barrier="uniform").scores, att.scores, rtol=1e-9)


@pytest.mark.parametrize("groups", [[[0, 1]], "letter"])
def test_groups_that_are_no_text_are_refused(groups):
    with pytest.raises(ArgumentError) as error:
        attribution().edit(groups=groups)
    assert error.value.argument == "groups"


def test_scores_without_a_flow_cannot_be_edited():
    with pytest.raises(GaflowError, match="keep_flow"):
        attributions.make(TEXT, flow=False).edit()


def test_an_explanation_of_a_model_is_what_its_method_would_solve():
    """The barrier and the terminals of the default method are kept, for both of its flows."""
    att = gaflow.explain("not a good film, but a fast one.")
    assert att.flow is not None
    again = att.edit()
    np.testing.assert_allclose(again.scores, att.scores, atol=1e-9 * abs(att.scores).max())
    assert again.flow is not None
    torch.testing.assert_close(again.flow.mu, att.flow.mu, rtol=1e-9, atol=0)
