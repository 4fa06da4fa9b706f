import numpy as np
import pytest

from gaflow import Explainer
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.masking import at_most
from gaflow.evaluation.units import find_units, first_of_unit, sum_by_unit
from gaflow.inputs.encoding import encode
from gaflow.methods.text_random import token_generator
from tests.support.models import bert, roberta

TEXTS = ["the dog isn't unbelievably smart", "a good film", "unbelievable"]


@pytest.mark.parametrize("family", [bert, roberta], ids=lambda family: family.__name__)
def test_words_are_those_of_the_attribution(family):
    model, tokenizer = family()
    explainer = Explainer(model, tokenizer)
    for encoding, text in zip(encode(tokenizer, TEXTS), TEXTS, strict=True):
        attribution = explainer(text, "cat")
        positions, units = find_units(encoding, "word")
        assert positions.tolist() == np.flatnonzero(~attribution.special_mask).tolist()
        sums = sum_by_unit(attribution.scores[positions], units)
        np.testing.assert_allclose(sums, [word.score for word in attribution.words()], atol=1e-6)
        for number, word in enumerate(attribution.words()):
            assert tuple(positions[units == number]) == word.tokens


def test_a_word_with_a_token_that_stays_is_never_masked():
    _, tokenizer = bert()
    (encoding,) = encode(tokenizer, TEXTS[:1])
    words = find_units(encoding, "word")
    positions, units = words
    several = next(number for number in range(units.max() + 1) if (units == number).sum() > 1)
    inside = positions[units == several]
    others, other_units = find_units(encoding, "word", never_masked=[int(inside[-1])])
    assert not set(inside.tolist()) & set(others.tolist())
    assert len(others) == len(positions) - len(inside)
    assert sorted(set(other_units.tolist())) == list(range(units.max()))
    tokens, single = find_units(encoding, "token", never_masked=[int(inside[-1])])
    assert len(tokens) == len(positions) - 1
    assert single.tolist() == list(range(len(tokens)))


def test_random_numbers_of_words_do_not_grow_with_their_length():
    units = np.array([0, 0, 0, 1, 2, 2])
    scores = np.array([0.1, 0.9, 0.9, 0.5, 0.3, 0.2])
    assert first_of_unit(scores, units).tolist() == [0.1, 0.5, 0.3]
    assert sum_by_unit(scores, units).tolist() == pytest.approx([1.9, 0.5, 0.5])
    assert sum_by_unit(np.zeros(0), np.zeros(0, dtype=np.int64)).tolist() == []


def test_whole_words_are_masked_in_the_order_of_their_scores():
    """Every number by a loop over words of the attribution."""
    model, tokenizer = bert()
    explainer = Explainer(model.double(), tokenizer)
    evaluation = evaluate(explainer, TEXTS, methods=["cat"], unit="word", soft=True)
    assert evaluation.unit == "word"
    for row, text in enumerate(TEXTS):
        attribution = explainer(text, "cat")
        words = attribution.words()
        assert evaluation.sizes[row] == len(words)
        best_first = sorted(range(len(words)), key=lambda number: (-words[number].score, number))
        for column, (order, level) in enumerate(evaluation.conditions):
            count = max(1, int(level * len(words) / 100 + 0.5))
            masked = {"top": best_first[:count], "keep": best_first[count:]}.get(order)
            if masked is None:
                rising = sorted(range(len(words)), key=lambda number: (words[number].score, number))
                masked = rising[:count]
            inputs = tokenizer(text, return_tensors="pt")
            for number in masked:
                inputs["input_ids"][0, list(words[number].tokens)] = tokenizer.pad_token_id
            expected = model(**inputs).logits[0].log_softmax(-1)[attribution.target].item()
            assert evaluation.masked[0, row, column] == pytest.approx(expected, abs=1e-9)


def test_words_of_one_token_each_are_tokens(tmp_path):
    explainer = Explainer(*bert())
    by_word = evaluate(explainer, ["a good film"], methods=["cat"], unit="word", bounds=True)
    by_token = evaluate(explainer, ["a good film"], methods=["cat"], bounds=True)
    np.testing.assert_array_equal(by_word.masked, by_token.masked)
    assert by_word.bounds is not None
    np.testing.assert_array_equal(by_word.bounds, by_token.bounds)
    by_word.save(tmp_path / "words")
    loaded = type(by_word).load(tmp_path / "words")
    assert loaded.unit == "word"
    assert set(loaded.table()["unit"]) == {"word"}
    with pytest.raises(ValueError, match="unit"):
        by_word.merge_methods(by_token)


def test_larger_masks_become_random_parts_of_them():
    masked = np.array([[True] * 8 + [False] * 2, [True] + [False] * 9])
    keys = np.random.default_rng(0).random((50, 10))
    parts = at_most(masked, 0.3, keys)
    assert parts.shape == (2, 50, 10)
    assert (parts[0].sum(-1) == 3).all()
    assert not parts[0, :, 8:].any()
    for part, key in zip(parts[0], keys, strict=True):
        assert set(np.flatnonzero(part)) == set(np.argsort(key[:8])[:3])
    assert (parts[1] == masked[1]).all()  # no more than the share: as it was
    assert at_most(masked[:1, :5], 0.01, keys[:, :5]).sum(-1).tolist() == [[1] * 50]


def test_with_a_share_no_input_is_masked_further_and_probabilities_are_averaged():
    model, tokenizer = bert()
    explainer = Explainer(model.double(), tokenizer)
    text = "although this dog is not cute, it is very smart"
    scores = [np.arange(11.0)]
    evaluation = evaluate(explainer, [text], scores={"given": scores}, max_share=0.2, draws=4, seed=3)
    assert evaluation.max_share == 0.2
    unlimited = evaluate(explainer, [text], scores={"given": scores})
    first = evaluation.conditions.index(("top", 10))
    assert evaluation.masked[0, 0, first] == unlimited.masked[0, 0, first]
    probabilities = []
    (encoding,) = encode(tokenizer, [text])
    keys = token_generator(3, 0, list(encoding.inputs["input_ids"])).random((4, 11))
    for key in keys:
        top = [10, 9, 8, 7, 6, 5]  # 50 % of 11, rounded up
        removed = sorted(top, key=lambda index: key[index])[:2]
        inputs = tokenizer(text, return_tensors="pt")
        inputs["input_ids"][0, [index + 1 for index in removed]] = tokenizer.pad_token_id
        logits = model(**inputs).logits[0]
        probabilities.append(logits.softmax(-1)[evaluation.target[0]].item())
    half = evaluation.conditions.index(("top", 50))
    assert np.exp(evaluation.masked[0, 0, half]) == pytest.approx(np.mean(probabilities), abs=1e-9)


def test_bounds_have_no_share():
    with pytest.raises(ValueError, match="max_share"):
        evaluate(Explainer(*bert()), ["a good film"], methods=["cat"], max_share=0.5, bounds=True)
    with pytest.raises(ValueError, match="unit"):
        evaluate(Explainer(*bert()), ["a good film"], methods=["cat"], unit="sentence")
