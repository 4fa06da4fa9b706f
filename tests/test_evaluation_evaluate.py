import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gaflow import Explainer
from gaflow.errors import MissingExtraError, TargetError, TextError, UnknownMethodError, UnsupportedModelError
from gaflow.evaluation.bounds import Bounds
from gaflow.evaluation.evaluate import evaluate
from gaflow.methods import Random
from tests.models import SENTENCE, bert, roberta

TEXTS = [SENTENCE, "good", "a bad film", "the dog and the film", "don't stop"]
LABELS = [0, 1, 2, "positive", 1]
METHODS = ["gradsam", "cat", "rawatt"]


@pytest.fixture(scope="module")
def explainer():
    return Explainer(*bert())


@pytest.fixture(scope="module")
def evaluated(explainer):
    return evaluate(explainer, TEXTS, LABELS, METHODS)


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
        logits = explainer.model(**inputs).logits[0].double()
    return logits.log_softmax(-1)[target].item(), int(logits.argmax())


def test_every_number_is_that_of_the_protocol_in_plain_python(explainer, evaluated):
    assert evaluated.methods == (*METHODS, "random")
    assert evaluated.replacement == "pad"
    for n, text in enumerate(TEXTS):
        with torch.no_grad():
            base = explainer.model(**explainer.tokenizer(text, return_tensors="pt")).logits[0].double().log_softmax(-1)
        target = int(base.argmax())
        assert evaluated.target[n] == evaluated.base_prediction[n] == target
        assert evaluated.base[n] == pytest.approx(base[target].item(), abs=1e-6)
        for m, method in enumerate(evaluated.methods):
            scores = explainer(text, method).scores
            for c, (order, k) in enumerate(evaluated.conditions):
                log, said = naive(explainer, text, scores, order, k, target)
                assert evaluated.masked[m, n, c] == pytest.approx(log, abs=2e-6)
                assert evaluated.prediction[m, n, c] == said


def test_the_table_averages_over_texts_and_levels(evaluated):
    table = evaluated.table()
    values = evaluated.values()
    levels = values[values["k"].isin(range(10, 100, 10))]
    for method in evaluated.methods:
        for order in ("top", "bottom"):
            mine = levels[(levels["method"] == method) & (levels["order"] == order)]
            assert len(mine) == 9 * len(TEXTS)
            assert table.loc[method, f"aopc_{order}"] == pytest.approx(mine["aopc"].mean())
            assert table.loc[method, f"lodds_{order}"] == pytest.approx(mine["lodds"].mean())
            assert table.loc[method, f"accuracy_{order}"] == pytest.approx(mine["correct"].mean())
        bins = values[(values["method"] == method) & values["k"].isin((1, 5, 10, 20, 50))]
        assert table.loc[method, "comprehensiveness"] == pytest.approx(bins[bins["order"] == "top"]["aopc"].mean())
        assert table.loc[method, "sufficiency"] == pytest.approx(bins[bins["order"] == "keep"]["aopc"].mean())
    assert (table["srg"] - table["aopc_top"] + table["aopc_bottom"]).abs().max() < 1e-12
    assert set(table["texts"]) == {len(TEXTS)}
    assert set(table["replacement"]) == {"pad"}
    assert {"f1_top", "precision_bottom", "recall_top"} <= set(table)


def test_per_text_values_say_what_was_masked_and_said(evaluated):
    values = evaluated.values().set_index(["method", "text", "order", "k"])
    row = values.loc[("cat", 0, "top", 50)]
    n = evaluated.sizes[0]
    assert row["masked"] == (n + 1) // 2
    assert values.loc[("cat", 0, "keep", 10)]["masked"] == n - 1
    assert row["lodds"] == pytest.approx(math.log(row["probability"]) - evaluated.base[0])
    assert row["aopc"] == pytest.approx(math.exp(evaluated.base[0]) - row["probability"])
    assert row["target"] in evaluated.classes


