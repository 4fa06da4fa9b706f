import numpy as np
import pytest

import gaflow
from benchmarks import aopc_cost
from benchmarks.deadline import Deadline
from gaflow.methods import METHODS, IntegratedGradients, Lime
from tests.support.models import bert

pytest.importorskip("matplotlib")


def test_a_backward_pass_costs_two_forward_ones():
    assert aopc_cost.cost(METHODS["attnlrp"]) == 3
    assert aopc_cost.cost(IntegratedGradients(steps=10)) == 12 + 20
    assert aopc_cost.cost(Lime(samples=70)) == 70


def test_every_setting_is_a_point_of_its_curve(monkeypatch, tmp_path):
    pytest.importorskip("captum")
    efforts = {"ig": [IntegratedGradients(steps=1), IntegratedGradients(steps=3)], "attnlrp": [METHODS["attnlrp"]]}
    monkeypatch.setattr(aopc_cost, "efforts", lambda: efforts)
    explainer = gaflow.Explainer(*bert())
    texts = ["this dog is not bad", "a good film"]
    store = aopc_cost.ScoreStore(explainer, texts, tmp_path / "kept")
    scores, points = aopc_cost.explain(store, list(efforts), Deadline())
    points = aopc_cost.measure(explainer, texts, scores, points)
    assert [(point["curve"], point["cost"]) for point in points] == [
        ("ig", 5),
        ("ig", 11),
        ("attnlrp", 3),
        ("random", 0),
    ]
    scores = [attribution.scores for attribution in explainer(texts, "attnlrp")]
    expected = []
    for replacement in ("pad", "mask", "delete"):
        expected.append(
            gaflow.evaluate(explainer, texts, scores={"a": scores}, replacement=replacement).per_text("aopc")[0]
        )
    np.testing.assert_allclose(points[2]["aopc"], np.mean(expected, axis=0), atol=1e-6)
    assert len(aopc_cost.table(points)) == 2 + 4
    assert "s/text" in aopc_cost.table(points)[0]
    assert "s/text" not in aopc_cost.table(points, shared=True)[0]
    aopc_cost.figure(points).savefig(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").stat().st_size > 1000


def test_scores_are_kept_and_what_there_was_no_time_for_is_named(monkeypatch, tmp_path):
    efforts = {"attnlrp": [METHODS["attnlrp"]], "agf": [METHODS["agf"]]}
    monkeypatch.setattr(aopc_cost, "efforts", lambda: efforts)
    store = aopc_cost.ScoreStore(gaflow.Explainer(*bert()), ["this dog is not bad", "a good film"], tmp_path / "kept")
    first, _ = aopc_cost.explain(store, ["attnlrp"], Deadline())
    late = Deadline(seconds=0)
    scores, points = aopc_cost.explain(store, ["attnlrp", "agf"], late)
    assert [point["curve"] for point in points] == ["attnlrp"]
    assert late.left_out == ["agf, 3 passes"]
    for values, again in zip(first["attnlrp, 3 passes"], scores["attnlrp, 3 passes"], strict=True):
        np.testing.assert_array_equal(values, again)
    other = aopc_cost.ScoreStore(store.explainer, ["a good film"], store.folder)
    _, points = aopc_cost.explain(other, ["attnlrp"], Deadline(seconds=0))
    assert not points  # of other texts
