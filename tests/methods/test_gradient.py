from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.models.bert import modeling_bert

from gaflow.errors import ArgumentError, UnsupportedModelError
from gaflow.methods import AttCat, AttGrads, AttnLrp, Cat, GradientTimesInput, Grads, GradSam
from gaflow.methods.balanced import with_gradients
from tests.support.bert_by_hand import Bert
from tests.support.models import SENTENCE, bert
from tests.support.onelayer import trace_one_layer, written_down
from tests.support.traces import POOLS, assert_scores, bert_trace
from tests.support.tracing import make_batch, trace_logit

SHORT = "a good film"
STEP = 1e-4


def expected_on_one_layer(name, model, item):
    r, a, w, u, x = written_down(model, item)
    heads = len(a)
    of_values = x @ w.T / heads  # (n, h): dy/dA^h_ij is r_i times this
    gradient = np.einsum("i,jh->hij", r, of_values)
    activation = np.einsum("i,hij,hd,jd->j", r, a, w, x) / heads + r * (x @ u)
    return {
        "grads": r @ gradient.mean(0),
        "attgrads": r @ (a * gradient).mean(0),
        "gradsam": (a * gradient.clip(0)).mean((0, 1)),
        "cat": activation,
        "attcat": a.mean((0, 1)) * activation,
    }[name]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("method", [Grads(), AttGrads(), GradSam(), Cat(), AttCat()], ids=lambda m: m.name)
def test_scores_of_one_layer_are_what_is_written_down(method, pool):
    model, trace = trace_one_layer(pool)
    assert_scores(method(trace), [expected_on_one_layer(method.name, model, item) for item in range(2)])


@pytest.fixture
def double_bert(monkeypatch):
    """A model in float64, its trace, and y when attention or the input of a block is scaled by `change`."""
    model, tokenizer = bert()
    model.double()
    trace = bert_trace((model, tokenizer), [SHORT])
    change: dict = {}
    original = modeling_bert.eager_attention_forward

    def scaled(module, query, key, value, attention_mask, **options):
        output, weights = original(module, query, key, value, attention_mask, **options)
        if "attention" in change:
            output = output + (change["attention"](module.layer_idx, weights) @ value).transpose(1, 2)
        return output, weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", scaled)
    monkeypatch.setattr(model.config, "_attn_implementation", "eager")

    def grown(number, inputs):
        return (change["hidden"](number, inputs[0]), *inputs[1:]) if "hidden" in change else None

    for number, block in enumerate(model.bert.encoder.layer):
        block.register_forward_pre_hook(lambda _, inputs, number=number: grown(number, inputs))

    def slope(kind, of_step):
        """dy/ds at 0, where `of_step(s)` says how `kind` changes."""
        y = []
        for step in (STEP, -STEP):
            change.clear()
            change[kind] = of_step(step)
            with torch.no_grad():
                y.append(model(**trace.require_model().batch.inputs).logits[0, 0].item())
        change.clear()
        return (y[0] - y[1]) / (2 * STEP)

    return trace, slope


def assert_slopes(method, trace, expected):
    scores = method(trace).values[0]
    assert scores.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-8)
    assert scores.abs().min() > 1e-6  # or nothing would have been compared


def test_grads_are_slopes_of_y_in_the_last_layers_attention(double_bert):
    trace, slope = double_bert

    def bump(step, token):
        def change(layer, weights):
            zero = torch.zeros_like(weights)
            if layer == 2:
                zero[:, :, 0, token] = step
            return zero

        return change

    tokens = range(trace.mask.shape[1])
    assert_slopes(Grads(), trace, [slope("attention", lambda s, j=j: bump(s, j)) / 4 for j in tokens])


def test_attgrads_are_slopes_of_y_when_all_attention_of_the_first_row_is_scaled(double_bert):
    trace, slope = double_bert

    def scale(step, token):
        def change(_, weights):
            zero = torch.zeros_like(weights)
            zero[:, :, 0, token] = step * weights[:, :, 0, token]
            return zero

        return change

    # at once in all layers: slopes add up, but what lower layers change must not scale upper ones a second time
    def alone(layer_wanted, step, token):
        return lambda layer, weights: scale(step, token)(layer, weights) * (layer == layer_wanted)

    tokens = range(trace.mask.shape[1])
    expected = [sum(slope("attention", lambda s, j=j, k=k: alone(k, s, j)) for k in range(3)) / 4 for j in tokens]
    assert_slopes(AttGrads(), trace, expected)


def token_slopes(trace, slope, weight):
    """Slopes of y when a token is scaled in the input of a block, weighted and summed over blocks."""

    def scale(step, block, token):
        def change(number, hidden):
            if number != block:
                return hidden
            grown = hidden.clone()
            grown[:, token] *= 1 + step
            return grown

        return change

    t = trace.mask.shape[1]
    return [sum(weight(k, j) * slope("hidden", lambda s, j=j, k=k: scale(s, k, j)) for k in range(3)) for j in range(t)]