def test_a_text_of_one_token_is_masked_whole(explainer, evaluated):
    assert evaluated.sizes[1] == 1
    top = [c for c, (order, _) in enumerate(evaluated.conditions) if order != "keep"]
    kept = [c for c, (order, _) in enumerate(evaluated.conditions) if order == "keep"]
    assert np.unique(evaluated.masked[:, 1, top]).size == 1
    assert (evaluated.masked[:, 1, kept] == evaluated.base[1]).all()


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
                distinct.add((n, chosen(explainer, text, scores, order, k)))
    assert result.manifest["inputs"] == len({d for d in distinct if d[1]})


def sizes_of(explainer):
    return [int((~explainer(t, "random").special_mask).sum()) for t in TEXTS]


def chosen(explainer, text, scores, order, k):
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


def test_curves_hold_means_and_intervals_and_can_be_drawn(evaluated):
    from gaflow.plots import curves

    table = evaluated.curves(resamples=200)
    assert list(table) == ["method", "order", "k", "metric", "mean", "low", "high"]
    assert len(table) == 4 * 2 * 9 * 6
    assert (table["low"] <= table["mean"]).all()
    assert (table["mean"] <= table["high"]).all()
    whole = evaluated.table()
    for (method, order, metric), mean in table.groupby(["method", "order", "metric"])["mean"].mean().items():
        assert mean == pytest.approx(whole.loc[method, f"{metric}_{order}"])
    wider = evaluated.curves(resamples=200, confidence=0.99)
    assert (wider["high"] - wider["low"] >= table["high"] - table["low"] - 1e-12).all()
    curves(table)


def test_significance_compares_with_every_other(evaluated):
    table = evaluated.significance("cat", resamples=100, permutations=200)
    assert set(table["other"]) == {"gradsam", "rawatt", "random"}
    assert len(table) == 3 * 5
    row = table[(table["other"] == "rawatt") & (table["metric"] == "lodds") & (table["order"] == "top")].iloc[0]
    gap = evaluated.per_text("lodds", "top")[1] - evaluated.per_text("lodds", "top")[2]
    assert row["better"] == "lower"
    assert row["difference"] == pytest.approx(gap.mean())
    signs = np.array(np.meshgrid(*[[-1, 1]] * 5)).reshape(5, -1)
    assert row["p"] == pytest.approx((np.abs(gap @ signs) >= abs(gap.sum()) - 1e-12).mean())
    assert (table["p_holm"] >= table["p"]).all()
    assert table[["epsilon", "epsilon_back", "epsilon_runs"]].stack().between(0, 1).all()


def test_a_method_that_is_better_everywhere_is_found_so(explainer):
    base = evaluate(explainer, TEXTS, methods=["cat"])
    masked = np.stack([base.masked[0] - 3.0, base.masked[0]])
    better = SimpleNamespace(**{**vars(base), "masked": masked, "methods": ("good", "poor")})
    result = type(base)(**{**vars(better), "prediction": base.prediction[:2]})
    table = result.significance("good", resamples=100).set_index(["metric", "order"])
    assert table.loc[("lodds", "top"), "epsilon"] == 0
    assert table.loc[("lodds", "top"), "epsilon_back"] == 1
    assert table.loc[("lodds", "bottom"), "epsilon"] == 1  # there less is worse


def test_only_the_order_that_was_asked_for_is_there(explainer):
    top = evaluate(explainer, TEXTS[:2], methods=["cat"], order="top", eraser=False, levels=[20, 50])
    assert top.orders == ("top",)
    assert [c for c in top.table() if c.endswith("_bottom") or c in ("srg", "sufficiency", "accuracy_top")] == []
    assert top.masked.shape == (2, 2, 2)
    with pytest.raises(ValueError, match="bottom"):
        top.per_text("aopc", "bottom")


def test_normalized_aopc_lies_between_the_bounds(explainer):
    found = evaluate(explainer, TEXTS[1:], methods=["cat"], bounds=True)
    values = found.per_text("normalized_aopc")
    aopc, (low, high) = found.per_text("aopc", "top"), found.bounds.T
    wide = high > low
    assert wide.sum() >= 3
    np.testing.assert_allclose(values[:, wide], (aopc - low)[:, wide] / (high - low)[wide])
    assert (values[:, wide] >= -1e-6).all()
    assert (values[:, wide] <= 1 + 1e-6).all()
    assert found.table()["normalized_aopc"].between(0, 1).all()


