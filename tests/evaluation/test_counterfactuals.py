import numpy as np
import pytest

import gaflow
from gaflow.errors import ArgumentError, GaflowError
from gaflow.evaluation import CounterfactualPair, counterfactual_pairs, counterfactual_rows, recovery


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


def test_a_pair_knows_the_words_that_differ():
    pair = CounterfactualPair.of("a good film , really", "a truly bad film , really")
    assert [pair.text[start:end] for start, end in pair.text_spans] == ["good"]
    assert [pair.edited[start:end] for start, end in pair.edited_spans] == ["truly", "bad"]
    left_out = CounterfactualPair.of("not a good film", "a good film")
    assert left_out.text_spans == ((0, 3),)
    assert left_out.edited_spans == ()


def test_rules_edit_one_word_at_a_time():
    pairs = counterfactual_pairs(["Not a GOOD film", "no edit here not", "nothing", "plain words"])
    assert [(pair.text, pair.edited) for pair in pairs] == [
        ("Not a GOOD film", "a GOOD film"),
        ("Not a GOOD film", "Not a bad film"),
        ("no edit here not", "edit here not"),
        ("no edit here not", "no edit here"),
    ]
    pairs = counterfactual_pairs(["a red film"], antonyms={"red": "blue"}, negations=[])
    assert [pair.edited for pair in pairs] == ["a blue film"]


def test_only_edits_that_change_the_prediction_count(explainer):
    pairs = [("a good film", "a bad film"), ("a good film", "a very good film"), ("it is not good", "it is good")]
    rows = counterfactual_rows(explainer, pairs)
    predicted = {text: explainer(text, "random").prediction for pair in pairs for text in pair}
    expected = []
    for source, (text, edited) in enumerate(pairs):
        if predicted[text] == predicted[edited]:
            continue
        pair = CounterfactualPair.of(text, edited)
        for side, spans in ((text, pair.text_spans), (edited, pair.edited_spans)):
            if spans:
                expected.append((side, predicted[side], spans, source))
    assert [(row.text, row.label, row.spans, row.source) for row in rows] == expected
    assert {row.source for row in rows} >= {0}
    assert 1 not in {row.source for row in rows}


def test_recovery_finds_the_rank_of_the_edited_words(explainer):
    rows = counterfactual_rows(explainer, [("a good film", "a bad film")])
    attributions = explainer([row.text for row in rows], "attcat")
    recovered = recovery({"attcat": attributions}, rows)
    assert recovered.followed == 1
    for column, attribution in enumerate(attributions):
        scores = attribution.scores[~attribution.special_mask]
        rank = 1 + int((scores > scores[1]).sum())
        assert recovered.mean_rank[0, column] == rank
    assert np.isfinite(recovered.precision).all()


def test_no_pairs_are_refused(explainer):
    with pytest.raises(ArgumentError) as error:
        counterfactual_rows(explainer, [])
    assert error.value.argument == "pairs"


@pytest.mark.parametrize("pair", [3, "ab", ("a",), ("a", 3), ("a", ""), CounterfactualPair("", "b", (), ((0, 1),))])
def test_what_is_no_pair_of_texts_is_named(explainer, pair):
    with pytest.raises(GaflowError) as error:
        counterfactual_rows(explainer, [("a good film", "a bad film"), pair])
    assert str(error.value.argument).startswith("pairs[1]") or "pairs[1]" in str(error.value)
