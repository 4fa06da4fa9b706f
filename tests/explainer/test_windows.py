import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import SolveError, TextError, UnsupportedModelError
from gaflow.explainer.batch import explain_batch
from gaflow.explainer.windows import Windows, merge
from gaflow.inputs.encoding import encode
from gaflow.methods import METHODS
from tests.support.models import FAMILIES, SENTENCE, bert, byte_bpe, gpt2, roberta, unigram, wordpiece
from tests.support.task_models import tagger

pytestmark = pytest.mark.slow

LONG = " ".join([SENTENCE.capitalize(), "A good film and a bad one; Café naïve, don't you think?"] * 4)
TOKENIZERS = {"wordpiece": wordpiece, "byte_bpe": byte_bpe, "unigram": unigram}


@pytest.fixture(scope="module")
def ex() -> Any:
    return gaflow.Explainer(*bert())


def number(att, name):
    """A fact of an attribution that is a number."""
    return float(att.diagnostics[name])


def whole(text, pair=None, tokenizer=None):
    return encode(tokenizer or wordpiece(), [text if pair is None else (text, pair)])[0]


def explain_alone(ex, windows, method):
    """The attributions of class 1 for windows of a text, in one batch."""
    encodings = [window.encoding for window in windows]
    batch = explain_batch(ex.runner, encodings, [1] * len(windows), [METHODS[method]])
    return [by_method[method] for by_method in batch.by_text]