def test_cat_is_the_slope_of_y_when_a_token_is_scaled(double_bert):
    trace, slope = double_bert
    assert_slopes(Cat(), trace, token_slopes(trace, slope, lambda block, token: 1.0))


def test_attcat_weighs_the_slopes_by_the_attention_received(double_bert):
    trace, slope = double_bert
    received = trace.attention[0].mean((1, 2))
    expected = token_slopes(trace, slope, lambda block, token: received[block, token].item())
    assert_slopes(AttCat(), trace, expected)


def test_gradsam_is_the_mean_over_layers_heads_and_real_queries():
    trace = bert_trace(bert())
    scores = GradSam()(trace).values
    for item in range(2):
        n = int(trace.mask[item].sum())
        expected = []
        for key in range(n):
            total = 0.0
            for layer in range(3):
                for head in range(4):
                    for query in range(n):
                        a, g = (x[item, layer, head, query, key].item() for x in (trace.attention, trace.gradient))
                        total += a * max(g, 0.0)
            expected.append(total / (3 * 4 * n))
        assert scores[item, :n].tolist() == pytest.approx(expected, rel=1e-5)


def test_block_inputs_are_what_the_blocks_read():
    model, tokenizer = bert()
    read = []
    for block in model.bert.encoder.layer:
        block.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].detach()))
    trace = bert_trace((model, tokenizer))
    assert all(torch.equal(a, b) for a, b in zip(read, trace.hidden[:-1], strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    model, tokenizer = bert()
    trace = bert_trace((model.to(dtype), tokenizer))
    assert trace.hidden[0].dtype == dtype
    expected = torch.zeros(trace.mask.shape, dtype=torch.float64)
    for h, g in zip(trace.hidden[:-1], trace.hidden_gradient[:-1], strict=True):
        assert g is not None
        expected = expected + (h.double() * g.double()).sum(-1)
    scores = Cat()(trace).values
    assert scores.dtype == torch.float32
    assert (scores - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("method", [Cat(), AttCat()], ids=lambda m: m.name)
def test_a_layer_without_gradient_is_named_and_never_skipped(method):
    trace = bert_trace(bert())
    copied = replace(trace, hidden_gradient=(trace.hidden_gradient[0], None, *trace.hidden_gradient[2:]))
    with pytest.raises(UnsupportedModelError, match=r"gradient.*layer 1"):
        method(copied)
    unused = replace(trace, hidden_gradient=(*trace.hidden_gradient[:-1], None))
    assert torch.equal(method(unused).values, method(trace).values)  # the last one is not needed
    with pytest.raises(UnsupportedModelError, match=r"3 blocks.* 0"):
        method(replace(trace, hidden=(), hidden_gradient=()))
    pooled = tuple(h[:, ::2] for h in trace.hidden)
    with pytest.raises(UnsupportedModelError, match=r"layer 0.*\(2, 7, 32\).*\(2, 14\)"):
        method(replace(trace, hidden=pooled))


def test_attnlrp_is_the_balanced_gradient_of_a_bert_by_hand_times_its_input():
    model, tokenizer = bert()
    batch = make_batch(tokenizer, [SENTENCE])
    trace = trace_logit(model.double(), batch, 1)
    by_hand = Bert(model, batch.inputs["input_ids"][0].numpy())
    for kind in ("balanced", "balanced_cp"):
        _, hidden, _ = by_hand.balanced(np.eye(3)[1], half=kind == "balanced")
        expected = (hidden[0] * by_hand.hidden[0]).sum(-1)
        assert np.allclose(AttnLrp(kind)(trace).values[0].numpy(), expected, rtol=1e-9)
    assert AttnLrp().name == "attnlrp"
    assert AttnLrp("balanced_cp").name == "attnlrp(gradients='balanced_cp')"


def test_gradient_times_input_is_the_derivative_by_a_scale_of_each_input():
    model, tokenizer = bert()
    batch = make_batch(tokenizer, [SENTENCE])
    trace = trace_logit(model.double(), batch, 1)
    scores = GradientTimesInput()(trace).values[0]
    step = 1e-6

    def output(position, factor):
        def scale(_module, _inputs, states):
            states = states.clone()
            states[:, position] *= factor
            return states

        with model.bert.embeddings.register_forward_hook(scale), torch.no_grad():
            return model(**batch.inputs).logits[0, 1].item()

    for position in (0, 3, 7):
        slope = (output(position, 1 + step) - output(position, 1 - step)) / (2 * step)
        assert scores[position].item() == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("kind", [Grads, AttGrads, GradSam, Cat, AttCat])
def test_balanced_gradients_take_the_place_of_plain_ones(kind):
    model, tokenizer = bert()
    trace = trace_logit(model.double(), make_batch(tokenizer))
    balanced = with_gradients(trace, "balanced")
    as_plain = replace(balanced, gradient_kind="plain")
    assert torch.equal(kind("balanced")(trace).values, kind()(as_plain).values)
    assert not torch.allclose(kind("balanced")(trace).values, kind()(trace).values)
    with pytest.raises(ArgumentError, match="gradients"):
        kind("unbalanced")
