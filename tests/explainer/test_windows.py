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


def encode_all(text, pair=None, tokenizer=None):
    return encode(tokenizer or wordpiece(), [text if pair is None else (text, pair)])[0]


def explain_alone(ex, windows, method):
    """The attributions of class 1 for windows of a text, in one batch."""
    encodings = [window.encoding for window in windows]
    batch = explain_batch(ex.runner, encodings, [1] * len(windows), [METHODS[method]])
    return [by_method[method] for by_method in batch.by_text]


def assert_close(actual, expected, rtol=1e-5, atol=1e-9):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


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
    encoding = encode_all("dog " * count)
    windows = Windows(reads=reads)(encoding, 10)
    times = [sum(k in window.positions for window in windows) for k in range(len(encoding))]
    assert times == [len(windows), *[reads] * count, len(windows)]
    assert max(len(window.encoding) for window in windows) <= 10
    assert math.fsum(window.weight for window in windows) == pytest.approx(1, abs=1e-15)


def test_windows_are_runs_of_chunks_of_one_length_weighted_by_their_tokens():
    windows = Windows(reads=2)(encode_all("dog " * 12), 8)
    runs = [(window.positions[1] - 1, window.positions[-2]) for window in windows]
    assert runs == [(0, 3), (0, 6), (3, 9), (6, 12), (9, 12)]
    assert [window.weight * 24 for window in windows] == pytest.approx([3, 6, 6, 6, 3])
    apart = Windows(reads=1)(encode_all("dog " * 13), 8)
    assert [len(window.positions) - 2 for window in apart] == [4, 4, 5]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_window_is_what_the_tokenizer_makes_of_the_beginning_of_a_text(name):
    tokenizer = TOKENIZERS[name]()
    encoding = encode_all(LONG, tokenizer=tokenizer)
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
    texts = ["is this dog cute", "dog " * 30]
    encoding = encode_all(*(texts if long else texts[::-1]))
    for window in Windows()(encoding, 16):
        segments = window.encoding.segments
        assert segments.count(1 - long) == 4
        assert segments.count(-1) == 3
        assert len(segments) <= 16
        assert window.encoding.inputs["token_type_ids"] == [
            encoding.inputs["token_type_ids"][k] for k in window.positions
        ]


def test_a_pair_whose_shorter_text_leaves_no_room_is_refused():
    with pytest.raises(TextError, match=r"text.*15 of the 16"):
        Windows()(encode_all("dog " * 12, "is " * 30), 16)
    with pytest.raises(TextError, match=r"2 of the 3.*size"):
        Windows(size=3, reads=2)(encode_all("dog dog dog"), 16)


@pytest.mark.parametrize("windows", [True, Windows(), Windows(reads=4), Windows(size=40)])
@pytest.mark.parametrize("text", [SENTENCE, ("is this dog cute?", SENTENCE)])
def test_a_text_that_fits_has_the_plain_result(ex, text, windows):
    assert timeless(ex(text, windows=windows)) == timeless(ex(text))
    assert timeless(ex([text, text], windows=windows)[1]) == timeless(ex([text, text])[1])


@pytest.mark.parametrize("method", ["agf", "ig", "grads", "rollout", "attention_flow", "transatt"])
def test_scores_layers_and_output_are_the_weighted_sums_of_those_of_the_windows(ex, method):
    settings = Windows(size=50, reads=3)
    encoding = encode_all(LONG)
    windows = settings(encoding, ex.runner.limit)
    assert len(windows) > 5
    merged = ex(LONG, method, "positive", windows=settings)
    scores, output = np.zeros(len(encoding)), 0.0
    for window in windows:
        (alone,) = explain_alone(ex, [window], method)
        scores[list(window.positions)] += window.weight * alone.scores
        output += window.weight * alone.output
    assert_close(merged.scores, scores, rtol=1e-3, atol=1e-6 * np.abs(scores).max())
    assert merged.output == pytest.approx(output, rel=1e-5)
    if merged.layers is not None:
        layers = merged.layers.sum(1)
        assert_close(layers, np.full_like(layers, merged.scores.sum()))
        assert_close(merged.layers[0], merged.scores)


