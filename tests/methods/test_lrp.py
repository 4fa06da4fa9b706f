from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers.models.bert import modeling_bert

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.methods.lrp import propagate
from gaflow.methods.lrp.propagate import _start
from gaflow.methods.lrp.relevance_mode import RelevanceMode
from gaflow.models.embeddings import roots
from gaflow.models.forward import forward
from gaflow.models.restore import borrow
from tests.support.bert_by_hand import Bert
from tests.support.models import FAMILIES, SENTENCE, bert, deberta, gpt2, modernbert
from tests.support.relevance import Wrapped, changed, terms, traced
from tests.support.tracing import SHORT, make_batch, state, trace

TARGETS = [1, (2, 0)]


def assert_close(a, b, tolerance):
    assert tuple(a.shape) == tuple(b.shape)
    scale = float(abs(b).max())
    assert scale > 0
    assert float(abs(a - b).max()) <= tolerance * scale


def everything(model, tokenizer, text, target: Any = 1):
    """Relevance of every hidden state, from the pass itself rather than from `propagate`."""
    recorded = traced(model, tokenizer, [text], target)
    question = recorded.require_model()
    with borrow(model):
        with RelevanceMode(roots(model), 1, torch.float64) as mode:
            outputs = forward(model, question.batch, verify_dependence=True)
        y = question.scalar(outputs.logits, [0])
        _start(y, outputs.logits, mode.marks)
        return torch.autograd.grad(y.sum(), list(outputs.hidden))


@pytest.mark.parametrize("target", TARGETS)
def test_relevance_of_a_two_layer_bert_is_what_the_formulas_written_out_give(target):
    model, tokenizer = bert(num_hidden_layers=2)
    model.double()
    recorded = traced(model, tokenizer, [SENTENCE], target)
    by_hand = Bert(model, recorded.require_model().batch.inputs["input_ids"][0].numpy())
    assert_close(recorded.logits[0].numpy(), by_hand.logits, 1e-12)
    readout = np.zeros(3)
    readout[target if isinstance(target, int) else target[0]] = 1
    if isinstance(target, tuple):
        readout[target[1]] = -1
    attention, hidden = by_hand.relevance(readout)
    relevance = propagate(recorded).attention[0].numpy()
    for layer in range(2):
        assert_close(relevance[layer], attention[layer], 1e-9)
    for ours, theirs in zip(everything(model, tokenizer, SENTENCE, target), hidden, strict=True):
        assert_close(ours[0].numpy(), theirs, 1e-9)
        assert theirs.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_conserved_down_to_the_embeddings(family, double):
    model, tokenizer = FAMILIES[family]()
    if double:
        model.double()
    for target in TARGETS:
        relevance = propagate(traced(model, tokenizer, [SENTENCE], target))
        assert relevance.input.dtype == torch.float64
        assert relevance.input.item() == pytest.approx(1, abs=1e-6)
        for hidden in everything(model, tokenizer, SENTENCE, target):
            assert hidden.sum().item() == pytest.approx(1, abs=1e-6)


def test_half_of_what_reaches_a_product_is_the_attentions():
    model, tokenizer = bert()
    by_hand = propagate(traced(model, tokenizer, [SENTENCE]))
    assert by_hand.attention.abs().sum((0, 2, 3, 4)).min() > 1e-3
    top = by_hand.attention[0, -1]
    assert top[:, 1:].abs().max() == 0  # only [CLS] is read
    assert top[:, 0].abs().max() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_its_texts_give_alone_and_padding_nothing(family):
    model, tokenizer = FAMILIES[family]()
    targets = [0, (1, 2)]
    recorded = traced(model, tokenizer, target=targets)
    together = propagate(recorded).attention
    for k, text in enumerate((SENTENCE, SHORT)):
        alone = propagate(traced(model, tokenizer, [text], targets[k])).attention
        n = alone.shape[-1]
        assert_close(together[k : k + 1, ..., :n, :n], alone, 1e-9)
    padding = ~recorded.mask[1]
    assert together[1, ..., padding, :].abs().max() == 0
    assert together[1, ..., padding].abs().max() == 0


@pytest.mark.parametrize("family", ["gpt2", "modernbert"])
def test_a_mean_of_rows_and_a_last_row_are_read_alike(family):
    model, tokenizer = gpt2() if family == "gpt2" else modernbert(classifier_pooling="mean")
    recorded = traced(model, tokenizer)
    relevance = propagate(recorded)
    assert (relevance.input - 1).abs().max() < 1e-6
    rows = relevance.attention[:, -1].abs().sum((1, 3)) > 0
    assert torch.equal(rows, recorded.rows() > 0)


