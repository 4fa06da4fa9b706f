"""Words and sentences as rows: which rows there are, and the flow between them against `att.edit`."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import gaflow
from gaflow.view.flow_units import MOST_ROWS, Units, added_up, flows_between
from tests.support.pictures import in_sentences, text_of
from tests.support.task_models import picture, viewer

TEXT = in_sentences(text_of(120, layers=3), length=5)
EVEN = np.ones(120)


def units_of(att, weights=EVEN, kind=None):
    units = Units.of(att, weights, kind)
    assert units is not None
    return units


def test_short_texts_have_no_units_unless_they_are_asked_for():
    short = text_of(64)
    assert Units.of(short, np.ones(64)) is None
    words = units_of(short, np.ones(64), "word")
    assert (words.kind, len(words.members)) == ("word", 64)


def test_a_long_text_has_sentences_and_one_without_them_words():
    assert units_of(TEXT).kind == "sentence"
    assert units_of(text_of(120)).kind == "word"
    few_words = in_sentences(text_of(70), length=5)
    long_words = replace(few_words, text=few_words.text.replace(" ", "-"))  # words of many tokens
    assert units_of(long_words, np.ones(70)).kind == "word"


@pytest.mark.parametrize(("att", "kind"), [(TEXT, "sentence"), (TEXT, "word"), (text_of(120), "word")])
def test_every_token_is_in_one_row_in_order_and_rows_are_few(att, kind):
    units = units_of(att, np.random.default_rng(0).random(120), kind)
    assert len(units.rows) <= MOST_ROWS
    assert [token for group in units.groups for token in group] == list(range(120))
    assert [unit for row in units.rows for unit in row] == list(range(len(units.members)))


def test_the_heaviest_units_have_rows_of_their_own_and_special_tokens_join_no_text():
    weights = np.ones(120)
    heavy = [7, 40, 41, 42, 90]
    weights[heavy] = 50
    units = units_of(text_of(120), weights)
    for token in (0, 119):
        assert (token,) in units.groups
    joined = [token for group in units.groups if len(group) > 1 for token in group]
    assert not set(joined) & set(heavy)


def test_opening_replaces_a_row_by_its_units_and_a_unit_by_its_tokens():
    units = units_of(TEXT, np.random.default_rng(0).random(120), "word")
    row = next(index for index, row_units in enumerate(units.rows) if len(row_units) > 1)
    opened = units.opened_row(row)
    assert len(opened) == len(units.rows) - 1 + len(units.rows[row])
    sentences = units_of(TEXT)
    unit = next(index for index, tokens in enumerate(sentences.members) if len(tokens) > 1)
    by_token = sentences.opened_unit(unit)
    for token in sentences.members[unit]:
        assert (token,) in by_token
    for groups in (opened, by_token):
        assert [token for group in groups for token in group] == list(range(120))


@pytest.mark.parametrize("barrier", ["uniform", "capacity"])
@pytest.mark.parametrize("terminal", [None, "tokens", "adjacent", 40.0])
def test_networks_of_different_sizes_are_solved_together_as_by_themselves(barrier, terminal):
    noise = torch.randn(3, 30, 30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    flow = gaflow.solve((3 * noise).softmax(-1), barrier=barrier, terminal=terminal, epsilon=1e-3)
    groupings = [
        [tuple(range(k, k + 5)) for k in range(0, 30, 5)],
        [(token,) for token in range(30)],
        [(0,), tuple(range(1, 29)), (29,)],
    ]
    for groups, row_flow in zip(groupings, flows_between(flow, groupings), strict=True):
        expected = gaflow.edit(flow, groups=groups)
        assert row_flow.solved
        np.testing.assert_allclose(row_flow.graph.edges, expected.edges[0], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(row_flow.graph.ends[0], expected.target[0], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(row_flow.graph.through, expected.through()[0], rtol=1e-6, atol=1e-9)
        assert row_flow.certificate.converged
        assert row_flow.certificate.edges == expected.certificate[0].edges


def test_without_capacities_the_flow_between_tokens_is_added_up():
    assert TEXT.flow is not None
    groups = units_of(TEXT).groups
    (row_flow,) = flows_between(replace(TEXT.flow, capacity=None), [groups])
    assert not row_flow.solved
    graph = row_flow.graph
    np.testing.assert_allclose(graph.through[1:], graph.edges.sum(-1), rtol=1e-9)
    np.testing.assert_allclose(graph.through[:-1], graph.edges.sum(-2), rtol=1e-9)
    np.testing.assert_allclose(graph.ends[0], added_up(TEXT.scores, groups), rtol=1e-9)
    first, second = groups[1], groups[2]
    expected = TEXT.flow.edges[0, 1][list(first)][:, list(second)].sum()
    assert graph.edges[1, 1, 2] == pytest.approx(expected.item())


def test_pictures_have_no_units():
    att = gaflow.Explainer(*viewer())(picture())
    weights = np.ones(len(att.tokens))
    assert Units.of(att, weights, "word") is None
    many = replace(TEXT, media=att.media)
    assert Units.of(many, EVEN) is None
