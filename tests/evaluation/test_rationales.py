import numpy as np
import pytest
from sklearn.metrics import auc, f1_score, jaccard_score, precision_recall_curve

from gaflow import Explainer
from gaflow.evaluation.rationales import auprc, iou, iou_f1, plausibility, rationale_mask, select_top, token_f1
from tests.support.models import SENTENCE, bert, roberta


def test_single_numbers_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    for n in (2, 3, 8, 30):
        for _ in range(20):
            gold = generator.random(n) < 0.4
            gold[:2] = [True, False]
            scores = generator.integers(0, 4, n).astype(float)
            precision, recall, _ = precision_recall_curve(gold, scores)
            assert auprc(scores, gold) == pytest.approx(auc(recall, precision))
            selected = select_top(scores, 0.3)
            assert token_f1(selected, gold) == pytest.approx(f1_score(gold, selected))
            assert iou(selected, gold) == pytest.approx(jaccard_score(gold, selected))


def test_scores_that_put_marked_tokens_first_are_perfect():
    gold = np.array([False, True, True, False])
    assert auprc(np.array([0.1, 3, 2, 0.2]), gold) == 1
    assert np.isnan(auprc(np.ones(4), np.zeros(4, dtype=bool)))
    assert np.isnan(auprc(np.ones(4), np.ones(4, dtype=bool)))
    selected = select_top(np.array([0.1, 3, 2, 0.2]), 0.5)
    assert token_f1(selected, gold) == iou(selected, gold) == iou_f1(selected, gold) == 1


def test_chosen_tokens_are_the_first_of_equal_ones_and_at_least_one():
    assert select_top(np.array([1.0, 2, 2, 2]), 0.5).tolist() == [False, True, True, False]
    assert select_top(np.array([1.0, 2, 2, 2]), 0.01).tolist() == [False, True, False, False]
    assert select_top(np.zeros(3), 0.5).tolist() == [True, True, False]


def test_runs_match_if_they_overlap_by_more_than_half():
    def mask(text):
        return np.array([letter == "x" for letter in text])

    assert iou_f1(mask("xx..xx"), mask("xx..xx")) == 1
    assert iou_f1(mask("xx...."), mask("x....x")) == 0  # exactly half is not more
    assert iou_f1(mask("xxx..x"), mask("xx...x")) == 1
    assert iou_f1(mask("xxx..."), mask("xx...x")) == pytest.approx(2 / 3)
    assert iou_f1(mask("x....."), mask("......")) == 0


@pytest.mark.parametrize("family", [bert, roberta])
def test_spans_of_characters_mark_the_tokens_that_they_touch(family):
    attribution = Explainer(*family())(SENTENCE, "rawatt")
    start = SENTENCE.index("not")
    marked = rationale_mask(attribution, [(start, start + 8), (0, 1)])
    offsets = np.array(attribution.offsets)[~attribution.special_mask]
    expected = [(a < start + 8 and b > start) or (a < 1 and b > 0) for a, b in offsets]
    assert marked.tolist() == expected
    assert 2 <= marked.sum() < len(marked)
    full = np.zeros(len(attribution.tokens), dtype=bool)
    full[~attribution.special_mask] = marked
    assert (
        rationale_mask(attribution, full).tolist() == rationale_mask(attribution, marked.tolist()).tolist() == expected
    )
    assert not rationale_mask(attribution, []).any()


def test_a_table_has_a_row_for_every_method_and_text(explainer):
    texts = ["good film", "this dog is bad"]
    attributions = {name: explainer(texts, name) for name in ("cat", "random")}
    table = plausibility(attributions, [[(0, 4)], [(12, 15)]])
    assert list(table["method"]) == ["cat", "cat", "random", "random"]
    part = 3 / 8
    for row, att in zip(table.to_dict("records"), [*attributions["cat"], *attributions["random"]], strict=True):
        scores = att.scores[1:-1]
        gold = rationale_mask(att, [[(0, 4)], [(12, 15)]][row["text"]])
        assert row["auprc"] == auprc(scores, gold)
        assert row["token_f1"] == token_f1(select_top(scores, part), gold)
        assert row["iou"] == iou(select_top(scores, part), gold)
    everything = plausibility(attributions, [[(0, 4)], [(12, 15)]], share=1.0)
    assert everything["token_f1"].tolist() == pytest.approx([2 / 3, 2 / 5] * 2)


@pytest.mark.parametrize(
    "rationale", [[(0, 99)], [(3, 3)], [True], [(0.5, 1.5)], ["good"], [(-1, 2)], [1, 0, 1, 1, 0, 0, 1]]
)
def test_rationales_that_do_not_fit_are_refused(explainer, rationale):
    with pytest.raises(ValueError, match=r"rationales\[0\]"):
        plausibility({"cat": explainer(["good film"], "cat")}, [rationale])


def test_bad_settings_are_refused(explainer):
    with pytest.raises(ValueError, match="rationales"):
        plausibility({"cat": explainer(["good"], "cat")}, [])
    with pytest.raises(ValueError, match="share"):
        plausibility({}, [], share=0.0)