def test_precision_is_the_passes_own():
    model, tokenizer = bert()
    exact = propagate(traced(model.double(), tokenizer)).attention
    assert_close(propagate(traced(model.float(), tokenizer)).attention, exact, 1e-9)
    single = propagate(traced(model.float(), tokenizer), torch.float32).attention
    assert single.dtype == torch.float32
    assert_close(single.double(), exact, 1e-2)
    half = propagate(traced(model.bfloat16(), tokenizer))
    assert half.attention.dtype == torch.float64
    assert (half.input - 1).abs().max() < 1e-6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("family", FAMILIES)
def test_relevance_is_the_same_on_an_accelerator(family):
    model, tokenizer = FAMILIES[family]()
    if family == "deberta":  # whose relevance changes by a third of a per cent with rounding in single precision
        model.double()
    expected = propagate(traced(model, tokenizer)).attention
    batch = make_batch(tokenizer)
    inputs = {name: value.cuda() for name, value in batch.inputs.items()}
    moved = replace(batch, inputs=inputs, mask=batch.mask.cuda())
    relevance = propagate(trace(model.cuda(), moved, [terms(1)] * len(moved.mask)))
    assert relevance.attention.is_cuda
    assert_close(relevance.attention.cpu(), expected, 1e-4)  # position terms are in the model's own precision


def test_a_contrast_asks_what_speaks_for_one_class_rather_than_the_other():
    model, tokenizer = bert()
    one, other = (propagate(traced(model, tokenizer, [SENTENCE], t)).attention for t in ((0, 1), (1, 0)))
    assert not torch.allclose(one, other, rtol=0.1, atol=1e-6)
    with torch.no_grad():
        weight, bias = model.classifier.weight.clone(), model.classifier.bias.clone()
        model.classifier.weight[2] = weight[0] - weight[1]
        model.classifier.bias[2] = bias[0] - bias[1]
    assert_close(propagate(traced(model, tokenizer, [SENTENCE], 2)).attention, one, 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["train", "frozen"])
def test_the_model_is_left_exactly_as_found(family, mode):
    model, tokenizer = FAMILIES[family]()
    model.train(mode == "train").requires_grad_(mode == "train")
    recorded = traced(model, tokenizer)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = state(model)
    propagate(recorded)
    assert state(model) == before
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert torch.overrides._get_current_function_mode_stack() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_nothing_of_the_pass_remains_when_something_fails(error, where):
    model, tokenizer = bert()
    model.train().requires_grad_(False)
    recorded = traced(model, tokenizer)

    def fail(*_):
        raise error("stop")

    def hook(_module, _given, result):
        if where == "forward":
            fail()
        result.register_hook(fail)

    handle = model.bert.encoder.layer[1].register_forward_hook(hook)
    before = state(model)
    with pytest.raises(error, match="stop"):
        propagate(recorded)
    assert state(model) == before
    assert torch.overrides._get_current_function_mode_stack() == []
    handle.remove()
    assert (propagate(recorded).input - 1).abs().max() < 1e-6


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, *results):
        return 2 * results[0]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (torch.sin, "torch.sin"),
        (lambda x: x.cumsum(-1), "torch.Tensor.cumsum"),
        (lambda x: functional.scaled_dot_product_attention(x, x, x), "scaled_dot_product_attention"),
        (lambda x: x / (1 + functional.relu(x).cumsum(1)), "cumsum"),
        (lambda x: x / x.flip(-1).exp(), "torch.Tensor.div"),
        (lambda x: x * x.sum(), "torch.Tensor.sum"),
        (lambda x: torch.cat([x[..., 1:], x.std(-1, keepdim=True)], -1), "torch.cat"),
        (lambda x: torch.ops.aten.sin(x), "aten.sin"),
        (Twice.apply, "TwiceBackward"),
    ],
)
def test_an_operation_that_no_rule_covers_is_an_error_that_names_it(change, name):
    model, tokenizer = changed(change)
    recorded = traced(model, tokenizer)
    before = state(model)
    with pytest.raises(UnsupportedModelError, match=name):
        propagate(recorded)
    assert state(model) == before


@pytest.mark.parametrize("module_name", ["classifier", "bert.encoder.layer.1.attention.self"])
def test_logits_and_attention_from_where_torch_cannot_see_are_an_error(module_name):
    model, tokenizer = bert()
    module = model.get_submodule(module_name)

    def hide(_module, _given, result):
        return Twice.apply(result) if isinstance(result, torch.Tensor) else (Twice.apply(result[0]), result[1])

    module.register_forward_hook(hide)
    with pytest.raises(UnsupportedModelError, match=r"lost sight|Twice"):
        propagate(traced(model, tokenizer))


