import numpy as np
import pytest

from gaflow import Explainer
from gaflow.evaluation import Evaluation, Evaluations
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.ranking import rank_methods
from gaflow.methods import METHODS as METHODS_BY_NAME
from tests.support.evaluated import LABELS, METHODS, TEXTS
from tests.support.models import bert

REPLACEMENTS = ["pad", "mask", "delete"]


@pytest.fixture(scope="module")
def explainer():
    return Explainer(*bert())


@pytest.fixture(scope="module")
def several(explainer):
    return evaluate(explainer, TEXTS, LABELS, METHODS, replacement=REPLACEMENTS)


def test_each_replacement_is_evaluated_as_if_alone(explainer, several):
    assert list(several) == REPLACEMENTS
    for name, evaluation in several.items():
        alone = evaluate(explainer, TEXTS, LABELS, METHODS, replacement=name)
        np.testing.assert_array_equal(evaluation.masked, alone.masked)
        np.testing.assert_array_equal(evaluation.prediction, alone.prediction)
        assert evaluation.manifest["replacement"] == name


def test_texts_are_explained_once(explainer):
    calls = []

    class Counting:
        name = "counting"

        def __call__(self, trace):
            scores = METHODS_BY_NAME["rawatt"](trace)
            calls.append(len(scores.values))
            return scores

    evaluate(explainer, TEXTS, methods=[Counting()], replacement=REPLACEMENTS)
    assert sum(calls) == len(TEXTS)


def test_tables_of_all_replacements_are_below_each_other(several):
    table = several.table()
    for name, evaluation in several.items():
        single = evaluation.table().drop(columns="replacement")
        assert table.loc[name].equals(single)
    curves = several.curves(resamples=5)
    assert list(dict.fromkeys(curves["replacement"])) == REPLACEMENTS
    tests = several.significance("cat", resamples=5, permutations=10)
    assert len(tests) == 3 * len(several["pad"].significance("cat", resamples=5, permutations=10))


def test_methods_are_ranked_over_all_replacements(several):
    ranking = several.ranking(resamples=10)
    expected = rank_methods(dict(several), resamples=10)
    assert ranking.methods == expected.methods
    assert ranking.replacements == tuple(REPLACEMENTS)
    assert several["pad"].ranking(resamples=10).replacements == ("pad",)


def test_all_are_saved_and_loaded(several, tmp_path):
    several.save(tmp_path / "all")
    loaded = Evaluations.load(tmp_path / "all")
    assert set(loaded) == set(REPLACEMENTS)
    np.testing.assert_array_equal(loaded["delete"].masked, several["delete"].masked)
    assert isinstance(Evaluation.load(tmp_path / "all" / "mask"), Evaluation)
    with pytest.raises(ValueError, match="folder"):
        Evaluations.load(tmp_path)


def test_progress_counts_methods_and_replacements(explainer):
    reports = []
    evaluate(
        explainer,
        TEXTS,
        methods=["cat"],
        replacement=["pad", "mask"],
        progress=lambda done, total: reports.append((done, total)),
    )
    assert {total for _, total in reports} == {3 * len(TEXTS)}
    done = [done for done, _ in reports]
    assert done == sorted(done)
    assert done[-1] == 3 * len(TEXTS)


@pytest.mark.parametrize("replacement", [[], ["pad", "pad"], ["pad", "nothing"], np.array([]), (np.array([]), None)])
def test_wrong_lists_are_named(explainer, replacement):
    with pytest.raises(ValueError, match="replacement"):
        evaluate(explainer, TEXTS, methods=["cat"], replacement=replacement)
    several = evaluate(explainer, TEXTS[:1], methods=["cat"], replacement=["pad"])
    with pytest.raises(KeyError):
        several["mask"]
