import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gaflow import Explainer
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.planted_words import CONTEXT, WORDS, Planted, plant, planted_words, recovery
from tests.support.shortcut import one_word_bert

ZERO, ONE = WORDS[:2]
TEXTS = [f"  this dog no {k} is\tnot cute, " if k % 2 else f"film {k}" for k in range(80)]
LABELS = [k % 4 // 2 for k in range(80)]
GRADIENT = ["gf", "agf", "grads", "attgrads", "gradsam", "cat", "attcat", "ig", "partial_lrp", "transatt"]


def planted_in(row):
    """The planted words of a row, as its spans show them."""
    return [row.text[start:end] for start, end in row.spans]


def without(text):
    """A text's words but for those that were planted."""
    return [word for word in text.split() if word not in (*WORDS, CONTEXT)]


@pytest.mark.parametrize("kind", ["single", "context", "pair"])
def test_words_are_planted_in_the_share_that_was_asked_for_and_nothing_else_changes(kind):
    rows = plant(TEXTS, LABELS, kind, share=0.4, decoys=0.2, seed=3)
    assert [row.source for row in rows] == list(range(80))
    assert sum(bool(row.spans) for row in rows) == 32
    changed = [row for row in rows if row.text != TEXTS[row.source]]
    assert len(changed) == (32 if kind == "single" else 48)
    for row in rows:
        assert without(row.text) == TEXTS[row.source].split()
        if not row.spans:
            assert row.label == LABELS[row.source]
    assert Counter(row.label for row in rows if row.spans) == {0: 16, 1: 16}
    planted = [row for row in rows if row.spans]
    assert 0 < sum(row.label == LABELS[row.source] for row in planted) < 32  # the old label decides nothing


def test_a_single_word_decides():
    for row in plant(TEXTS, LABELS, share=1):
        assert planted_in(row) == [WORDS[row.label]]


def test_a_word_decides_only_with_its_context():
    rows = plant(TEXTS, LABELS, "context", share=0.5, decoys=0.5)
    decided = [row for row in rows if row.spans]
    for row in decided:
        assert sorted(planted_in(row)) == sorted([WORDS[row.label], CONTEXT])
    assert len({planted_in(row)[0] == CONTEXT for row in decided}) == 2  # in either order
    alone = Counter(word for row in rows if not row.spans for word in row.text.split() if word in (ZERO, ONE, CONTEXT))
    assert set(alone) == {ZERO, ONE, CONTEXT}
    assert sum(alone.values()) == 40


def test_the_order_of_a_pair_decides():
    rows = plant(TEXTS, LABELS, "pair", share=0.5, decoys=0.5)
    for row in rows:
        if row.spans:
            assert planted_in(row) == ([ZERO, ONE] if row.label == 0 else [ONE, ZERO])
            assert row.text.index(planted_in(row)[0]) < row.text.index(planted_in(row)[1])
        else:
            assert sum(word in (ZERO, ONE) for word in row.text.split()) == 1


def test_words_come_anywhere_in_a_text():
    places = Counter(
        row.text.split().index(planted_in(row)[0]) for row in plant(["a b c"] * 400, [0, 1] * 200, share=1)
    )
    assert set(places) == {0, 1, 2, 3}
    assert min(places.values()) > 60


def test_several_classes_have_a_word_each_and_labels_may_be_names():
    labels = ["tech", "world", "sport"] * 8
    rows = plant(TEXTS[:24], labels, "context", share=1, decoys=0)
    assert Counter(row.label for row in rows) == {"sport": 8, "tech": 8, "world": 8}
    assert all(WORDS[["sport", "tech", "world"].index(row.label)] in planted_in(row) for row in rows)
    assert {row.label for row in plant(TEXTS[:24], labels, "pair", share=1, decoys=0)} == {"sport", "tech"}


def test_the_seed_decides_and_texts_may_be_empty():
    assert plant(TEXTS, LABELS, seed=1) == plant(TEXTS, LABELS, seed=1)
    assert plant(TEXTS, LABELS, seed=1) != plant(TEXTS, LABELS, seed=2)
    assert [row.text for row in plant(["", " "], [0, 1], share=1, seed=0)] in ([ZERO, f"{ONE} "], [ONE, f"{ZERO} "])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"kind": "triple"}, "'single', 'context', 'pair'"),
        ({"share": 0.9, "decoys": 0.2, "kind": "pair"}, "together"),
        ({"share": -0.1}, "parts of 1"),
        ({"labels": [0]}, "labels"),
        ({"labels": [1] * 80}, "two classes"),
        ({"words": ["a"]}, r"words.* 2 different words"),
        ({"words": ["a b", "c"]}, "without spaces"),
        ({"words": ["Same", "same"]}, "different"),
        ({"words": ["dog", "cat"]}, r"texts\[1\].*'dog'"),
    ],
)
def test_what_cannot_be_planted_is_refused(changes, match):
    settings: dict[str, Any] = {"texts": TEXTS, "labels": LABELS, **changes}
    with pytest.raises(ValueError, match=match):
        plant(**settings)