def test_operations_off_the_path_of_relevance_may_be_anything():
    model, tokenizer = changed(lambda x: x + torch.arange(x.shape[-1]).sin().cumsum(0) * x.detach().sin())
    assert (propagate(traced(model, tokenizer)).input - 1).abs().max() < 1e-6


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # dynamo's own, while tracing
def test_compiled_parts_run_as_they_were_written():
    model, tokenizer = bert()
    expected = propagate(traced(model, tokenizer)).attention
    inner = model.bert.encoder.layer[1].output.dense
    model.bert.encoder.layer[1].output.dense = torch.compile(inner, backend="eager")
    assert_close(propagate(traced(model, tokenizer)).attention, expected, 1e-9)


def test_texts_that_lie_along_another_axis_are_asked_one_by_one():
    def turned(x):
        return (x.transpose(0, 1) + x.transpose(0, 1).flip(-1)).transpose(0, 1)

    model, tokenizer = changed(turned)
    texts = [SENTENCE, SHORT, "the dog", "a bad film"]
    while traced(model, tokenizer, texts).mask.shape[1] % len(texts):
        texts = [texts[0] + " a", *texts[1:]]  # the number of positions a multiple of that of texts
    together = propagate(traced(model, tokenizer, texts))
    assert (together.input - 1).abs().max() < 1e-6
    for k, text in enumerate(texts):
        alone = propagate(traced(model, tokenizer, [text]))
        n = alone.attention.shape[-1]
        assert_close(together.attention[k : k + 1, ..., :n, :n], alone.attention, 1e-9)


def test_a_model_whose_output_changes_from_pass_to_pass_is_refused():
    noise = iter(range(100))
    model, tokenizer = changed(lambda x: x + 5 * next(noise) * torch.ones(32).cumsum(0))
    with pytest.raises(GaflowError, match="off by"):
        propagate(traced(model, tokenizer))


def test_contrasts_need_a_linear_last_layer_and_single_classes_do_not():
    model, tokenizer = bert()
    model.classifier = Wrapped(model.classifier, torch.tanh)
    assert (propagate(traced(model, tokenizer)).input - 1).abs().max() < 1e-6
    with pytest.raises(UnsupportedModelError, match="last layer is linear"):
        propagate(traced(model, tokenizer, target=(0, 1)))


def test_a_trace_without_a_model_cannot_be_propagated():
    model, tokenizer = bert()
    recorded = traced(model, tokenizer)
    object.__setattr__(recorded, "model", None)
    with pytest.raises(GaflowError, match="runs the model again"):
        propagate(recorded)


def test_position_scores_of_deberta_speak_for_the_words_alone():
    plain, tokenizer = deberta(pos_att_type=[])
    assert (propagate(traced(plain, tokenizer)).input - 1).abs().max() < 1e-6
    for kinds in (["c2p"], ["p2c"], ["c2p", "p2c"]):
        model, tokenizer = deberta(pos_att_type=kinds, conv_kernel_size=3, conv_act="gelu")
        assert (propagate(traced(model, tokenizer)).input - 1).abs().max() < 1e-6


def test_attention_that_is_written_another_way_gives_the_same(monkeypatch):
    """In place, with einsum, with baddbmm, and with a softmax by hand."""
    model, tokenizer = bert()
    recorded = traced(model, tokenizer)
    expected = propagate(recorded).attention

    def einsum(module, query, key, value, attention_mask, **_):
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key)
        scores /= query.shape[-1] ** 0.5
        scores += attention_mask
        scores -= scores.amax(-1, keepdim=True)
        scores.exp_()
        weights = scores / scores.sum(-1, keepdim=True)
        return torch.einsum("bhqk,bhkd->bqhd", weights, value), weights

    def baddbmm(module, query, key, value, attention_mask, **_):
        b, h, t, d = query.shape
        mask = attention_mask.expand(b, h, t, t).reshape(b * h, t, t)
        scores = torch.baddbmm(mask, query.reshape(-1, t, d), key.reshape(-1, t, d).mT, alpha=d**-0.5)
        weights = scores.softmax(-1, dtype=torch.float32).view(b, h, t, t)
        context = torch.bmm(weights.view(-1, t, t), value.reshape(-1, t, d)).view(b, h, t, d)
        return context.permute(0, 2, 1, 3), weights

    for other in (einsum, baddbmm):
        monkeypatch.setattr(modeling_bert, "eager_attention_forward", other)
        assert_close(propagate(recorded).attention, expected, 1e-6)
