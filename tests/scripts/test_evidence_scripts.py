"""Normalized AOPC, counterfactual pairs, stability, and edges of routes and cuts, as the scripts report them."""

import numpy as np
import pytest

import gaflow
from benchmarks import edge_faithfulness, normalized_aopc, robustness
from benchmarks.deadline import Deadline, missing_lines
from gaflow.evaluation import Bounds, CounterfactualPair, Stability, edge_sets, stability
from tests.support.models import bert

pytest.importorskip("pandas")
TEXTS = ["this dog is not bad", "a good film and a cute dog"]


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer(*bert())


def test_methods_are_sorted_by_their_lowest_normalized_aopc(explainer):
    evaluations = gaflow.evaluate(
        explainer, TEXTS, methods=["attnlrp", "agf"], replacement=["pad", "mask"], eraser=False, bounds=Bounds(exact=8)
    )
    table = normalized_aopc.normalized_table(evaluations)
    lowest = {}
    for line in table[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        lowest[cells[0]] = min(float(cell.split(" ±")[0]) for cell in cells[1:3])
    assert list(lowest.values()) == sorted(lowest.values(), reverse=True)
    for method, value in lowest.items():
        row = evaluations["pad"].methods.index(method)
        means = [evaluation.per_text("normalized_aopc")[row].mean() for evaluation in evaluations.values()]
        assert value == pytest.approx(min(means), abs=6e-4)


def test_a_beam_that_holds_all_sets_misses_nothing(explainer):
    sentence = normalized_aopc.missed_by_beam(explainer, TEXTS, beam=100, exact=8)
    assert "by 0.0000 on average, and by 0.0000 at most" in sentence
    assert "No text" in normalized_aopc.missed_by_beam(explainer, TEXTS, beam=5, exact=3)


def test_no_more_pairs_than_asked_for_and_only_those_that_change_the_prediction(explainer, monkeypatch):
    pairs = [CounterfactualPair.of("a film", "a film .")]
    for word, other in (("although", "dog"), ("although", "is"), ("although", "it"), ("although", "smart")):
        pairs.append(CounterfactualPair.of(f"{word} film {word}", f"{other} film {word}"))
        pairs.append(CounterfactualPair.of(f"{word} film {other}", f"{other} film {other}"))
    monkeypatch.setattr(robustness, "counterfactual_pairs", lambda texts: pairs)
    monkeypatch.setattr(robustness, "_PAIRS_AT_ONCE", 2)
    predicted = {}
    for pair in pairs:
        predicted[pair.text] = explainer(pair.text, "random").prediction
        predicted[pair.edited] = explainer(pair.edited, "random").prediction
    changing = [pair for pair in pairs if predicted[pair.text] != predicted[pair.edited]]
    rows, tried = robustness.deciding_rows(explainer, ["any"], 100)
    assert [row.text for row in rows] == [text for pair in changing for text in (pair.text, pair.edited)]
    assert tried == len(pairs)
    assert 1 < len(changing) < len(pairs)
    rows, tried = robustness.deciding_rows(explainer, ["any"], 1)
    assert {row.text for row in rows} == {changing[0].text, changing[0].edited}
    assert tried == pairs.index(changing[1])


def test_methods_that_there_was_no_time_for_are_left_out_of_stability(explainer):
    together = stability(explainer, TEXTS, ["attnlrp", "rawatt"], precisions=robustness.PRECISIONS)
    one_by_one, failed = robustness.stability_by_method(explainer, TEXTS, ["attnlrp", "rawatt"], 16, Deadline())
    assert not failed
    assert one_by_one is not None
    assert one_by_one.methods == together.methods
    assert one_by_one.changes == together.changes
    np.testing.assert_allclose(one_by_one.correlation, together.correlation)
    late = Deadline(seconds=0)
    assert robustness.stability_by_method(explainer, TEXTS, ["attnlrp"], 16, late) == (None, {})
    assert "attnlrp" in missing_lines(late.left_out)[0]
    assert missing_lines([], {}) == []


def test_the_method_with_the_highest_lowest_correlation_comes_first():
    correlation = np.array([[[1.0, 0.9], [0.2, 0.4]], [[0.8, 0.8], [0.7, np.nan]]])
    result = Stability(
        methods=("a", "b"), changes=("spaces", "case"), correlation=correlation, probability=np.zeros((2, 2))
    )
    lines = robustness.stability_lines(result)
    table = [line for line in lines if line.startswith("|")]
    assert table[0] == "| method | spaces (2 texts) | case (2 texts) |"
    assert [line.split(" | ")[0] for line in table[2:]] == ["| b", "| a"]


def test_sets_are_compared_with_their_own_capacities_on_the_same_texts(explainer):
    scores = edge_faithfulness.rankings(explainer, TEXTS)
    sets = edge_faithfulness.named_sets(scores)
    compared = {name: scores[name] for name in edge_faithfulness.SET_OPPONENTS}
    result = edge_sets(explainer, TEXTS, sets, compared, "zero")
    lines = edge_faithfulness.difference_table(result)
    assert len(lines) == 2 + 3 * len(sets)
    line = next(line for line in lines if line.startswith("| agf: 20 widest routes | agf: capacities |"))
    values = result.per_text("comprehensiveness")[result.sets.index("agf: 20 widest routes")]
    difference = values[0] - values[result.rankings.index("agf: capacities")]
    assert f"{np.nanmean(difference):+.3f} ±" in line