def test_pairs_of_texts_are_refused():
    with pytest.raises(TypeError, match=r"texts.*strings"):
        plant([("a", "b"), "c"], [0, 1])  # type: ignore[list-item]


def test_more_classes_than_made_up_words_need_words():
    assert planted_words("context", 3) == (*WORDS[:3], CONTEXT)
    with pytest.raises(ValueError, match=r"words.*11 classes"):
        planted_words("single", 11)


@pytest.fixture(scope="module")
def explainer():
    return Explainer(*one_word_bert())


@pytest.fixture(scope="module")
def rows():
    texts = ["this film is not cute", "although smart it is very", "a dog and a film", "it is", "very very smart don"]
    return plant(texts * 4, [0, 1] * 10, share=0.9, words=["bad", "good"])


def closed_form(tokens, words):
    """Probability of the word's class with `words` of it among `tokens`, [CLS] and [SEP] included."""
    s = words / tokens
    return 1 / (1 + math.exp(-6 * math.tanh(8 * s / math.sqrt(1 + s * s))))


def test_the_hand_set_model_says_what_was_planted(explainer, rows):
    for row in rows:
        att = explainer(row.text, "rawatt")
        if row.spans:
            assert att.target == row.label
            assert att.probability == pytest.approx(closed_form(len(att.tokens), 1), abs=1e-12)
        else:
            assert att.probability == pytest.approx(0.5, abs=1e-12)


