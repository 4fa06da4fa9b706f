import math
import time
from collections import defaultdict

import numpy as np
import pytest
import torch

from gaflow import Explainer
from gaflow.errors import TextError
from gaflow.evaluation.faithfulness import evaluate
from gaflow.methods import Random
from tests.support.evaluated import LABELS, METHODS, TEXTS
from tests.support.models import SENTENCE, bert, distilbert, roberta, wordpiece
from tests.support.shortcut import Shortcut


def naive(explainer, text, scores, order, k, target):
    """The protocol in plain Python: log-probability and prediction of one masked text, alone."""
    ordinary = range(1, len(scores) - 1)  # all but [CLS] and [SEP]
    sign = -1 if order == "top" else 1
    ranked = sorted(ordinary, key=lambda i: (sign * scores[i], i))
    m = max(1, math.floor(k * len(ordinary) / 100 + 0.5))
    if order == "keep":
        ranked = [i for i in ordinary if i not in sorted(ordinary, key=lambda i: (-scores[i], i))[:m]]
        m = len(ranked)
    inputs = explainer.tokenizer(text, return_tensors="pt")
    for i in ranked[:m]:
        inputs["input_ids"][0, i] = explainer.tokenizer.pad_token_id
    with torch.no_grad():
        logits = explainer.model(**inputs).logits[0]
    return logits.log_softmax(-1)[target].item(), int(logits.argmax())


@pytest.mark.parametrize("family", [bert, distilbert], ids=lambda family: family.__name__)
def test_every_number_is_that_of_the_protocol_in_plain_python(family):
    model, tokenizer = family()
    explainer = Explainer(model.double(), tokenizer)
    evaluation = evaluate(explainer, TEXTS, LABELS, METHODS)
    assert evaluation.methods == (*METHODS, "random")
    assert evaluation.replacement == "pad"
    assert evaluation.gold is not None
    lost, gained, right = (defaultdict(list) for _ in range(3))
    for n, text in enumerate(TEXTS):
        with torch.no_grad():
            base = model(**tokenizer(text, return_tensors="pt")).logits[0].log_softmax(-1)
        target = int(base.argmax())
        assert evaluation.target[n] == evaluation.base_prediction[n] == target
        assert evaluation.base[n] == pytest.approx(base[target].item(), abs=1e-9)
        for m, method in enumerate(evaluation.methods):
            scores = explainer(text, method).scores
            for c, (order, k) in enumerate(evaluation.conditions):
                log, prediction = naive(explainer, text, scores, order, k, target)
                assert evaluation.masked[m, n, c] == pytest.approx(log, abs=1e-9)
                assert evaluation.prediction[m, n, c] == prediction
                lost[method, order, k].append(math.exp(base[target]) - math.exp(log))
                gained[method, order, k].append(log - base[target].item())
                right[method, order, k].append(prediction == evaluation.gold[n])
    for method, row in evaluation.table().to_dict("index").items():
        for order in ("top", "bottom"):
            for name, values in (("aopc", lost), ("lodds", gained), ("accuracy", right)):
                assert row[f"{name}_{order}"] == pytest.approx(
                    mean_over(values, method, order, range(10, 100, 10)), abs=1e-9
                )
        assert row["srg"] == pytest.approx(row["aopc_top"] - row["aopc_bottom"], abs=1e-9)
        for name, order in (("comprehensiveness", "top"), ("sufficiency", "keep")):
            assert row[name] == pytest.approx(mean_over(lost, method, order, (1, 5, 10, 20, 50)), abs=1e-9)


def mean_over(values, method, order, levels):
    """The mean over texts and levels."""
    return sum(sum(values[method, order, k]) / len(TEXTS) for k in levels) / len(levels)


def test_a_model_in_float32_gives_the_same_to_six_digits(explainer, evaluated):
    model, tokenizer = bert()
    double = evaluate(Explainer(model.double(), tokenizer), TEXTS, scores={"given": same_scores(explainer)})
    single = evaluate(explainer, TEXTS, scores={"given": same_scores(explainer)})
    np.testing.assert_allclose(single.masked, double.masked, atol=2e-6)
    np.testing.assert_allclose(single.per_text("aopc"), double.per_text("aopc"), atol=1e-6)


def same_scores(explainer):
    return [explainer(text, "cat").scores for text in TEXTS]


def test_a_text_of_one_token_is_masked_whole(explainer, evaluated):
    assert evaluated.sizes[1] == 1
    top = [c for c, (order, _) in enumerate(evaluated.conditions) if order != "keep"]
    columns = [c for c, (order, _) in enumerate(evaluated.conditions) if order == "keep"]
    assert np.unique(evaluated.masked[:, 1, top]).size == 1
    assert (evaluated.masked[:, 1, columns] == evaluated.base[1]).all()


