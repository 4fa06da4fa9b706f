"""Path averages: against the rule written out point by point, and against integrated gradients where both agree."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowError
from gaflow.methods import Cat, FlowMethod, IntegratedGradients
from gaflow.methods.path import along_path
from gaflow.text import Padding, collate, encode, neutral_tokens
from gaflow.tracing import Question, trace
from tests.models import FAMILIES, SENTENCE, bert, gpt2
from tests.test_methods_flow import random_trace
from tests.test_tracing import assert_close, first_logit, state

TEXTS = ((SENTENCE, None), ("a good film", "and bad"), ("smart.", None))
SINGLE = ("modernbert",)  # its softmax is in float32 whatever the model is in


def traced(build=bert, texts=TEXTS, residual=True):
    model, tokenizer = build()
    model = model if build is FAMILIES["modernbert"] else model.double()
    padding = Padding.of(model, tokenizer)
    batch = collate(encode(tokenizer, list(texts)), padding, None, neutral_tokens(tokenizer, padding))
    return trace(model, batch, first_logit, residual=residual)


def test_where_embeddings_are_sums_the_average_at_the_input_is_integrated_gradients():
    found = traced(gpt2)
    path = along_path(found, 20)
    gradient = path.hidden_gradient[0]
    assert gradient is not None
    expected = IntegratedGradients(steps=20)(found).values
    assert_close((path.hidden[0] * gradient).sum(-1), expected, 1e-7)  # whose points Captum keeps in float32


@pytest.mark.parametrize("family", FAMILIES)
def test_the_average_is_that_of_single_points(family):
    """The rule written out: one point after the other, by the model's own gradient."""
    found = traced(FAMILIES[family], TEXTS[:1])
    path = along_path(found, 3)
    points, weights = np.polynomial.legendre.leggauss(3)
    question = found.again()
    singles = [_at(question, found, (point + 1) / 2) for point in points]
    tolerance = 1e-4 if family in SINGLE else 1e-9
    expected = sum(w / 2 * one.gradient for w, one in zip(weights, singles, strict=True))
    assert_close(path.gradient, expected, tolerance)
    base = _at(question, found, 0.0)
    for layer in range(len(found.stream)):
        mean = sum(w / 2 * one.stream_gradient[layer] for w, one in zip(weights, singles, strict=True))
        assert_close(path.stream_gradient[layer], mean, tolerance)
        assert_close(path.stream[layer], found.stream[layer] - base.stream[layer], tolerance)
        assert_close(path.hidden[layer], found.hidden[layer] - base.hidden[layer], tolerance)
    assert torch.equal(path.attention, found.attention)


def _at(question: Question, found, part):
    """A trace of the model whose embedding module is shifted towards that of the absent token."""
    model, batch = question.model, question.batch
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    absent = embedding(torch.tensor(batch.neutral["pad"])).detach()
    ordinary = torch.tensor([[s >= 0 for s in batch.encodings[0].segments]])[..., None]
    handle = embedding.register_forward_hook(lambda m, i, o: torch.where(ordinary, absent + part * (o - absent), o))
    try:
        return trace(model, batch, lambda _: question.read, residual=True)
    finally:
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_each_text_alone_gives(family):
    build = FAMILIES[family]
    together = along_path(traced(build), 2)
    tolerance = 1e-4 if family in SINGLE else 1e-9
    for k, text in enumerate(TEXTS):
        alone = along_path(traced(build, [text]), 2)
        n = alone.mask.shape[1]
        assert_close(together.gradient[k : k + 1, ..., :n, :n], alone.gradient, tolerance)
        assert together.gradient[k, ..., n:, :].abs().sum() + together.gradient[k, ..., n:].abs().sum() == 0
        for name in ("hidden", "hidden_gradient", "stream", "stream_gradient"):
            for ours, theirs in zip(getattr(together, name), getattr(alone, name), strict=True):
                assert_close(ours[k : k + 1, :n], theirs, tolerance)
                assert ours[k, n:].abs().sum() == 0


def test_how_many_points_share_a_pass_changes_nothing():
    found = traced(texts=TEXTS[:1])
    passes = []
    handle = found.again().model.register_forward_pre_hook(lambda *_: passes.append(1))
    whole, single = along_path(found, 6), along_path(found, 6, batch_size=1)
    handle.remove()
    assert len(passes) == 1 + 7
    assert_close(whole.gradient, single.gradient, 1e-12)
    assert_close(whole.stream_gradient[1], single.stream_gradient[1], 1e-12)


def test_the_average_converges():
    found = traced(texts=TEXTS[:1])
    rough, fine, finest = (along_path(found, steps).gradient for steps in (4, 16, 64))
    assert (fine - finest).abs().max() < 0.1 * (rough - finest).abs().max()


def test_another_absent_token_is_another_path():
    found = traced(texts=TEXTS[:1])
    assert not torch.allclose(along_path(found, 2, "unk").gradient, along_path(found, 2, "pad").gradient)


def test_the_model_is_left_as_found_and_nothing_is_kept_for_autograd():
    found = traced()
    model = found.again().model
    model.train()
    model.requires_grad_(False)
    before = state(model)
    path = along_path(found, 2)
    assert state(model) == before
    tensors = [path.gradient, *path.hidden, *path.stream, *path.stream_gradient]
    assert not any(x.requires_grad for x in tensors)


def test_a_trace_without_a_model_has_no_path():
    with pytest.raises(GaflowError, match="without one"):
        along_path(random_trace(), 2)


def test_methods_of_a_trace_have_a_path_averaged_twin():
    path = along_path(traced(gpt2), 30)
    whole = Cat()(replace(path, attention=path.attention[:, :1])).values  # the first block alone: the embeddings
    assert_close(whole, IntegratedGradients(steps=30)(traced(gpt2)).values, 1e-7)
    assert torch.equal(FlowMethod("agf", steps=30)(traced(gpt2)).values, FlowMethod("agf")(path).values)