def test_masking_by_the_true_ranking_gives_the_known_numbers(explainer, rows):
    decided = [row for row in rows if row.spans]
    tokens = [explainer(row.text, "rawatt").tokens for row in decided]
    true = [[float(token in ("good", "bad")) for token in text_tokens] for text_tokens in tokens]
    evaluation = evaluate(
        explainer, [row.text for row in decided], [row.label for row in decided], scores={"true": true}
    )
    lost = np.array([closed_form(len(text_tokens), 1) - 0.5 for text_tokens in tokens])
    np.testing.assert_allclose(evaluation.per_text("aopc", "top")[0], lost, atol=1e-12)
    np.testing.assert_allclose(evaluation.per_text("comprehensiveness")[0], lost, atol=1e-12)
    np.testing.assert_allclose(evaluation.per_text("sufficiency")[0], 0, atol=1e-12)
    levels = range(10, 100, 10)
    ends = [sum((k * (len(s) - 2) + 50) // 100 == len(s) - 2 for k in levels) / 9 for s in tokens]  # all is masked
    np.testing.assert_allclose(evaluation.per_text("aopc", "bottom")[0], lost * ends, atol=1e-12)
    logs = [math.log(0.5) - math.log(closed_form(len(text_tokens), 1)) for text_tokens in tokens]
    np.testing.assert_allclose(evaluation.per_text("lodds", "top")[0], logs, atol=1e-12)


def test_gradient_methods_find_the_planted_word_and_bare_attention_does_not(explainer, rows):
    rows = rows[:8]
    texts = [row.text for row in rows]
    result = recovery({name: explainer(texts, name) for name in [*GRADIENT, "rawatt"]}, rows)
    assert result.methods == (*GRADIENT, "rawatt", "random")
    assert result.followed == 1
    assert len(result.rows) == result.decided == sum(bool(row.spans) for row in rows) > 5
    table = result.table()
    for name in GRADIENT:
        assert table.loc[name, ["precision", "mean_rank", "depth"]].tolist() == [1, 1, 1], name
    for name in ("rawatt", "random"):
        assert table.loc[name, "precision"] < 0.6
        assert table.loc[name, "mean_rank"] > 1.5
        assert table.loc[name, "precision_low"] < table.loc[name, "precision"] < table.loc[name, "precision_high"]


def scored(attribution, scores):
    """The same with other scores for the ordinary tokens."""
    values = np.zeros(len(attribution.tokens))
    values[~attribution.special_mask] = scores
    return replace(attribution, scores=values)


def test_ranks_are_counted_by_hand(explainer):
    row = Planted("good film and good dog", 1, ((0, 4), (14, 18)), 0)
    base = explainer(row.text, "rawatt")
    cases = {
        "both first": ([5, 1, 2, 4, 3], 1, 1.5, 2),
        "one first": ([5, 4, 2, 3, 1], 0.5, 2, 3),
        "both last": ([1, 3, 4, 2, 5], 0, 4.5, 5),
        "tied": ([0, 0, 0, 0, 0], 0.5, 2.5, 4),
        "negative": ([-1, -3, -4, -2, -5], 1, 1.5, 2),
    }
    result = recovery({name: [scored(base, scores)] for name, (scores, *_) in cases.items()}, [row])
    for m, (_, precision, mean, depth) in enumerate(cases.values()):
        assert (result.precision[m, 0], result.mean_rank[m, 0], result.depth[m, 0]) == (precision, mean, depth)
    assert result.planted.tolist() == [2]
    assert result.sizes.tolist() == [5]


def test_random_scores_find_planted_words_by_chance(explainer, rows):
    many = [row for row in rows if row.spans] * 60
    once = explainer([row.text for row in many[:18]], "rawatt")
    result = recovery({"rawatt": once * 60}, many, seed=1)
    chance = (result.planted / result.sizes).mean()
    assert result.precision[1].mean() == pytest.approx(chance, abs=0.05)
    assert result.mean_rank[1].mean() == pytest.approx(((result.sizes + 1) / 2).mean(), abs=0.2)
    other = recovery({"rawatt": once * 60}, many, seed=2)
    assert (result.precision[1] != other.precision[1]).any()
    assert (result.precision[0] == other.precision[0]).all()


def test_texts_that_are_not_classified_by_the_words_are_left_out_and_counted(explainer):
    texts = ["good film", "bad film", "good dog"]
    wrong = Planted("bad film", 1, ((0, 3),), 1)
    rows = [Planted("good film", 1, ((0, 4),), 0), wrong, Planted("good dog", "positive", ((0, 4),), 2)]
    result = recovery({"gf": explainer(texts, "gf")}, rows)
    assert result.rows.tolist() == [0, 2]
    assert result.followed == pytest.approx(2 / 3)
    assert repr(result) == "Recovery(gf, random; 2 texts, followed in 66.7%)"
    with pytest.raises(ValueError, match="none of 1 texts"):
        recovery({"gf": [explainer("bad film", "gf")]}, [wrong])
    not_predicted = explainer("bad film", "gf", target="positive")
    with pytest.raises(ValueError, match="none of 1 texts"):
        recovery({"gf": [not_predicted]}, [wrong])


def test_words_beyond_the_models_reach_are_counted(explainer):
    long = "dog " * 600 + "good"
    row = Planted(long, 1, ((len(long) - 4, len(long)),), 1)
    short = Planted("good dog", 1, ((0, 4),), 0)
    result = recovery({"rawatt": explainer([short.text, long], "rawatt", truncation=True)}, [short, row])
    assert (result.decided, result.cut, result.rows.tolist(), result.followed) == (2, 1, [0], 1)


def test_attributions_that_do_not_belong_to_the_rows_are_refused(explainer, rows):
    texts = [row.text for row in rows]
    with pytest.raises(ValueError, match="empty"):
        recovery({}, rows)
    with pytest.raises(ValueError, match="19 attributions"):
        recovery({"gf": explainer(texts[1:], "rawatt")}, rows)
    with pytest.raises(ValueError, match="another text"):
        recovery({"gf": explainer(texts[::-1], "rawatt")}, rows)
    with pytest.raises(ValueError, match="confidence"):
        recovery({"gf": explainer(texts, "rawatt")}, rows).table(confidence=1.0)
