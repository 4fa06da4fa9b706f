import numpy as np
import pytest

import gaflow
from benchmarks import aopc_cost
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
    points = aopc_cost.measure(explainer, texts)
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
    aopc_cost.figure(points).savefig(tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").stat().st_size > 1000
