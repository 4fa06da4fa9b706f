from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gaflow.attribution.words import ALL_ZERO
from gaflow.errors import GaflowError
from gaflow.explainer.explainer import Explainer
from gaflow.methods import METHODS, Scores
from tests.support.models import SENTENCE, bert

SHORT = "a good film"


@dataclass(frozen=True)
class Gives:
    """A method that gives anything at all."""

    what: Any  # trace -> what the method returns
    name = "own"

    def __call__(self, trace):
        return self.what(trace)


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (lambda trace: None, TypeError, "'own'.*NoneType.*Scores"),
        (lambda trace: trace.mask.double(), TypeError, "Tensor.*Scores"),
        (lambda trace: Scores(np.ones(trace.mask.shape)), ValueError, "ndarray"),  # type: ignore[arg-type]
        (lambda trace: Scores(trace.mask.double()[0]), ValueError, r"float64 \(14,\); .* \(b, t\) = \(2, 14\)"),
        (lambda trace: Scores(trace.mask.double().T), ValueError, r"\(14, 2\)"),
        (lambda trace: Scores(trace.mask.cfloat()), ValueError, "complex64"),
        (
            lambda trace: Scores(trace.mask.double(), diagnostics=({},)),
            ValueError,
            "diagnostics.* 1 .* 2",
        ),
        (lambda trace: Scores(trace.mask / 0), GaflowError, "'own'.*finite"),
    ],
)
def test_a_method_of_ones_own_is_told_what_it_should_have_returned(what, error, message):
    with pytest.raises(error, match=message):
        Explainer(*bert())([SENTENCE, SHORT], Gives(what))


def test_scores_may_be_of_any_real_type_and_are_cut_to_the_text():
    long, short = Explainer(*bert())([SENTENCE, SHORT], Gives(lambda trace: Scores(trace.mask.long() + 1)))
    assert long.scores.tolist() == [2.0] * 14
    assert short.scores.tolist() == [2.0] * 5
    assert long.diagnostics == short.diagnostics == {}


def flat_head():
    """A model one of whose classes depends on nothing, and which predicts it."""
    model, tokenizer = bert()
    with torch.no_grad():
        model.classifier.weight[2] = 0
        model.classifier.bias[2] = 100
    return Explainer(model, tokenizer)


def test_an_output_that_depends_on_nothing_gives_zeros_and_says_so():
    names = [name for name, method in METHODS.items() if method.info.family != "perturbation"]
    attributions = flat_head().compare(SHORT, names)
    for name, att in attributions.items():
        warning = str(att.diagnostics.get("warning", ""))
        if name in ("af", "random"):  # which look at no class, and at no row
            assert att.scores.min() > 0
            assert warning == ""
        else:
            assert not att.scores.any()
            follows_relevance = name in ("partial_lrp", "transatt")
            assert warning.startswith("0 of the relevance 1 " if follows_relevance else ALL_ZERO)


def test_only_the_text_without_a_score_is_warned_of():
    explainer = flat_head()
    one, other = explainer([SHORT, SENTENCE], "rawatt", target=[2, 1])
    assert ALL_ZERO in str(one.diagnostics["warning"])
    assert other.diagnostics == {}
    assert other.scores.sum() == pytest.approx(1)


def test_zeros_of_a_method_alone_are_told_apart_from_an_output_that_depends_on_nothing():
    att = Explainer(*bert())(SHORT, Gives(lambda trace: Scores(torch.zeros(trace.mask.shape))))
    assert list(att.diagnostics) == ["warning"]
    flat = flat_head()(SHORT, "rawatt", target=2).diagnostics["warning"]
    assert str(att.diagnostics["warning"]).split(":")[0] == str(flat).split(":")[0]
    assert att.diagnostics["warning"] != flat


def test_a_warning_of_the_methods_own_stays():
    def give(trace):
        return Scores(torch.zeros(trace.mask.shape), diagnostics=({"warning": "beware", "depth": 2.0},))

    assert Explainer(*bert())(SHORT, Gives(give)).diagnostics == {"warning": "beware", "depth": 2.0}


def test_every_method_of_the_table_passes_the_checks():
    attributions = Explainer(*bert()).compare(SHORT)
    assert list(attributions) == list(METHODS)
    assert all(att.scores.any() and "warning" not in att.diagnostics for att in attributions.values())


@pytest.mark.parametrize(
    ("text", "warned"), [("xz zx xx", True), ("xz dog xx", True), ("xz dog", False), ("the dog", False)]
)
def test_a_text_that_is_mostly_unknown_to_the_tokenizer_is_warned_of(text, warned):
    att = Explainer(*bert())(text, "agf")
    unknown = att.tokens.count("[UNK]")
    assert (f"{unknown} of" in str(att.diagnostics.get("warning", ""))) == warned


@pytest.mark.parametrize(
    ("pair", "texts"),
    [
        (("the dog is smart and cute", "xz zx"), ["second text: 2 of 2"]),
        (("xz", "the dog is smart"), ["first text: 1 of 1"]),
        (("xz zx dog", "xx"), ["first text: 2 of 3", "second text: 1 of 1"]),
        (("xz dog", "the dog"), []),
    ],
)
def test_an_unknown_text_of_a_pair_is_warned_of_whatever_the_other_is(pair, texts):
    warning = str(Explainer(*bert())(pair, "agf").diagnostics.get("warning", ""))
    assert warning.count("unknown to the tokenizer") == len(texts)
    for text in texts:
        assert text in warning


def test_each_text_has_the_potentials_of_its_own_tokens():
    explainer = Explainer(*bert())
    texts = [SENTENCE, "a dog"]
    together = explainer(texts, method="agf", batch_size=2)
    for text, att in zip(texts, together, strict=True):
        alone = explainer(text, method="agf").flow
        assert att.flow is not None
        assert att.flow.potentials is not None
        assert alone is not None
        assert alone.potentials is not None
        layers = len(att.flow.edges[0])
        assert att.flow.potentials.nodes.shape == (1, layers + 1, len(att.tokens))
        torch.testing.assert_close(att.flow.potentials.nodes, alone.potentials.nodes, rtol=0, atol=1e-5)
