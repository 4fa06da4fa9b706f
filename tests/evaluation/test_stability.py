import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from gaflow import Explainer
from gaflow.errors import ArgumentError
from gaflow.evaluation import stability
from gaflow.evaluation.stability import double_spaces, swap_case, swap_full_stop
from tests.support.models import bert

TEXTS = ["this dog is not bad and very cute.", "a good film", "dog"]


@pytest.fixture(scope="module")
def explainer():
    return Explainer(*bert())


def test_edits_change_nothing_that_matters():
    assert double_spaces("a b c") == "a  b  c"
    assert swap_case("a Bc") == "A BC"
    assert swap_case("ABC") == "abc"
    assert swap_full_stop("a film") == "a film."
    assert swap_full_stop("a film . ") == "a film"


def test_spaces_and_case_change_no_score_of_an_uncased_model(explainer):
    result = stability(explainer, TEXTS, ["cat", "rawatt"], edits=["spaces", "case"], precisions=[])
    assert result.changes == ("spaces", "case")
    assert result.correlation.shape == (2, 2, 3)
    np.testing.assert_allclose(result.correlation[:, :, :2], 1.0)
    assert np.isnan(result.correlation[:, :, 2]).all()  # one word has no order
    np.testing.assert_allclose(result.probability[:, :2], 0, atol=1e-6)


def test_correlations_are_those_of_the_words_that_both_texts_have(explainer):
    result = stability(explainer, TEXTS[:2], ["cat"], edits=["punctuation"], precisions=["bfloat16"])
    for index, text in enumerate(TEXTS[:2]):
        before = explainer(text, "cat")
        after = explainer(swap_full_stop(text), "cat")
        if before.prediction == after.prediction:
            scores = [word.score for word in before.words()]
            changed = [word.score for word in after.words()]
            common = min(len(scores), len(changed))
            expected, _ = np.asarray(spearmanr(scores[:common], changed[:common]))
            assert result.correlation[0, 0, index] == pytest.approx(expected)
        else:
            assert np.isnan(result.correlation[0, 0, index])
    table = result.table(resamples=10)
    values = result.correlation[0, 1]
    assert table.loc[("bfloat16", "cat"), "correlation"] == pytest.approx(np.nanmean(values))
    assert table.loc[("bfloat16", "cat"), "texts"] == np.isfinite(values).sum()


def test_the_model_stays_in_its_precision(explainer):
    stability(explainer, TEXTS[:1], ["cat"], edits=[], precisions=["float64", "bfloat16"])
    assert next(explainer.model.parameters()).dtype == torch.float32


def test_an_edit_of_one_s_own_may_change_everything(explainer):
    result = stability(explainer, TEXTS[:2], ["cat"], edits={"gone": lambda text: " "}, precisions=[])
    assert np.isnan(result.correlation).all()
    assert result.table(resamples=5).loc[("gone", "cat"), "texts"] == 0


@pytest.mark.parametrize(
    ("argument", "change"),
    [("edits", {"edits": ["colour"]}), ("precisions", {"precisions": ["int8"]}), ("texts", {"texts": []})],
)
def test_wrong_arguments_are_named(explainer, argument, change):
    settings = {"texts": TEXTS, "methods": ["cat"]} | change
    with pytest.raises(ArgumentError) as error:
        stability(explainer, **settings)
    assert error.value.argument == argument
