import json

import numpy as np
import pytest

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.faithfulness import evaluate
from tests.support.models import SENTENCE

TEXTS = [SENTENCE, "good", "a bad film", "the dog and the film", "don't stop"]
LABELS = [0, 1, 2, "positive", 1]


def test_an_evaluation_comes_back_from_disk_as_it_was(explainer, tmp_path):
    evaluation = evaluate(explainer, TEXTS, LABELS, ["cat"], bounds=Bounds(longest=5))
    evaluation.save(tmp_path / "there")
    again = type(evaluation).load(tmp_path / "there")
    for name in ("sizes", "target", "base", "base_prediction", "masked", "prediction", "gold", "bounds"):
        np.testing.assert_array_equal(getattr(again, name), getattr(evaluation, name))
    assert again.table().equals(evaluation.table())
    assert again.manifest == evaluation.manifest
    assert again.timings == evaluation.timings
    assert repr(again) == repr(evaluation)


def test_what_is_no_evaluation_is_refused(explainer, tmp_path):
    from gaflow.errors import GaflowError

    with pytest.raises(FileNotFoundError, match="evaluation"):
        type(evaluate(explainer, TEXTS[1:2], methods=[])).load(tmp_path)
    evaluation = evaluate(explainer, TEXTS[1:3], methods=[])
    evaluation.save(tmp_path)
    (tmp_path / "values.parquet").write_bytes(b"no table")
    with pytest.raises(GaflowError, match="damaged"):
        type(evaluation).load(tmp_path)
    evaluation.save(tmp_path)
    manifest = (tmp_path / "evaluation.json").read_text()
    (tmp_path / "evaluation.json").write_text(manifest.replace('"random"', '"other"'))
    with pytest.raises(GaflowError, match="method"):
        type(evaluation).load(tmp_path)
    description = json.loads(manifest)
    for levels in ([10, 20], [20, 10, 30, 40, 50, 60, 70, 80, 90], [10, 20, 30, 40, 50, 60, 70, 80, 91]):
        (tmp_path / "evaluation.json").write_text(json.dumps({**description, "levels": levels}))
        with pytest.raises(GaflowError, match="levels"):
            type(evaluation).load(tmp_path)
    (tmp_path / "evaluation.json").write_text(manifest.replace('"format": 1', '"format": 2'))
    with pytest.raises(GaflowError, match="format"):
        type(evaluation).load(tmp_path)


def test_the_soft_measures_come_back_too_and_leave_nothing_behind(explainer, tmp_path):
    softly = evaluate(explainer, TEXTS, methods=["cat"], soft=True)
    plain = evaluate(explainer, TEXTS, methods=["cat"])
    softly.save(tmp_path)
    again = type(softly).load(tmp_path)
    np.testing.assert_array_equal(again.soft, softly.soft)
    np.testing.assert_array_equal(again.zero, softly.zero)
    assert again.table().equals(softly.table())
    assert again.manifest == softly.manifest
    plain.save(tmp_path)
    assert not (tmp_path / "soft.parquet").exists()
    assert type(plain).load(tmp_path).soft is None


def test_soft_measures_of_other_methods_are_refused(explainer, tmp_path):
    from gaflow.errors import GaflowError

    for methods, name in ((["cat"], "one"), (["rawatt"], "two")):
        evaluate(explainer, TEXTS[:2], methods=methods, soft=True).save(tmp_path / name)
    (tmp_path / "two" / "soft.parquet").replace(tmp_path / "one" / "soft.parquet")
    with pytest.raises(GaflowError, match=r"method of soft\.parquet"):
        type(evaluate(explainer, TEXTS[:1], methods=[])).load(tmp_path / "one")
    with pytest.raises(GaflowError, match="damaged"):
        type(evaluate(explainer, TEXTS[:1], methods=[])).load(tmp_path / "two")


@pytest.mark.parametrize("eraser", [True, False])
@pytest.mark.parametrize("order", ["top", "bottom", "both"])
@pytest.mark.parametrize("levels", [(10, 50), (70, 30)])
def test_whatever_was_evaluated_comes_back(explainer, tmp_path, order, levels, eraser):
    evaluation = evaluate(explainer, TEXTS[1:3], methods=[], order=order, levels=levels, eraser=eraser)
    evaluation.save(tmp_path)
    assert type(evaluation).load(tmp_path).conditions == evaluation.conditions