def test_positions_stay_in_models_that_count_them_by_padding():
    explainer = Explainer(*roberta())
    found = evaluate(explainer, [SENTENCE], methods=["cat"], order="top", eraser=False)
    inputs = explainer.tokenizer(SENTENCE, return_tensors="pt")
    hidden = chosen(explainer, SENTENCE, explainer(SENTENCE, "cat").scores, "top", 50)
    inputs["input_ids"][0, list(hidden)] = 1
    positions = torch.arange(inputs["input_ids"].shape[1])[None] + 2
    with torch.no_grad():
        logits = explainer.model(**inputs, position_ids=positions).logits[0].double()
    assert found.masked[0, 0, 4] == pytest.approx(logits.log_softmax(-1)[found.target[0]].item(), abs=5e-6)


def test_scores_from_elsewhere_are_judged_alike(explainer, evaluated):
    attributions = explainer(TEXTS, "cat")
    arrays = [a.scores for a in attributions]
    ordinary = [a.scores[~a.special_mask].tolist() for a in attributions]
    found = evaluate(explainer, TEXTS, scores={"ours": attributions, "all": arrays, "some": ordinary})
    assert found.methods == ("ours", "all", "some", "random")
    for row in range(3):
        np.testing.assert_array_equal(found.masked[row], evaluated.masked[1])
    np.testing.assert_array_equal(found.masked[3], evaluated.masked[3])


def test_scores_of_words_are_spread_over_tokens(explainer):
    text = "stop film"
    own = explainer(text, "cat")
    words = SimpleNamespace(scores=[4.0, 1.0], offsets=[(0, 4), (5, 9)])
    spread = [4.0 * (b - a) / 4 if b <= 4 else (b - a) / 4 for a, b in np.array(own.offsets)[~own.special_mask]]
    assert len(spread) > 2
    found = evaluate(explainer, [text], scores={"words": [words], "tokens": [spread]})
    np.testing.assert_array_equal(found.masked[0], found.masked[1])


def test_the_class_that_was_explained_is_measured(explainer, evaluated):
    other = [(int(t) + 1) % 3 for t in evaluated.target]
    told = evaluate(explainer, TEXTS, methods=["cat"], target=other)
    assert told.target.tolist() == other
    attributions = explainer(TEXTS, "cat", target=other)
    found = evaluate(explainer, TEXTS, scores={"cat": attributions})
    np.testing.assert_array_equal(found.masked[0], told.masked[0])
    with pytest.raises(ValueError, match="same class"):
        evaluate(explainer, TEXTS, scores={"cat": attributions}, target=evaluated.target.tolist())
    with pytest.raises(TargetError, match="contrast"):
        evaluate(explainer, TEXTS, methods=["cat"], target=(0, 1))


def test_the_control_is_random_with_a_seed(explainer):
    first, second = (evaluate(explainer, TEXTS, methods=[Random(3)], seed=s) for s in (3, 4))
    assert first.methods == ("random(seed=3)", "random")
    np.testing.assert_array_equal(first.masked[0], first.masked[1])
    assert np.abs(second.masked[0] - second.masked[1]).max() > 0
    assert evaluate(explainer, TEXTS, methods=["random"]).methods == ("random",)


