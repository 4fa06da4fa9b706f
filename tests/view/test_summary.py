"""What pages, figures and the terminal say about an attribution."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gaflow.view.shades import LEVELS
from gaflow.view.summary import named_attributions, of_same_text, shared_legend, summarize
from tests.support.attributions import make, scored
from tests.support.models import SENTENCE
from tests.support.terminal import CERTIFICATE


def test_the_headline_and_the_facts_say_what_was_explained():
    summary = summarize(make())
    assert summary.headline == "positive 87.5%"
    assert summary.facts() == ["predicted", "logit 1.946", "explained by agf", "10 tokens"]
    assert summary.facts(method=False) == ["predicted", "logit 1.946", "10 tokens"]
    assert summarize(make(probability=None)).headline == "positive"


def test_a_contrast_says_whose_probability_it_is_and_what_the_model_predicts():
    facts = summarize(make(prediction="negative", target=(1, 0), label="positive minus negative")).facts()
    predicted = summarize(make(prediction="negative", target=1, label="positive")).facts()
    assert facts[0] not in predicted
    assert facts[1].endswith(" 1.946")
    assert any(fact.endswith(" negative") for fact in facts)


def test_names_from_outside_stay_on_one_line_without_control_characters():
    summary = summarize(make(label="good\nbad\x1b", prediction="a\nb"), "c\nd")
    assert summary.headline == "good bad\\x1b 87.5%"
    assert {"explained by c d", "the model predicts a b"} <= set(summary.facts())
    assert "\n" not in summary.title


def test_every_flag_names_its_reason():
    assert summarize(make()).flags == []
    truncated = replace(make(truncated=True), certificate=CERTIFICATE)
    assert [flag.name for flag in summarize(truncated).flags] == ["truncated"]
    assert summarize(truncated).method_flags == []
    dead = replace(truncated, certificate=replace(CERTIFICATE, dead=True))
    assert [flag.name for flag in summarize(dead).flags] == ["truncated", "dead"]
    unfinished = make(diagnostics={"warning": "take more\nsteps"}, certificate=replace(CERTIFICATE, converged=False))
    flags = summarize(unfinished).flags
    assert [flag.name for flag in flags] == ["not converged", "warning"]
    assert flags[1].meaning == "take more steps"


def test_the_verdict_gives_the_errors_of_the_certificate():
    good = replace(CERTIFICATE, conservation=1.25e-16, dual=2e-15, centrality=3e-12, gap=4e-8)
    verdict = summarize(make(certificate=good)).verdict
    assert verdict is not None
    assert verdict.name == "certified"
    for part in ("solved to 3e-12", "13 steps"):
        assert part in verdict.text
    dropped = summarize(make(certificate=replace(good, negligible=3))).verdict
    assert dropped is not None
    assert "3 negligible" in dropped.text
    names = []
    for changes in ({"converged": False}, {"dead": True}):
        other = summarize(make(certificate=replace(good, **changes))).verdict
        assert other is not None
        names.append(other.name)
    assert names == ["not certified", "nothing to certify"]
    assert summarize(make(flow=False)).verdict is None


def test_the_share_of_special_tokens_counts_absolute_scores():
    summary = summarize(make("dog", scores=np.array([-2.0, 1, 1])))
    assert summary.special_share == 0.75
    assert "([CLS], [SEP])" in summary.special_note
    assert "75.0%" in summary.special_note
    assert summarize(make("dog", scores=np.array([0.0, 1, 0]))).special_note == ""
    assert summarize(make("dog", scores=np.zeros(3))).special_share is None


def test_diagnostics_are_written_for_readers():
    diagnostics = {"convergence_delta": -0.000123456, "baseline_output": 2.0, "replacement": "[PAD]", "warning": "odd"}
    summary = summarize(make(diagnostics=diagnostics))
    assert summary.diagnostics == [
        "convergence delta -0.0001235",
        "baseline output 2",
        "how tokens were removed: [PAD]",
    ]


def test_the_pieces_of_a_text_are_the_text():
    att = scored(SENTENCE)
    (passage,) = summarize(att).passages(unread=10)
    assert "".join(piece.text for piece in passage.pieces) == SENTENCE
    levels = [piece.level for piece in passage.pieces if piece.level is not None]
    assert len(levels) == len(att.pieces())
    assert max(abs(level) for level in levels) == LEVELS


def test_a_legend_names_the_largest_score_and_what_the_signs_mean():
    signed = summarize(make("is not", scores=np.array([9.0, 0.5, -0.25, 9]))).legend("blue and dashed")
    assert signed is not None
    assert (signed.low, signed.high) == ("-0.5000", "0.5000")
    assert "positive" in signed.words
    assert "blue and dashed" in signed.words
    assert signed.levels == range(-LEVELS, LEVELS + 1)
    plain = summarize(make("is not", scores=np.array([9.0, 0.5, 0.25, 9]))).legend("blue and dashed")
    assert plain is not None
    assert (plain.low, plain.levels) == ("0", range(LEVELS + 1))
    assert "blue" not in plain.words
    assert summarize(make("is not", scores=np.zeros(4))).legend("blue") is None


def test_one_legend_for_many_methods_calls_orange_a_vote_for_nothing():
    signed = summarize(make("is not", scores=np.array([9.0, 4, -2, 9])))
    plain = summarize(make("is not", scores=np.array([9.0, 4, 2, 9])))
    words = shared_legend([signed, plain], "blue dashes").words
    assert re.search("orange: above 0; blue dashes: below 0, .*positive", words)
    assert "blue" not in shared_legend([plain, plain], "blue dashes").words


def test_one_attribution_a_list_and_a_dict_are_named():
    att = make()
    assert named_attributions(att) == [("agf", att)]
    assert named_attributions(iter([att, att])) == [("agf", att), ("agf", att)]
    assert named_attributions({"a": att}) == [("a", att)]


def test_nothing_other_things_and_other_texts_are_refused():
    for nothing in ([], {}):
        with pytest.raises(ValueError, match="attributions is empty"):
            named_attributions(nothing)
    for wrong in ("text", 7, [make(), None], {"a": "b"}):
        with pytest.raises(TypeError, match="attributions"):
            named_attributions(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="different texts"):
        of_same_text({"a": make(), "b": make("other")})
