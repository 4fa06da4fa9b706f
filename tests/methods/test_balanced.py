"""Balanced gradients of whole models."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from gaflow.errors import ArgumentError, UnsupportedModelError
from gaflow.methods.balanced import check_gradients, common_kind, forward_with, with_gradients
from gaflow.models.restore import borrow
from gaflow.models.tracing import backward
from tests.support.bert_by_hand import Bert
from tests.support.models import FAMILIES, SENTENCE, bert
from tests.support.relevance import changed
from tests.support.tracing import SHORT, logit_terms, make_batch, state, trace_logit

KINDS = ("balanced", "balanced_cp")
SINGLE = ("modernbert",)  # its mask of float64 is infinite in eager attention
families = pytest.mark.parametrize("family", FAMILIES)
kinds = pytest.mark.parametrize("kind", KINDS)


def make(family, biases=True):
    model, tokenizer = FAMILIES[family]()
    if family not in SINGLE:
        model = model.double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.copy_(torch.linspace(-0.1, 0.2, len(weight)) * biases)
    return model, tokenizer


def plain_and_balanced(family, kind, biases=True, texts=(SENTENCE, SHORT)):
    model, tokenizer = make(family, biases)
    plain = trace_logit(model, make_batch(tokenizer, texts), residual=True)
    return plain, with_gradients(plain, kind)


def layer_sums(trace):
    """`sum_i <dy/dh_i, h_i>` of every layer, (l+1, b)."""
    sums = []
    for state_, gradient in zip(trace.hidden, trace.hidden_gradient, strict=True):
        sums.append((state_ * gradient).sum(-1).masked_fill(~trace.mask, 0).sum(-1))
    return torch.stack(sums)


@families
@kinds
def test_values_are_bit_identical(family, kind):
    plain, balanced = plain_and_balanced(family, kind)
    assert (plain.gradient_kind, balanced.gradient_kind) == ("plain", kind)
    for ours, theirs in (
        ([balanced.logits, balanced.output], [plain.logits, plain.output]),
        (balanced.hidden, plain.hidden),
        (balanced.attentions, plain.attentions),
        (balanced.stream, plain.stream),
    ):
        assert all(torch.equal(x, y) for x, y in zip(ours, theirs, strict=True))
    assert not torch.allclose(balanced.gradient, plain.gradient, rtol=0.1)


@families
def test_with_constant_attention_every_layer_of_a_model_without_biases_sums_to_the_output(family):
    _, balanced = plain_and_balanced(family, "balanced_cp", biases=False)
    tolerance = 1e-4 if family in SINGLE else 1e-9
    assert torch.allclose(layer_sums(balanced), balanced.output.expand(len(balanced.hidden), -1), rtol=tolerance)


class Scores(TorchFunctionMode):
    """Records what each softmax is given."""

    def __init__(self):
        super().__init__()
        self.recorded = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") == "softmax":
            self.recorded.append(args[0].detach())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "albert", "gpt2"])
def test_with_the_half_rule_what_a_layer_loses_is_the_constant_part_of_its_softmax(family):
    model, tokenizer = make(family, biases=False)
    plain = trace_logit(model, make_batch(tokenizer), residual=True)
    with Scores() as scores:
        balanced = with_gradients(plain, "balanced")
    losses = []
    for a, g, s in zip(balanced.attentions, balanced.gradients, scores.recorded, strict=True):
        carried = a * g
        through_softmax = (carried - a * carried.sum(-1, keepdim=True)) * s.masked_fill(a == 0, 0)
        losses.append((carried - through_softmax).sum((1, 2, 3)))
    sums = layer_sums(balanced)
    assert torch.allclose(sums[-1], balanced.output, rtol=1e-9)
    assert torch.allclose(sums[1:] - sums[:-1], torch.stack(losses), rtol=1e-9)


@kinds
def test_the_gradients_of_bert_are_those_worked_out_by_hand(kind):
    model, tokenizer = make("bert")
    batch = make_batch(tokenizer, [SENTENCE])
    balanced: Any = with_gradients(trace_logit(model, batch, 1, residual=True), kind)
    by_hand = Bert(model, batch.inputs["input_ids"][0].numpy())
    attention, hidden, sums = by_hand.balanced(np.eye(3)[1], half=kind == "balanced")
    for ours, theirs in (
        (balanced.gradients, attention),
        (balanced.hidden_gradient, hidden),
        (balanced.stream_gradient, sums),
    ):
        for x, y in zip(ours, theirs, strict=True):
            assert np.allclose(x[0].numpy(), y, rtol=1e-9, atol=1e-12)


@families
@kinds
def test_a_batch_gives_what_each_text_alone_gives_and_padding_changes_nothing(family, kind):
    together: Any
    alone: Any
    _, together = plain_and_balanced(family, kind)
    assert not together.mask.all()
    for item, text in enumerate((SENTENCE, SHORT)):
        _, alone = plain_and_balanced(family, kind, texts=(text,))
        n = alone.mask.shape[1]
        for ours, theirs in zip(together.gradients, alone.gradients, strict=True):
            assert ours[item, :, n:].abs().sum() == ours[item, :, :, n:].abs().sum() == 0
            assert_near(ours[item, :, :n, :n], theirs[0], family)
        for ours, theirs in zip(together.hidden_gradient, alone.hidden_gradient, strict=True):
            assert_near(ours[item, :n], theirs[0], family)


def assert_near(x, y, family):
    tolerance = 1e-4 if family in SINGLE else 1e-9
    assert (x - y).abs().max() <= tolerance * y.abs().max()


@families
def test_the_model_is_left_as_found(family):
    model, tokenizer = make(family)
    model.train()
    for k, weight in enumerate(model.parameters()):
        weight.requires_grad_(k % 3 == 0)
    before = state(model)
    plain = trace_logit(model, make_batch(tokenizer))
    with_gradients(plain, "balanced")
    assert state(model) == before
    assert not any("_gaflow_mark" in vars(tensor) for tensor in [*model.parameters(), *model.buffers()])


def test_embeddings_that_replace_the_models_own_give_the_same_gradients():
    model, tokenizer = make("roberta")
    batch = make_batch(tokenizer)
    terms = logit_terms(batch)
    embeddings = model.get_input_embeddings()(batch.inputs["input_ids"]).detach().requires_grad_()
    with borrow(model):
        usual = backward(forward_with("balanced", model, batch), terms)
        replaced = backward(forward_with("balanced", model, batch, embeddings=embeddings), terms)
    assert torch.equal(usual.gradient, replaced.gradient)


def test_one_trace_of_a_kind_serves_all_and_dies_with_the_plain_one():
    model, tokenizer = make("bert")
    plain = trace_logit(model, make_batch(tokenizer))
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    first, second = with_gradients(plain, "balanced"), with_gradients(plain, "balanced")
    assert len(passes) == 1
    assert first.gradients[0] is second.gradients[0]
    assert with_gradients(first, "balanced") is first
    gone = weakref.ref(first.gradients[0])
    del plain, first, second
    gc.collect()
    assert gone() is None


def test_an_operation_without_a_rule_is_an_error_that_names_it():
    model, tokenizer = changed(torch.sin)
    plain = trace_logit(model, make_batch(tokenizer))
    with pytest.raises(UnsupportedModelError, match=r"torch\.sin"):
        with_gradients(plain, "balanced")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, *gradients):
        return 2 * gradients[0]


def test_an_operation_that_torch_does_not_show_is_an_error_wherever_it_is():
    for module in ("classifier", "dropout"):
        model, tokenizer = bert()
        getattr(model, module).register_forward_hook(lambda _module, _inputs, output: Doubled.apply(output))
        plain = trace_logit(model, make_batch(tokenizer))
        with pytest.raises(UnsupportedModelError, match="torch"):
            with_gradients(plain, "balanced")


def test_kinds_are_checked_and_shared():
    with pytest.raises(ArgumentError, match="gradients"):
        check_gradients("balance")

    class Balanced:
        gradients = "balanced"

    assert common_kind([Balanced(), Balanced()]) == "balanced"
    assert common_kind([Balanced(), object()]) == "plain"
    assert common_kind([object()]) == "plain"