def test_an_evaluation_comes_back_from_disk_as_it_was(explainer, tmp_path):
    found = evaluate(explainer, TEXTS, LABELS, ["cat"], bounds=Bounds(longest=5))
    found.save(tmp_path / "there")
    again = type(found).load(tmp_path / "there")
    for name in ("sizes", "target", "base", "base_prediction", "masked", "prediction", "gold", "bounds"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert again.table().equals(found.table())
    assert again.manifest == found.manifest
    assert again.timings == found.timings
    assert repr(again) == repr(found)


def test_what_is_no_evaluation_is_refused(explainer, tmp_path):
    from gaflow.errors import GaflowError

    with pytest.raises(FileNotFoundError, match="evaluation"):
        type(evaluate(explainer, TEXTS[1:2], methods=[])).load(tmp_path)
    found = evaluate(explainer, TEXTS[1:3], methods=[])
    found.save(tmp_path)
    (tmp_path / "values.parquet").write_bytes(b"no table")
    with pytest.raises(GaflowError, match="damaged"):
        type(found).load(tmp_path)
    found.save(tmp_path)
    about = (tmp_path / "evaluation.json").read_text()
    (tmp_path / "evaluation.json").write_text(about.replace('"random"', '"other"'))
    with pytest.raises(GaflowError, match="method"):
        type(found).load(tmp_path)
    (tmp_path / "evaluation.json").write_text(about.replace('"format": 1', '"format": 2'))
    with pytest.raises(GaflowError, match="format"):
        type(found).load(tmp_path)


def test_progress_goes_from_nothing_to_all(explainer):
    told = []
    evaluate(explainer, TEXTS, methods=["cat", "rawatt"], progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {len(TEXTS) * 3}
    done = [d for d, _ in told]
    assert done == sorted(done)
    assert done[-1] == len(TEXTS) * 3
    assert len(done) > 3


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
    found = evaluate(explainer, ["dog", long], methods=[], truncation=True)
    assert found.manifest["truncated"] == 1
    assert found.sizes.tolist() == [1, 62]


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"texts": "one"}, TypeError, "list"),
        ({"texts": []}, ValueError, "empty"),
        ({"texts": ["good", " "]}, TextError, r"texts\[1\]"),
        ({"labels": [0]}, ValueError, "labels"),
        ({"labels": [0, 7]}, ValueError, r"labels\[1\] is 7"),
        ({"labels": [0, None]}, ValueError, r"labels\[1\]"),
        ({"labels": [0, float("nan")]}, ValueError, r"labels\[1\]"),
        ({"labels": [0, "happy"]}, ValueError, "'positive'"),
        ({"methods": "cat"}, TypeError, "methods"),
        ({"methods": ["kat"]}, UnknownMethodError, "cat"),
        ({"methods": ["cat", "cat"]}, ValueError, "twice"),
        ({"replacement": "blank"}, ValueError, "replacement"),
        ({"order": "up"}, ValueError, "order"),
        ({"levels": []}, ValueError, "levels"),
        ({"levels": [10, 10]}, ValueError, "levels"),
        ({"levels": [0.5]}, ValueError, "levels"),
        ({"scores": [1, 2]}, TypeError, "dict"),
        ({"scores": {"a": [[1.0]]}}, ValueError, "entries"),
        ({"scores": {"a": [[1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]}}, ValueError, "tokens"),
        ({"scores": {"a": [[float("nan")], [1.0]]}}, ValueError, "finite"),
        ({"scores": {"cat": [[1.0], [1.0]]}, "methods": ["cat"]}, ValueError, "twice"),
        ({"target": 9}, TargetError, "range"),
    ],
)
def test_bad_input_is_refused_before_anything_is_computed(explainer, changed, error, match):
    given = {"texts": ["good", "bad"], "methods": [], **changed}
    with pytest.raises(error, match=match):
        evaluate(explainer, **given)


def test_scores_of_another_text_are_refused(explainer):
    with pytest.raises(ValueError, match="another text"):
        evaluate(explainer, ["good"], scores={"a": [explainer("bad", "cat")]})


@pytest.mark.parametrize(
    "settings",
    [
        {"problem_type": "multi_label_classification"},
        {"num_labels": 1},
        {"num_labels": 1, "problem_type": "regression"},
    ],
)
def test_heads_without_one_class_among_several_are_refused(settings):
    with pytest.raises(UnsupportedModelError, match="one class among several"):
        evaluate(Explainer(*bert(**settings)), ["good"], methods=[])


def test_unknown_names_and_metrics_are_refused(evaluated):
    with pytest.raises(UnknownMethodError, match="gradsam"):
        evaluated.significance("agf")
    with pytest.raises(ValueError, match="metric"):
        evaluated.per_text("beauty")
    with pytest.raises(ValueError, match="bounds"):
        evaluated.per_text("normalized_aopc")
    with pytest.raises(ValueError, match="confidence"):
        evaluated.curves(confidence=95)


def test_tables_say_which_extra_is_missing(evaluated, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[data\]"):
        evaluated.table()