def test_no_input_is_asked_about_twice(explainer):
    rows = []
    zeros = [np.zeros(n) for n in sizes_of(explainer)]
    handle = explainer.model.register_forward_hook(lambda _model, _given, out: rows.append(len(out.logits)))
    result = evaluate(explainer, TEXTS + TEXTS, scores={"zeros": zeros + zeros})
    handle.remove()
    assert sum(rows) == result.manifest["inputs"] + len(TEXTS)
    distinct = set()
    for n, text in enumerate(TEXTS):
        for method in ("zeros", "random"):
            scores = np.zeros(99) if method == "zeros" else explainer(text, "random").scores
            for order, k in result.conditions:
                distinct.add((n, masked_positions(explainer, text, scores, order, k)))
    assert result.manifest["inputs"] == len({d for d in distinct if d[1]})


def sizes_of(explainer):
    return [int((~explainer(t, "random").special_mask).sum()) for t in TEXTS]


def masked_positions(explainer, text, scores, order, k):
    """The masked tokens, as a set."""
    ordinary = np.flatnonzero(~explainer(text, "random").special_mask)
    m = max(1, math.floor(k * len(ordinary) / 100 + 0.5))
    down = sorted(ordinary, key=lambda i: (-scores[i], i))
    up = sorted(ordinary, key=lambda i: (scores[i], i))
    return frozenset({"top": down[:m], "bottom": up[:m], "keep": down[m:]}[order])


@pytest.mark.parametrize("replacement", ["mask", "delete"])
def test_other_replacements_give_other_numbers(explainer, evaluated, replacement):
    other = evaluate(explainer, TEXTS, methods=["cat"], replacement=replacement)
    assert other.replacement == replacement
    assert set(other.table()["replacement"]) == {replacement}
    assert np.abs(other.masked[0] - evaluated.masked[1]).max() > 1e-3


def test_batches_change_nothing_and_two_runs_agree_exactly(explainer, evaluated):
    again = evaluate(explainer, TEXTS, LABELS, METHODS)
    np.testing.assert_array_equal(again.masked, evaluated.masked)
    alone = evaluate(explainer, TEXTS, LABELS, METHODS, batch_size=1, tokens_per_pass=1)
    np.testing.assert_allclose(alone.masked, evaluated.masked, atol=2e-6)


def test_only_the_order_that_was_asked_for_is_there(explainer):
    top = evaluate(explainer, TEXTS[:2], methods=["cat"], order="top", eraser=False, levels=[20, 50])
    assert top.orders == ("top",)
    assert [c for c in top.table() if c.endswith("_bottom") or c in ("srg", "sufficiency", "accuracy_top")] == []
    assert top.masked.shape == (2, 2, 2)
    with pytest.raises(ValueError, match="bottom"):
        top.per_text("aopc", "bottom")


def test_normalized_aopc_lies_between_the_bounds(explainer):
    evaluation = evaluate(explainer, TEXTS[1:], methods=["cat"], bounds=True)
    values = evaluation.per_text("normalized_aopc")
    assert evaluation.bounds is not None
    aopc, (low, high) = evaluation.per_text("aopc", "top"), evaluation.bounds.T
    wide = high > low
    assert wide.sum() >= 3
    np.testing.assert_allclose(values[:, wide], (aopc - low)[:, wide] / (high - low)[wide])
    assert (values[:, wide] >= -1e-6).all()
    assert (values[:, wide] <= 1 + 1e-6).all()
    assert evaluation.table()["normalized_aopc"].between(0, 1).all()
    assert set(evaluation.table()["normalized_texts"]) == {wide.sum()}


def test_positions_stay_in_models_that_count_them_by_padding():
    explainer = Explainer(*roberta())
    evaluation = evaluate(explainer, [SENTENCE], methods=["cat"], order="top", eraser=False)
    inputs = explainer.tokenizer(SENTENCE, return_tensors="pt")
    hidden = masked_positions(explainer, SENTENCE, explainer(SENTENCE, "cat").scores, "top", 50)
    inputs["input_ids"][0, list(hidden)] = 1
    positions = torch.arange(inputs["input_ids"].shape[1])[None] + 2
    with torch.no_grad():
        logits = explainer.model(**inputs, position_ids=positions).logits[0].double()
    assert evaluation.masked[0, 0, 4] == pytest.approx(logits.log_softmax(-1)[evaluation.target[0]].item(), abs=5e-6)


