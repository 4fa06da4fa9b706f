from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import GaflowError, MissingExtraError, SolveError, UnsupportedModelError
from gaflow.explainer.batch import Timings
from gaflow.explainer.many import attempt, explain_many, plan_batches, prepare_each
from gaflow.explainer.windows import Windows
from gaflow.methods import METHODS, Scores
from tests.support.models import TEXTS, bert

EXPLAINER = gaflow.Explainer(*bert())
PLAIN = [METHODS["attcat"], METHODS["rawatt"]]


@dataclass(frozen=True)
class Fails:
    """Fails on batches in which a text holds `word`."""

    word: str
    error: Exception
    name: str = "fails"

    def __call__(self, trace):
        if any(self.word in e.text for e in trace.require_model().batch.encodings):
            raise self.error
        return Scores(trace.mask.double())


def results(texts, methods, truncation=False, windows=None, **options) -> list[Any]:
    runner = EXPLAINER.runner
    prepared = prepare_each(runner, texts, None, truncation=truncation, windows=windows)
    in_any_order = list(explain_many(runner, prepared, methods, on_error="collect", **options))
    in_order = sorted(in_any_order, key=lambda of_text: of_text.index)
    assert [of_text.index for of_text in in_order] == list(range(len(texts)))
    return in_order


def test_every_text_gets_what_a_comparison_gives_it():
    for text, several in zip(TEXTS, results(TEXTS, PLAIN, batch_size=3), strict=True):
        expected = EXPLAINER.compare(text, ["attcat", "rawatt"])
        assert list(several.by_method) == list(expected)
        for name, att in expected.items():
            np.testing.assert_allclose(several.by_method[name].scores, att.scores, atol=1e-6)
            assert several.by_method[name].text == text
            assert several.logits[att.target] == pytest.approx(att.output, abs=1e-5)
            assert len(several.logits) == len(EXPLAINER.head.labels)


@dataclass(frozen=True)
class CountsTokens:
    """Records how many tokens, padding included, each batch has."""

    shapes: list
    name: str = "counts_tokens"

    def __call__(self, trace):
        self.shapes.append(tuple(trace.mask.shape))
        return Scores(trace.mask.double())


def test_short_texts_do_no_work_for_the_long_one_that_they_are_explained_with():
    explainer = gaflow.Explainer()  # large enough that padding costs more than a batch
    shapes = []
    explainer(["good " * 30, "a film " * 200, "bad " * 30], CountsTokens(shapes))
    assert shapes == [(1, 402), (2, 32)]


def test_one_trace_serves_all_methods_of_a_text():
    traced = []

    def count(model, args, inputs):
        traced.append(len(inputs["input_ids"]))

    hook = EXPLAINER.model.register_forward_pre_hook(count, with_kwargs=True)
    results(TEXTS, [*PLAIN, METHODS["random"]], batch_size=4)
    hook.remove()
    assert sum(traced) == len(TEXTS)


def test_a_failure_costs_the_text_and_the_method_that_failed_and_nothing_else():
    flow: gaflow.Flow = None  # type: ignore[assignment]
    methods = [PLAIN[0], Fails("dog", SolveError("no convergence", flow, [0])), PLAIN[1]]
    outcomes = results(TEXTS, methods, batch_size=8)
    for text, several in zip(TEXTS, outcomes, strict=True):
        assert (
            several.by_method["fails"] == "SolveError: no convergence"
            if "dog" in text
            else several.by_method["fails"].scores.all()
        )
        assert np.isfinite(several.by_method["attcat"].scores).all()
        assert np.isfinite(several.by_method["rawatt"].scores).all()
        assert several.logits is not None


def test_a_text_that_cannot_be_read_is_told_for_every_method():
    long = "dog " * 80
    outcomes = results(["a", long, "b", "\u200b"], PLAIN)
    assert "truncation=True" in outcomes[1].by_method["attcat"]
    assert outcomes[1].by_method["attcat"] == outcomes[1].by_method["rawatt"]
    assert outcomes[1].logits is None
    assert outcomes[3].by_method["attcat"].startswith("TextError")
    assert outcomes[0].by_method["attcat"].text == "a"
    cut = results(["a", long], PLAIN, truncation=True)[1].by_method["attcat"]
    assert cut.truncated