def assert_close(found, expected, rtol=1e-5, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def timeless(att: Any) -> Any:
    """The same without the time that the solver took."""

    def without_time(flow):
        if flow is None:
            return None
        return replace(flow, certificate=replace(flow.certificate, seconds=torch.zeros(1)))

    return replace(
        att,
        certificate=replace(att.certificate, seconds=0.0),
        flow=without_time(att.flow),
        flow_against=without_time(att.flow_against),
    )


@pytest.mark.parametrize("reads", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [9, 10, 17, 40])
def test_every_token_is_read_the_same_number_of_times_and_no_window_is_too_long(reads, count):
    encoding = whole("dog " * count)
    windows = Windows(reads=reads)(encoding, 10)
    times = [sum(k in window.positions for window in windows) for k in range(len(encoding))]
    assert times == [len(windows), *[reads] * count, len(windows)]
    assert max(len(window.encoding) for window in windows) <= 10
    assert math.fsum(window.weight for window in windows) == pytest.approx(1, abs=1e-15)


def test_windows_are_runs_of_chunks_of_one_length_weighted_by_their_tokens():
    windows = Windows(reads=2)(whole("dog " * 12), 8)
    runs = [(window.positions[1] - 1, window.positions[-2]) for window in windows]
    assert runs == [(0, 3), (0, 6), (3, 9), (6, 12), (9, 12)]
    assert [window.weight * 24 for window in windows] == pytest.approx([3, 6, 6, 6, 3])
    apart = Windows(reads=1)(whole("dog " * 13), 8)
    assert [len(window.positions) - 2 for window in apart] == [4, 4, 5]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_window_is_what_the_tokenizer_makes_of_the_beginning_of_a_text(name):
    tokenizer = TOKENIZERS[name]()
    encoding = whole(LONG, tokenizer=tokenizer)
    (cut,) = encode(tokenizer, [LONG], limit=20, truncation=True)
    first = Windows(size=20, reads=1)(encoding, None)[0].encoding
    n = len(first)
    ordinary = slice(0, n - 1)  # chunks are even, so the window may be shorter than what truncation leaves
    assert first.inputs["input_ids"][ordinary] == cut.inputs["input_ids"][ordinary]
    assert first.offsets[ordinary] == cut.offsets[ordinary]
    assert first.tokens[-1] == cut.tokens[-1]
    assert {key: len(values) for key, values in first.inputs.items()} == dict.fromkeys(cut.inputs, n)
    assert first.text == LONG
    assert not first.truncated


@pytest.mark.parametrize("long", [0, 1])
def test_of_a_pair_the_longer_text_is_cut_and_the_other_one_kept_in_every_window(long):
    given = ["is this dog cute", "dog " * 30]
    encoding = whole(*(given if long else given[::-1]))
    for window in Windows()(encoding, 16):
        segments = window.encoding.segments
        assert segments.count(1 - long) == 4
        assert segments.count(-1) == 3
        assert len(segments) <= 16
        assert window.encoding.inputs["token_type_ids"] == [
            encoding.inputs["token_type_ids"][k] for k in window.positions
        ]


def test_a_pair_whose_shorter_text_leaves_no_room_is_refused():
    with pytest.raises(
        TextError, match=r"text: special tokens and the shorter text take 15 of the 16 tokens of a window"
    ):
        Windows()(whole("dog " * 12, "is " * 30), 16)
    with pytest.raises(TextError, match=r"special tokens take 2 of the 3 tokens of a window.*larger size"):
        Windows(size=3, reads=2)(whole("dog dog dog"), 16)


@pytest.mark.parametrize("windows", [True, Windows(), Windows(reads=4), Windows(size=40)])
@pytest.mark.parametrize("text", [SENTENCE, ("is this dog cute?", SENTENCE)])
def test_a_text_that_fits_has_the_plain_result(ex, text, windows):
    assert timeless(ex(text, windows=windows)) == timeless(ex(text))
    assert timeless(ex([text, text], windows=windows)[1]) == timeless(ex([text, text])[1])


@pytest.mark.parametrize("method", ["agf", "ig", "grads", "rollout", "attention_flow", "transatt"])
def test_scores_layers_and_output_are_the_weighted_sums_of_those_of_the_windows(ex, method):
    settings = Windows(size=50, reads=3)
    encoding = whole(LONG)
    windows = settings(encoding, ex.runner.limit)
    assert len(windows) > 5
    found = ex(LONG, method, "positive", windows=settings)
    scores, output = np.zeros(len(encoding)), 0.0
    for window in windows:
        (alone,) = explain_alone(ex, [window], method)
        scores[list(window.positions)] += window.weight * alone.scores
        output += window.weight * alone.output
    assert_close(found.scores, scores, rtol=1e-3, atol=1e-6 * np.abs(scores).max())
    assert found.output == pytest.approx(output, rel=1e-5)
    if found.layers is not None:
        layers = found.layers.sum(1)
        assert_close(layers, np.full_like(layers, found.scores.sum()))
        assert_close(found.layers[0], found.scores)


def test_the_model_predicts_the_mean_of_the_logits_of_the_windows(ex):
    windows = Windows()(whole(LONG), ex.runner.limit)
    logits = []
    for window in windows:
        inputs = {name: torch.tensor([values]) for name, values in window.encoding.inputs.items()}
        with torch.no_grad():
            logits.append(ex.model(**inputs).logits[0].double() * window.weight)
    mean = torch.stack(logits).sum(0)
    found = ex(LONG, "grads", windows=True)
    assert found.target == mean.argmax().item()
    assert found.label == found.prediction == ex.head.labels[found.target]
    assert found.output == pytest.approx(mean.max().item(), rel=1e-5)
    assert found.probability == pytest.approx(mean.softmax(0).max().item(), rel=1e-5)
    best = ex.predictions(LONG, windows=True)
    assert [p.target for p in best] == mean.argsort(descending=True).tolist()
    assert best[0].probability == pytest.approx(found.probability, rel=1e-5)
    contrast = ex(LONG, "grads", "neutral minus positive", windows=True)
    assert contrast.output == pytest.approx((mean[2] - mean[1]).item(), rel=1e-5)
    assert contrast.prediction == found.label


def test_what_adds_up_in_a_window_adds_up_over_the_whole_text(ex):
    found = ex(LONG, "ig", windows=True)
    assert found.scores.sum() == pytest.approx(
        found.output - float(found.diagnostics["baseline_output"]) + float(found.diagnostics["convergence_delta"]),
        abs=1e-5,
    )


def test_the_result_says_that_it_was_read_in_windows_and_is_about_the_whole_text(ex):
    found = ex(LONG, "agf", windows=True)
    windows = Windows()(whole(LONG), ex.runner.limit)
    assert found.diagnostics["windows"] == len(windows)
    assert found.diagnostics["window_tokens"] == max(len(window.positions) for window in windows) <= ex.runner.limit
    assert found.output_name == f"mean logit of {len(windows)} windows"
    assert found.text == LONG
    assert not found.truncated
    assert found.flow is None
    assert found.tokens == whole(LONG).tokens
    assert found.offsets == whole(LONG).offsets
    words = found.words()
    assert "".join(word.text for word in words) == LONG.replace(" ", "")
    assert len(found.sentences()) == 8
    ordinary = found.scores[~found.special_mask]
    assert math.fsum(word.score for word in words) == pytest.approx(math.fsum(ordinary), rel=1e-12)
    assert np.all(ordinary > 0)


def test_the_certificate_is_the_worst_of_the_windows(ex):
    windows = Windows()(whole(LONG), ex.runner.limit)
    alone = explain_alone(ex, windows, "agf")
    found = ex(LONG, "agf", 1, windows=True).certificate
    each = [att.certificate for att in alone if att.certificate is not None]
    assert found.converged
    assert not found.dead
    assert found.edges == sum(c.edges for c in each)
    assert found.iterations == max(c.iterations for c in each)
    assert found.cut == pytest.approx(sum(w.weight * c.cut for w, c in zip(windows, each, strict=True)))
    assert found.cut - found.gap == pytest.approx(ex(LONG, "agf", 1, windows=True).scores.sum())
    bad = [replace(each[0], converged=False, dual=0.5), *each[1:]]
    aim = ex.head.outputs(torch.tensor([[0.0, 1.0, 0.0]]), [whole(LONG)], [1])[0]
    changed = [replace(a, certificate=c) for a, c in zip(alone, bad, strict=True)]
    merged = merge(whole(LONG), windows, changed, aim).certificate
    assert merged is not None
    assert not merged.converged
    assert merged.dual == 0.5


def test_warnings_say_how_many_windows_they_come_from(ex):
    windows = Windows()(whole(LONG), ex.runner.limit)
    alone = explain_alone(ex, windows, "grads")
    alone[1] = replace(alone[1], diagnostics={"warning": "off", "replacement": "pad"})
    aim = ex.head.outputs(torch.tensor([[0.0, 1.0, 0.0]]), [whole(LONG)], [1])[0]
    facts = merge(whole(LONG), windows, alone, aim).diagnostics
    assert facts["warning"] == f"off (in 1 of {len(windows)} windows)"
    assert facts["replacement"] == "pad"


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_of_many_texts_run_together_as_each_alone(family):
    ex = gaflow.Explainer(*FAMILIES[family]())
    texts = [LONG, SENTENCE, (SENTENCE, LONG)] if family != "gpt2" else [LONG, SENTENCE]
    together = ex(texts, "attgrads", "neutral", windows=True, batch_size=4)
    for text, found in zip(texts, together, strict=True):
        alone = ex(text, "attgrads", "neutral", windows=True, batch_size=1)
        assert found.tokens == alone.tokens
        assert found.diagnostics == alone.diagnostics
        assert_close(found.scores, alone.scores, rtol=1e-3, atol=1e-5 * np.abs(alone.scores).max())
    assert "windows" not in together[1].diagnostics


def test_a_decoder_without_special_tokens_is_read_in_windows():
    model, tokenizer = gpt2()
    tokenizer = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>")
    found = gaflow.Explainer(model, tokenizer)(LONG, "agf", windows=True)
    assert number(found, "windows") > 2
    assert found.layers is not None
    assert found.scores.sum() == pytest.approx(found.layers[-1].sum())


def test_comparing_methods_in_windows_gives_what_each_gives_alone(ex):
    found = ex.compare(LONG, ["agf", "rollout", "ig"], windows=True)
    assert list(found) == ["agf", "rollout", "ig"]
    for name, att in found.items():
        assert_close(att.scores, ex(LONG, name, windows=True).scores, rtol=1e-4, atol=1e-8)


def test_the_one_liner_takes_windows():
    model, tokenizer = bert()
    found = gaflow.explain(LONG, model, "grads", tokenizer=tokenizer, windows=Windows(size=30))
    assert number(found, "window_tokens") <= 30


def test_progress_grows_to_the_number_of_texts(ex):
    told = []
    ex([LONG, SENTENCE], "ig", windows=True, batch_size=2, progress=lambda done, total: told.append((done, total)))
    assert {total for _, total in told} == {2}
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == pytest.approx(2)
    assert len(counts) > 5
    told.clear()
    ex.compare(LONG, ["grads", "ig"], windows=True, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (pytest.approx(2), 2)


def test_a_solver_that_fails_names_the_text(ex):
    failed: Any = None

    @dataclass(frozen=True)
    class Failing:
        name: str = "failing"

        def __call__(self, trace):
            raise SolveError("no luck", failed, [len(trace.mask) - 1])

    with pytest.raises(SolveError, match=r"texts\[0\]: no luck") as caught:
        ex([LONG], Failing(), windows=True)
    assert caught.value.items == [0]


def test_what_cannot_be_meant_is_refused(ex):
    with pytest.raises(ValueError, match="truncation and windows are both set"):
        ex(SENTENCE, windows=True, truncation=True)
    with pytest.raises(TypeError, match=r"windows must be True, False or a gaflow\.Windows, not int"):
        ex(SENTENCE, windows=3)
    with pytest.raises(
        TextError, match=r"takes 64; shorten it or pass truncation=True .*, or windows=True to read all"
    ):
        ex(LONG)
    with pytest.raises(ValueError, match="windows of 100 tokens are too long: the model takes 64"):
        ex(SENTENCE, windows=Windows(size=100))
    wrongs: list[dict[str, Any]] = [{"size": 0}, {"size": 2.5}, {"reads": 0}, {"reads": True}, {"reads": None}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="must be a whole number >= 1"):
            Windows(**wrong)
    with pytest.raises(UnsupportedModelError, match="reading in windows is about the classes of whole texts"):
        gaflow.Explainer(*tagger())(SENTENCE, windows=True)
    encoding = whole(LONG)
    placed = replace(encoding, inputs={**encoding.inputs, "position_ids": list(range(len(encoding)))})
    with pytest.raises(TextError, match="positions of its own"):
        Windows()(placed, 64)


def test_a_model_without_limit_reads_all_at_once_unless_a_size_is_given():
    encoding = whole(LONG)
    assert [window.encoding for window in Windows()(encoding, None)] == [encoding]
    assert len(Windows(size=20)(encoding, None)) > 5


def test_a_merged_result_is_stored_and_shown_like_any_other(ex, tmp_path):
    found = ex(LONG, windows=True)
    found.save(tmp_path / "long.safetensors")
    assert gaflow.load(tmp_path / "long.safetensors") == found
    page = found.to_html(words=True)
    assert "windows" in page
    assert found.at_layer(1).scores.sum() == pytest.approx(found.scores.sum())
    assert "The flow was not kept" in found.to_flow_html()


def test_positions_of_a_model_that_counts_from_padding_are_within_its_table():
    found = gaflow.Explainer(*roberta())(LONG, "grads", windows=Windows(reads=1))
    assert number(found, "window_tokens") <= 64


def test_a_signed_result_in_windows_can_be_saved_beside_one_that_fits(ex, tmp_path):
    short, long = ex(["a good film", LONG], "signed_flow", windows=True)
    assert short.flow_against is not None
    assert (long.flow, long.flow_against) == (None, None)
    long.save(tmp_path / "long.safetensors")
    assert gaflow.load(tmp_path / "long.safetensors") == long