def test_the_control_is_random_with_a_seed(explainer):
    first, second = (evaluate(explainer, TEXTS, methods=[Random(3)], seed=s) for s in (3, 4))
    assert first.methods == ("random(seed=3)", "random")
    np.testing.assert_array_equal(first.masked[0], first.masked[1])
    assert np.abs(second.masked[0] - second.masked[1]).max() > 0
    assert evaluate(explainer, TEXTS, methods=["random"]).methods == ("random",)


def test_progress_goes_from_nothing_to_all(explainer):
    reports = []
    evaluate(explainer, TEXTS, methods=["cat", "rawatt"], progress=lambda done, total: reports.append((done, total)))
    assert {total for _, total in reports} == {len(TEXTS) * 3}
    done = [d for d, _ in reports]
    assert done == sorted(done)
    assert done[-1] == len(TEXTS) * 3
    assert len(done) > 3


@pytest.mark.parametrize("measures", [{"soft": True}, {"bounds": True}, {"soft": True, "bounds": True}])
def test_progress_goes_to_the_end_with_every_measure(explainer, measures):
    reports = []
    evaluate(explainer, TEXTS, methods=[], **measures, progress=lambda done, _total: reports.append(done))
    assert reports == sorted(reports)
    assert reports[-1] == pytest.approx(len(TEXTS))


def test_dear_measures_are_taken_only_if_asked_for(explainer):
    evaluation = evaluate(explainer, ["good"], methods=[])
    assert (evaluation.soft, evaluation.zero) == (None, None)
    assert "normalized_aopc" not in evaluation.table()


def test_no_bar_is_drawn_unless_asked_for(explainer, capsys):
    evaluate(explainer, ["good"], methods=[])
    assert capsys.readouterr().err == ""
    evaluate(explainer, ["good"], methods=[], progress=True)
    assert capsys.readouterr().err != ""


def test_all_seconds_are_those_of_the_call(explainer):
    started = time.perf_counter()
    timings = evaluate(explainer, TEXTS, methods=["cat"]).timings
    elapsed = time.perf_counter() - started
    assert timings["explaining"] > 0
    assert timings["explaining"] + timings["masking"] <= timings["total"] <= elapsed


def test_timings_and_manifest_say_what_was_done(evaluated):
    assert 0 < evaluated.timings["forward"] <= evaluated.timings["masking"] <= evaluated.timings["total"]
    assert evaluated.timings["forward_share"] == pytest.approx(
        evaluated.timings["forward"] / evaluated.timings["masking"]
    )
    assert evaluated.manifest["texts"] == len(TEXTS)
    assert evaluated.manifest["seed"] == 0
    assert evaluated.manifest["truncated"] == 0
    assert "torch" in evaluated.manifest["versions"]


def test_long_texts_are_refused_or_cut_and_counted(explainer):
    long = "dog " * 100
    with pytest.raises(TextError, match=r"texts\[1\]"):
        evaluate(explainer, ["dog", long], methods=[])
    evaluation = evaluate(explainer, ["dog", long], methods=[], truncation=True)
    assert evaluation.manifest["truncated"] == 1
    assert evaluation.sizes.tolist() == [1, 62]


@pytest.mark.parametrize("replacement", ["pad", "mask", "delete"])
def test_a_planted_shortcut_gives_the_known_answer(replacement):
    tokenizer = wordpiece()
    model = Shortcut(tokenizer.convert_tokens_to_ids("good"), len(tokenizer))
    explainer = Explainer(model, tokenizer, task="text-classification")
    texts = ["this dog is very good", "good and cute"]
    right = [[0.0, 0, 0, 0, 1], [1.0, 0, 0]]
    wrong = [[-x for x in scores] for scores in right]
    evaluation = evaluate(
        explainer, texts, ["positive", "positive"], replacement=replacement, scores={"right": right, "wrong": wrong}
    )
    lost = 1 / (1 + math.exp(-2)) - 1 / (1 + math.exp(2))
    table = evaluation.table()
    # 5 tokens are all masked at 90 per cent; 3 at 90 (2.7) and never before
    assert table.loc["right", "aopc_top"] == pytest.approx(lost)
    assert table.loc["right", "aopc_bottom"] == pytest.approx(lost / 9)
    assert table.loc["right", "lodds_top"] == pytest.approx(-2)
    assert table.loc["right", "accuracy_top"] == 0
    assert table.loc["right", "accuracy_bottom"] == pytest.approx(8 / 9)
    assert table.loc["right", "srg"] == pytest.approx(lost * 8 / 9)
    assert table.loc["right", "comprehensiveness"] == pytest.approx(lost)
    assert table.loc["right", "sufficiency"] == 0
    assert table.loc["wrong", "aopc_top"] == pytest.approx(lost / 9)
    assert table.loc["wrong", "aopc_bottom"] == pytest.approx(lost)
    assert table.loc["wrong", "sufficiency"] == pytest.approx(lost)