def test_long_texts_are_read_in_windows_and_the_others_at_once():
    long = "the dog is not good. " * 20
    outcomes = results(["a", long, "\u200b", "a dog"], PLAIN, windows=Windows())
    for name, att in outcomes[1].by_method.items():
        np.testing.assert_allclose(att.scores, EXPLAINER(long, name, windows=True).scores, rtol=1e-4, atol=1e-9)
    timings = Timings()
    results([long], PLAIN, windows=Windows(), batch_size=2, timings=timings)
    assert timings.trace > 0
    assert set(timings.methods) == {"attcat", "rawatt"}
    mean = EXPLAINER(long, "rawatt", windows=True)
    assert outcomes[1].logits[mean.target] == pytest.approx(mean.output, rel=1e-5)
    assert outcomes[2].by_method["attcat"].startswith("TextError")
    assert outcomes[3].by_method == results(["a", "a dog"], PLAIN)[1].by_method
    failing = results([long, "a dog"], [Fails("dog", ValueError("no")), *PLAIN], windows=Windows())
    assert failing[0].by_method["fails"] == "ValueError: no"
    assert failing[0].by_method["rawatt"].diagnostics["windows"] == mean.diagnostics["windows"]


@pytest.mark.parametrize("windows", [None, Windows(size=16)])
def test_batches_that_are_explained_one_by_one_give_the_numbers_of_all_texts_together(windows):
    texts = [*TEXTS, "dog " * 70, "", *(f"a {'very ' * (k % 7)}smart dog {k}" for k in range(20))]
    together = results(texts, PLAIN, windows=windows, batch_size=4)
    prepared = prepare_each(EXPLAINER.runner, texts, None, windows=windows)
    plan = plan_batches(EXPLAINER.runner, prepared, PLAIN, batch_size=4)
    assert sorted(index for batch in plan for index in batch) == list(range(len(texts)))
    assert max(map(len, plan)) == 4
    for batch in reversed(plan):
        batch_texts = [prepared[index] for index in batch]
        options: Any = {"batch_size": 4, "on_error": "collect", "one_batch": True}
        for of_text in explain_many(EXPLAINER.runner, batch_texts, PLAIN, **options):
            expected = together[batch[of_text.index]]
            assert of_text.logits == expected.logits
            for name, att in of_text.by_method.items():
                if isinstance(att, str):
                    assert att == expected.by_method[name]
                else:
                    assert att.scores.tolist() == expected.by_method[name].scores.tolist()


def test_a_text_that_all_methods_fail_on_has_no_logits():
    (several,) = results(["a dog"], [Fails("dog", ValueError("no"))])
    assert several.by_method == {"fails": "ValueError: no"}
    assert several.logits is None


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedModelError("no attention"),
        MissingExtraError("pip"),
        RuntimeError("device-side assert"),
        TypeError("t"),
    ],
)
def test_what_every_text_would_fail_at_is_raised(error):
    with pytest.raises(type(error)):
        results(["a dog", "a"], [Fails("dog", error)])


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_batch_too_large_for_the_memory_is_halved_until_it_fits(error):
    sizes = []

    def work(items):
        sizes.append(len(items))
        if len(items) > 2:
            raise error
        return items

    assert attempt(range(8), work) == list(range(8))
    assert sizes == [8, 4, 2, 2, 4, 2, 2]


def test_the_one_item_that_fails_is_found():
    def work(items):
        if 5 in items:
            raise GaflowError("five")
        return [10 * k for k in items]

    assert attempt(range(8), work) == [0, 10, 20, 30, 40, "GaflowError: five", 60, 70]
    assert attempt([], work) == []


@dataclass(frozen=True)
class Takes:
    """Lets a clock go on."""

    seconds: float
    clock: list[float]
    name: str

    def __call__(self, trace):
        self.clock[0] += self.seconds
        return Scores(trace.mask.double())


def test_timings_share_the_time_among_trace_and_methods(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("gaflow.explainer.batch.time.perf_counter", lambda: clock[0])
    timings = Timings()
    slow, quick = Takes(2.0, clock, "slow"), Takes(0.5, clock, "quick")
    results(TEXTS[:3], [slow, quick], batch_size=2, timings=timings)
    assert timings.methods == {"slow": 4.0, "quick": 1.0}
    assert timings.trace == 0
    assert timings.peak == {}