def test_the_model_predicts_the_mean_of_the_logits_of_the_windows(ex):
    windows = Windows()(encode_all(LONG), ex.runner.limit)
    logits = []
    for window in windows:
        inputs = {name: torch.tensor([values]) for name, values in window.encoding.inputs.items()}
        with torch.no_grad():
            logits.append(ex.model(**inputs).logits[0].double() * window.weight)
    mean = torch.stack(logits).sum(0)
    merged = ex(LONG, "grads", windows=True)
    assert merged.target == mean.argmax().item()
    assert merged.label == merged.prediction == ex.head.labels[merged.target]
    assert merged.output == pytest.approx(mean.max().item(), rel=1e-5)
    assert merged.probability == pytest.approx(mean.softmax(0).max().item(), rel=1e-5)
    best = ex.predictions(LONG, windows=True)
    assert [p.target for p in best] == mean.argsort(descending=True).tolist()
    assert best[0].probability == pytest.approx(merged.probability, rel=1e-5)
    contrast = ex(LONG, "grads", "neutral minus positive", windows=True)
    assert contrast.output == pytest.approx((mean[2] - mean[1]).item(), rel=1e-5)
    assert contrast.prediction == merged.label


def test_what_adds_up_in_a_window_adds_up_over_the_whole_text(ex):
    merged = ex(LONG, "ig", windows=True)
    assert merged.scores.sum() == pytest.approx(
        merged.output - float(merged.diagnostics["baseline_output"]) + float(merged.diagnostics["convergence_delta"]),
        abs=1e-5,
    )


def test_the_result_says_that_it_was_read_in_windows_and_is_about_the_whole_text(ex):
    merged = ex(LONG, "agf", windows=True)
    windows = Windows()(encode_all(LONG), ex.runner.limit)
    assert merged.diagnostics["windows"] == len(windows)
    assert merged.diagnostics["window_tokens"] == max(len(window.positions) for window in windows) <= ex.runner.limit
    assert merged.output_name == f"mean logit of {len(windows)} windows"
    assert merged.text == LONG
    assert not merged.truncated
    assert merged.flow is None
    assert merged.tokens == encode_all(LONG).tokens
    assert merged.offsets == encode_all(LONG).offsets
    words = merged.words()
    assert "".join(word.text for word in words) == LONG.replace(" ", "")
    assert len(merged.sentences()) == 8
    ordinary = merged.scores[~merged.special_mask]
    assert math.fsum(word.score for word in words) == pytest.approx(math.fsum(ordinary), rel=1e-12)
    assert np.all(ordinary > 0)


def test_the_certificate_is_the_worst_of_the_windows(ex):
    windows = Windows()(encode_all(LONG), ex.runner.limit)
    alone = explain_alone(ex, windows, "agf")
    certificate = ex(LONG, "agf", 1, windows=True).certificate
    certificates = [att.certificate for att in alone if att.certificate is not None]
    assert certificate.converged
    assert not certificate.dead
    assert certificate.edges == sum(c.edges for c in certificates)
    assert certificate.iterations == max(c.iterations for c in certificates)
    assert certificate.cut == pytest.approx(sum(w.weight * c.cut for w, c in zip(windows, certificates, strict=True)))
    assert certificate.cut - certificate.gap == pytest.approx(ex(LONG, "agf", 1, windows=True).scores.sum())
    bad = [replace(certificates[0], converged=False, dual=0.5), *certificates[1:]]
    aim = ex.head.outputs(torch.tensor([[0.0, 1.0, 0.0]]), [encode_all(LONG)], [1])[0]
    changed = [replace(a, certificate=c) for a, c in zip(alone, bad, strict=True)]
    merged = merge(encode_all(LONG), windows, changed, aim).certificate
    assert merged is not None
    assert not merged.converged
    assert merged.dual == 0.5


def test_warnings_say_how_many_windows_they_come_from(ex):
    windows = Windows()(encode_all(LONG), ex.runner.limit)
    alone = explain_alone(ex, windows, "grads")
    alone[1] = replace(alone[1], diagnostics={"warning": "off", "replacement": "pad"})
    aim = ex.head.outputs(torch.tensor([[0.0, 1.0, 0.0]]), [encode_all(LONG)], [1])[0]
    facts = merge(encode_all(LONG), windows, alone, aim).diagnostics
    assert facts["warning"] == f"off (in 1 of {len(windows)} windows)"
    assert facts["replacement"] == "pad"


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_of_many_texts_run_together_as_each_alone(family):
    ex = gaflow.Explainer(*FAMILIES[family]())
    texts = [LONG, SENTENCE, (SENTENCE, LONG)] if family != "gpt2" else [LONG, SENTENCE]
    together = ex(texts, "attgrads", "neutral", windows=True, batch_size=4)
    for text, att in zip(texts, together, strict=True):
        alone = ex(text, "attgrads", "neutral", windows=True, batch_size=1)
        assert att.tokens == alone.tokens
        assert att.diagnostics == alone.diagnostics
        assert_close(att.scores, alone.scores, rtol=1e-3, atol=1e-5 * np.abs(alone.scores).max())
    assert "windows" not in together[1].diagnostics


