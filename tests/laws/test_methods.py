"""What holds for every method on every model family; a method added to METHODS is covered without further ado."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import gaflow
from gaflow.methods import METHODS, FlowMethod, IntegratedGradients, KernelShap, Lime
from tests.support.models import FAMILIES, SENTENCE
from tests.support.traces import TraceRecorder, count_backward_passes
from tests.support.tracing import state

TEXTS = (SENTENCE, ("a good film", "and bad"), "smart.")  # longest first, as the explainer puts them into a batch
# Methods that ask the model often ask less often here: the laws hold for any settings.
QUICK = {
    "peeled_flow": FlowMethod(preset="peeled_flow", rounds=2, share=0.4), "ig": IntegratedGradients(steps=3),
    "kernel_shap": KernelShap(samples=40), "lime": Lime(samples=20),
}  # fmt: skip
# In eager attention this model's softmax is in float32, where the mask of float64 is infinite and padding becomes NaN.
SINGLE = ("modernbert",)

everywhere = pytest.mark.parametrize(("name", "family"), [(name, family) for family in FAMILIES for name in METHODS])


def method(name):
    return QUICK.get(name, METHODS[name])


@cache
def explainer(family):
    model, tokenizer = FAMILIES[family]()
    subject = gaflow.Explainer(model if family in SINGLE else model.double(), tokenizer)
    subject("a dog", "agf")  # shows once whether the model can be streamed, which takes two passes
    return subject


@cache
def traced(family, texts=TEXTS, target=1):
    recorder = TraceRecorder()
    explainer(family)(list(texts), recorder, target, batch_size=len(texts))
    (trace,) = recorder.traces
    return trace


@cache
def scores(name, family, texts=TEXTS, target=1):
    with torch.no_grad():
        result = method(name)(traced(family, texts, target))
    assert result.values.shape == traced(family, texts, target).mask.shape
    return result.values.double().numpy()


def assert_close(actual, expected, family):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= (1e-4 if family in SINGLE else 1e-8) * np.abs(expected).max()


@everywhere
def test_scores_are_finite_and_zero_at_padding_and_somewhere_not(name, family):
    values, mask = scores(name, family), traced(family).mask.numpy()
    assert not mask.all()
    assert np.isfinite(values).all()
    assert (values[~mask] == 0).all()
    assert (np.abs(values).max(1) > 0).all()


@everywhere
def test_a_batch_gives_what_each_text_alone_gives(name, family):
    together = scores(name, family)
    for k, text in enumerate(TEXTS):
        alone = scores(name, family, (text,))
        assert_close(together[k, : alone.shape[1]], alone[0], family)


@everywhere
def test_what_padding_holds_changes_nothing(name, family):
    trace = traced(family)
    padding = ~trace.mask
    poisoned = replace(
        trace,
        hidden=tuple(h.masked_fill(padding[..., None], torch.nan) for h in trace.hidden),
        hidden_gradient=tuple(g if g is None else g.masked_fill(padding[..., None], 7) for g in trace.hidden_gradient),
        stream=tuple(s.masked_fill(padding[..., None], torch.nan) for s in trace.stream),
        stream_gradient=tuple(g.masked_fill(padding[..., None], 7) for g in trace.stream_gradient),
    )
    assert np.array_equal(method(name)(poisoned).values.double().numpy(), scores(name, family))


@everywhere
def test_the_same_text_has_the_same_scores_whatever_was_drawn_before(name, family):
    before = scores(name, family)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (what a library may draw from)
    torch.manual_seed(1)
    again = method(name)(traced.__wrapped__(family)).values.double().numpy()
    assert np.array_equal(again, before)


@everywhere
def test_another_class_changes_class_specific_scores_and_no_others(name, family):
    one, other = scores(name, family), scores(name, family, target=2)
    if METHODS[name].info.class_specific:
        assert (np.abs(one - other).max(1) > 1e-6 * np.abs(one).max(1)).all()
    else:
        assert_close(one, other, family)


@pytest.mark.parametrize("name", METHODS)
def test_scores_are_below_zero_only_where_a_method_says_so(name):
    lowest = min(scores(name, family).min() for family in FAMILIES)
    assert (lowest < 0) == METHODS[name].info.signed


@everywhere
def test_the_model_is_left_as_found(name, family):
    subject = explainer(family)
    try:
        subject.model.train()
        for k, weight in enumerate(subject.model.parameters()):
            weight.requires_grad_(k % 3 == 0)
        before = state(subject.model)
        subject(list(TEXTS), method(name))
        assert state(subject.model) == before
    finally:
        subject.model.eval().requires_grad_(True)


class Boom(Exception):
    pass


@everywhere
def test_the_model_is_left_as_found_when_it_fails_and_one_trace_is_one_pass(name, family):
    subject = explainer(family)
    passes = []

    def fail(*_):
        passes.append(1)
        if len(passes) > 1:
            raise Boom

    last = list(subject.model.modules())[-1]  # a part of the head: all the rest has run
    handle = last.register_forward_hook(fail)
    try:
        before = state(subject.model)
        if METHODS[name].info.one_trace:
            subject(SENTENCE, method(name))
            assert len(passes) == 1
        else:
            with pytest.raises(Boom):
                subject(SENTENCE, method(name))
        assert state(subject.model) == before
    finally:
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["plain", "balanced"])
def test_the_methods_of_one_trace_together_take_one_forward_and_one_backward(family, kind, monkeypatch):
    subject = explainer(family)
    one_trace = [name for name in METHODS if METHODS[name].info.one_trace]
    names = [name for name in one_trace if getattr(METHODS[name], "gradients", "plain") == kind]
    expected = {
        "plain": {"rawatt", "rollout", "grads", "attgrads", "gradsam", "cat", "attcat", "af", "gf", "agf"},
        "balanced": {"relevance_flow", "attnlrp"},
    }
    assert expected[kind] <= set(names)
    calls = []
    count_backward_passes(monkeypatch, lambda _outputs: calls.append("backward"))
    handle = subject.model.register_forward_pre_hook(lambda *_: calls.append("forward"))
    try:
        attributions = subject.compare(SENTENCE, names)
    finally:
        handle.remove()
    assert calls == ["forward", "backward"]
    assert list(attributions) == names


@pytest.mark.parametrize("family", FAMILIES)
def test_comparing_gives_what_each_method_alone_gives(family):
    attributions = explainer(family).compare(TEXTS[1], [method(name) for name in METHODS], target=1)
    for name, (called, att) in zip(METHODS, attributions.items(), strict=True):
        assert called == att.method == method(name).name
        assert_close(att.scores, scores(name, family, (TEXTS[1],))[0], family)
