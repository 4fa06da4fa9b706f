import numpy as np
import pytest

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.faithfulness import evaluate
from tests.support.models import SENTENCE

TEXTS = [SENTENCE, "good", "a bad film", "the dog and the film", "don't stop"]
LABELS = [0, 1, 2, "positive", 1]


def test_an_evaluation_comes_back_from_disk_as_it_was(explainer, tmp_path):
    found = evaluate(explainer, TEXTS, LABELS, ["cat"], bounds=Bounds(longest=5))
    found.save(tmp_path / "there")
    again = type(found).load(tmp_path / "there")
    for name in ("sizes", "target", "base", "base_prediction", "masked", "prediction", "gold", "bounds"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.table().equals(found.table())
    assert again.manifest == found.manifest
    assert again.timings == found.timings
    assert repr(again) == repr(found)


def test_what_is_no_evaluation_is_refused(explainer, tmp_path):
    from gaflow.errors import GaflowError

    with pytest.raises(FileNotFoundError, match="evaluation"):
        type(evaluate(explainer, TEXTS[1:2], methods=[])).load(tmp_path)
    found = evaluate(explainer, TEXTS[1:3], methods=[])
    found.save(tmp_path)
    (tmp_path / "values.parquet").write_bytes(b"no table")
    with pytest.raises(GaflowError, match="damaged"):
        type(found).load(tmp_path)
    found.save(tmp_path)
    about = (tmp_path / "evaluation.json").read_text()
    (tmp_path / "evaluation.json").write_text(about.replace('"random"', '"other"'))
    with pytest.raises(GaflowError, match="method"):
        type(found).load(tmp_path)
    (tmp_path / "evaluation.json").write_text(about.replace('"format": 1', '"format": 2'))
    with pytest.raises(GaflowError, match="format"):
        type(found).load(tmp_path)


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

    for methods, place in ((["cat"], "one"), (["rawatt"], "two")):
        evaluate(explainer, TEXTS[:2], methods=methods, soft=True).save(tmp_path / place)
    (tmp_path / "two" / "soft.parquet").replace(tmp_path / "one" / "soft.parquet")
    with pytest.raises(GaflowError, match=r"method of soft\.parquet"):
        type(evaluate(explainer, TEXTS[:1], methods=[])).load(tmp_path / "one")
    with pytest.raises(GaflowError, match="damaged"):
        type(evaluate(explainer, TEXTS[:1], methods=[])).load(tmp_path / "two")