def test_a_decoder_without_special_tokens_is_read_in_windows():
    model, tokenizer = gpt2()
    tokenizer = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>")
    merged = gaflow.Explainer(model, tokenizer)(LONG, "agf", windows=True)
    assert number(merged, "windows") > 2
    assert merged.layers is not None
    assert merged.scores.sum() == pytest.approx(merged.layers[-1].sum())


def test_comparing_methods_in_windows_gives_what_each_gives_alone(ex):
    attributions = ex.compare(LONG, ["agf", "rollout", "ig"], windows=True)
    assert list(attributions) == ["agf", "rollout", "ig"]
    for name, att in attributions.items():
        assert_close(att.scores, ex(LONG, name, windows=True).scores, rtol=1e-4, atol=1e-8)


def test_the_one_liner_takes_windows():
    model, tokenizer = bert()
    merged = gaflow.explain(LONG, model, "grads", tokenizer=tokenizer, windows=Windows(size=30))
    assert number(merged, "window_tokens") <= 30


def test_progress_grows_to_the_number_of_texts(ex):
    reports = []
    ex([LONG, SENTENCE], "ig", windows=True, batch_size=2, progress=lambda done, total: reports.append((done, total)))
    assert {total for _, total in reports} == {2}
    counts = [done for done, _ in reports]
    assert counts == sorted(counts)
    assert counts[-1] == pytest.approx(2)
    assert len(counts) > 5
    reports.clear()
    ex.compare(LONG, ["grads", "ig"], windows=True, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (pytest.approx(2), 2)


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
    with pytest.raises(ValueError, match=r"truncation.*windows"):
        ex(SENTENCE, windows=True, truncation=True)
    with pytest.raises(TypeError, match=r"windows.*Windows.*3"):
        ex(SENTENCE, windows=3)
    with pytest.raises(TextError, match=r"64.*truncation=True.*windows=True"):
        ex(LONG)
    with pytest.raises(ValueError, match=r"100.*64"):
        ex(SENTENCE, windows=Windows(size=100))
    wrongs: list[dict[str, Any]] = [{"size": 0}, {"size": 2.5}, {"reads": 0}, {"reads": True}, {"reads": None}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="whole number >= 1"):
            Windows(**wrong)
    with pytest.raises(UnsupportedModelError, match=r"windows.*classes"):
        gaflow.Explainer(*tagger())(SENTENCE, windows=True)
    encoding = encode_all(LONG)
    placed = replace(encoding, inputs={**encoding.inputs, "position_ids": list(range(len(encoding)))})
    with pytest.raises(TextError, match="positions of its own"):
        Windows()(placed, 64)


def test_a_model_without_limit_reads_all_at_once_unless_a_size_is_given():
    encoding = encode_all(LONG)
    assert [window.encoding for window in Windows()(encoding, None)] == [encoding]
    assert len(Windows(size=20)(encoding, None)) > 5


def test_a_merged_result_is_stored_and_shown_like_any_other(ex, tmp_path):
    merged = ex(LONG, windows=True)
    merged.save(tmp_path / "long.safetensors")
    assert gaflow.load(tmp_path / "long.safetensors") == merged
    page = merged.to_html(words=True)
    assert "windows" in page
    assert merged.at_layer(1).scores.sum() == pytest.approx(merged.scores.sum())
    assert "The flow was not kept" in merged.to_flow_html()


def test_positions_of_a_model_that_counts_from_padding_are_within_its_table():
    merged = gaflow.Explainer(*roberta())(LONG, "grads", windows=Windows(reads=1))
    assert number(merged, "window_tokens") <= 64


def test_a_signed_result_in_windows_can_be_saved_beside_one_that_fits(ex, tmp_path):
    short, long = ex(["a good film", LONG], "relevance_flow", windows=True)
    assert short.flow_against is not None
    assert (long.flow, long.flow_against) == (None, None)
    long.save(tmp_path / "long.safetensors")
    assert gaflow.load(tmp_path / "long.safetensors") == long
