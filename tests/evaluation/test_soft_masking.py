import numpy as np
import pytest
import torch

from gaflow import ArgumentError, Explainer
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.soft_masking import Soft, by_range, by_rank
from tests.support.evaluated import METHODS, TEXTS
from tests.support.models import FAMILIES, bert, wordpiece
from tests.support.shortcut import Shortcut


def ones(scores):
    return np.ones(len(scores))


def as_they_are(scores):
    return scores


def lost_by(evaluation):
    """Both losses (m, n, 2), which must be there."""
    assert evaluation.soft is not None
    return evaluation.soft


def naive(explainer, text, chances, draw, side, seed=0):
    """Log-probabilities (c,) of one perturbed text, alone and in plain steps."""
    inputs = explainer.tokenizer(text, return_tensors="pt")
    ids = inputs.pop("input_ids")
    words = explainer.model.get_input_embeddings()(ids).detach()
    n = ids.shape[1] - 2  # all but [CLS] and [SEP]
    coins = np.random.default_rng([seed, draw, *ids[0].tolist()]).random((n, words.shape[2]), dtype=np.float32)
    for i in range(n):
        q = {"kept": chances[i], "removed": 1 - chances[i], "zero": 0}[side]
        for j in range(words.shape[2]):
            if not coins[i, j] < np.float32(q):
                words[0, i + 1, j] = 0
    with torch.no_grad():
        return explainer.model(inputs_embeds=words, **inputs).logits[0].log_softmax(-1).numpy()


@pytest.fixture(scope="module")
def double():
    model, tokenizer = bert()
    return Explainer(model.double(), tokenizer)


@pytest.fixture(scope="module")
def evaluation(double):
    return evaluate(double, TEXTS, methods=METHODS, soft=Soft(draws=3))


def test_every_number_is_that_of_the_definition_in_plain_python(double, evaluation):
    for n, text in enumerate(TEXTS):
        target, p = evaluation.target[n], np.exp(evaluation.base[n])
        zero = naive(double, text, np.zeros(evaluation.sizes[n]), 0, "zero")[target]
        assert evaluation.zero[n] == pytest.approx(zero, abs=1e-9)
        for m, method in enumerate(evaluation.methods):
            scores = double(text, method).scores[1:-1]
            spread = scores.max() - scores.min()
            chances = (scores - scores.min()) / spread if spread else np.full(len(scores), 0.5)
            for side, name in enumerate(("kept", "removed")):
                logs = [naive(double, text, chances, draw, name)[target] for draw in range(3)]
                lost = sum(max(0, p - np.exp(log)) for log in logs) / 3
                assert lost_by(evaluation)[m, n, side] == pytest.approx(lost, abs=1e-9)
            floor = 1 - max(0, p - np.exp(zero))
            if floor < 1 - 1e-4:
                lost_by_keeping, removed = lost_by(evaluation)[m, n]
                sufficiency = ((1 - lost_by_keeping) - floor) / (1 - floor)
                assert evaluation.per_text("soft_ns")[m, n] == pytest.approx(min(1, max(0, sufficiency)), abs=1e-9)
                assert evaluation.per_text("soft_nc")[m, n] == pytest.approx(min(1, removed / (1 - floor)), abs=1e-9)
            else:
                assert np.isnan(evaluation.per_text("soft_ns")[m, n])


def test_the_table_averages_the_texts_that_words_change(evaluation):
    table = evaluation.table()
    for name in ("soft_ns", "soft_nc"):
        np.testing.assert_allclose(table[name], np.nanmean(evaluation.per_text(name), axis=1))
    assert 0 < table["soft_texts"].min() <= len(TEXTS)
    assert (table["soft_texts"] == np.isfinite(evaluation.per_text("soft_nc")).sum(1)).all()
    assert evaluation.manifest["soft"] == {"draws": 3, "scale": "range", "seed": 0}


@pytest.mark.parametrize("family", FAMILIES)
def test_with_every_chance_at_one_the_text_is_whole_or_has_no_words(family):
    explainer = Explainer(*FAMILIES[family]())
    evaluation = evaluate(explainer, TEXTS[:3], methods=[], soft=Soft(draws=1, scale=ones), eraser=False, levels=[50])
    assert evaluation.zero is not None
    np.testing.assert_allclose(lost_by(evaluation)[..., 0], 0, atol=2e-6)
    np.testing.assert_allclose(
        lost_by(evaluation)[0, :, 1], np.maximum(0, np.exp(evaluation.base) - np.exp(evaluation.zero)), atol=2e-6
    )
    gap = np.exp(evaluation.base) - np.exp(evaluation.zero)
    assert (np.abs(gap) > 1e-3).any()
    wide = gap > 1e-2
    np.testing.assert_allclose(evaluation.per_text("soft_ns")[0, wide], 1, atol=1e-3)
    np.testing.assert_allclose(evaluation.per_text("soft_nc")[0, wide], 1, atol=1e-3)


@pytest.fixture(scope="module")
def shortcut():
    tokenizer = wordpiece()
    model = Shortcut(tokenizer.convert_tokens_to_ids("good"), len(tokenizer))
    return Explainer(model, tokenizer, task="text-classification")


def test_a_planted_shortcut_gives_the_known_answer(shortcut):
    texts = ["this dog is very good", "good and cute"]
    right = [[0.0, 0, 0, 0, 1], [1.0, 0, 0]]
    wrong = [[-x for x in scores] for scores in right]
    evaluation = evaluate(shortcut, texts, scores={"right": right, "wrong": wrong}, soft=True, target="positive")
    table = evaluation.table()
    assert table.loc["right", ["soft_ns", "soft_nc"]].tolist() == pytest.approx([1, 1])
    assert table.loc["wrong", ["soft_ns", "soft_nc"]].tolist() == pytest.approx([0, 0])


@pytest.mark.parametrize("chance", [0.25, 0.7])
def test_a_word_is_there_as_often_as_its_score_says(shortcut, chance):
    """With embeddings of width 1 the word is either there or not, and both measures have the chance as their mean."""
    evaluation = evaluate(
        shortcut,
        ["this dog is good"],
        scores={"sure": [[0.5, 0.1, 0.9, chance]]},
        soft=Soft(draws=2000, scale=as_they_are),
        eraser=False,
        levels=[50],
        target="positive",
    )
    spread = (chance * (1 - chance) / 2000) ** 0.5
    assert evaluation.per_text("soft_ns")[0, 0] == pytest.approx(chance, abs=4 * spread)
    assert evaluation.per_text("soft_nc")[0, 0] == pytest.approx(chance, abs=4 * spread)


def test_texts_that_say_as_much_without_words_are_left_out_and_counted(shortcut):
    evaluation = evaluate(shortcut, ["this dog is good", "this dog is cute"], methods=[], soft=True, target="positive")
    assert np.isnan(evaluation.per_text("soft_nc")).tolist() == [[False, True]]
    assert evaluation.table()["soft_texts"].tolist() == [1]


def test_coins_depend_on_the_text_and_the_seed_alone(double, evaluation):
    alone = evaluate(double, TEXTS[3:4], methods=METHODS, soft=Soft(draws=3), tokens_per_pass=1)
    np.testing.assert_allclose(lost_by(alone)[:, 0], lost_by(evaluation)[:, 3], atol=1e-9)
    again = evaluate(double, TEXTS, methods=METHODS, soft=Soft(draws=3))
    np.testing.assert_array_equal(lost_by(again), lost_by(evaluation))
    other = evaluate(double, TEXTS, methods=METHODS, soft=Soft(draws=3, seed=1))
    assert np.abs(lost_by(other) - lost_by(evaluation)).max() > 1e-3
    scores = [double(text, "cat").scores for text in TEXTS]
    twice = evaluate(double, TEXTS, scores={"one": scores, "two": scores}, soft=Soft(draws=3))
    np.testing.assert_allclose(lost_by(twice)[0], lost_by(twice)[1], atol=1e-12)


def test_nothing_of_it_is_there_unless_asked_for(double):
    evaluation = evaluate(double, TEXTS[:2], methods=["cat"])
    assert evaluation.soft is evaluation.zero is None
    assert not [column for column in evaluation.table() if column.startswith("soft")]
    with pytest.raises(ValueError, match="soft=True"):
        evaluation.per_text("soft_ns")


def test_deletion_leaves_the_soft_measures_as_they_are(double, evaluation):
    deleted = evaluate(double, TEXTS, methods=METHODS, soft=Soft(draws=3), replacement="delete")
    np.testing.assert_allclose(lost_by(deleted), lost_by(evaluation), atol=1e-9)


def test_scores_become_chances_by_range_or_by_rank():
    assert by_range(np.array([-1.0, 3, 1])).tolist() == [0, 1, 0.5]
    assert by_range(np.array([2.0, 2])).tolist() == [0.5, 0.5]
    assert by_rank(np.array([-1.0, 30, 1])).tolist() == [0, 1, 0.5]
    assert by_rank(np.array([5.0, 5, 1, 7])).tolist() == [0.5, 0.5, 0, 1]
    assert by_rank(np.array([4.0])).tolist() == [0.5]
    generator = np.random.default_rng(0)
    for n in (2, 5, 8):
        assert by_rank(generator.integers(0, 4, n).astype(float)).mean() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"draws": 0}, "draws"),
        ({"draws": True}, "draws"),
        ({"seed": -1}, "seed"),
        ({"scale": "softmax"}, "'range', 'rank'"),
    ],
)
def test_bad_settings_are_refused(settings, match):
    with pytest.raises(ValueError, match=match):
        Soft(**settings)


def test_a_scale_that_gives_no_chances_is_refused(double):
    with pytest.raises(ValueError, match=r"'random'.*gave"):
        evaluate(double, TEXTS[:1], methods=[], soft=Soft(scale=lambda scores: scores + 1))


@pytest.mark.parametrize("probabilities", [[0.5, 1.5], [-0.5, 0.5], [0.5]])
def test_every_probability_of_a_scale_lies_between_0_and_1(probabilities):
    soft = Soft(scale=lambda scores: np.array(probabilities))
    with pytest.raises(ArgumentError, match="scale"):
        soft._probabilities(np.zeros(2), "agf")
