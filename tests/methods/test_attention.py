import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import gaflow
from gaflow.methods import AttentionFlow, RawAttention, Rollout
from tests.support.models import bert, modernbert
from tests.support.onelayer import MASK, trace_one_layer, written_down
from tests.support.traces import POOLS, assert_scores, bert_trace, make_trace


@pytest.mark.parametrize("pool", POOLS)
def test_raw_attention_is_what_is_written_down(pool):
    model, trace = trace_one_layer(pool)
    expected = []
    for item in range(2):
        r, a, *_ = written_down(model, item)
        expected.append(r @ a.mean(0))
    assert_scores(RawAttention()(trace), expected)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("residual", [0.5, 0.0, 0.25])
def test_rollout_of_one_layer_is_what_is_written_down(pool, residual):
    model, trace = trace_one_layer(pool)
    expected = []
    for item in range(2):
        r, a, *_ = written_down(model, item)
        expected.append((1 - residual) * (r @ a.mean(0)) + residual * r)
    assert_scores(Rollout(residual)(trace), expected)


@pytest.mark.parametrize("pool", POOLS)
def test_attention_flow_of_one_layer_is_each_edge_over_the_sum_of_its_row(pool):
    model, trace = trace_one_layer(pool)
    expected = []
    for item in range(2):
        r, a, *_ = written_down(model, item)
        capacity = 0.5 * a.mean(0) + 0.5 * np.eye(len(r))
        expected.append(r @ (capacity / capacity.sum(1, keepdims=True)))
    assert_scores(AttentionFlow()(trace), expected)


def rollout_in_loops(attention, read):
    """Attention (l, h, t, t) multiplied out matrix by matrix, one number at a time."""
    layers, heads, t, _ = attention.shape
    joint = [[float(i == j) for j in range(t)] for i in range(t)]
    for layer in range(layers):
        mixed = [
            [
                0.5 * sum(attention[layer, h, i, j] for h in range(heads)) / heads + (0.5 if i == j else 0.0)
                for j in range(t)
            ]
            for i in range(t)
        ]
        joint = [[sum(mixed[i][k] * joint[k][j] for k in range(t)) for j in range(t)] for i in range(t)]
    return [sum(read[i] * joint[i][j] for i in range(t)) for j in range(t)]


@pytest.mark.parametrize("build", [bert, lambda: modernbert(classifier_pooling="mean")], ids=["cls", "mean"])
def test_rollout_is_the_product_of_all_layers(build):
    model, tokenizer = build()
    trace = bert_trace((model, tokenizer))
    scores = Rollout()(trace).values
    for item in range(2):
        n = int(trace.mask[item].sum())
        read = [1.0 / n] * n if build is not bert else [1.0] + [0.0] * (n - 1)
        expected = rollout_in_loops(trace.attention[item, ..., :n, :n].double().numpy(), read)
        assert scores[item, :n].tolist() == pytest.approx(expected, rel=1e-5)
        assert scores[item].sum().item() == pytest.approx(1, rel=1e-5)
        assert (scores[item, n:] == 0).all()


def flow_by_linear_programming(capacity, start, end):
    """The largest flow from output node `start` to input node `end` of (l, t, t), as a linear program."""
    layers, t, _ = capacity.shape
    edges = [(layer, i, j) for layer in range(layers) for i in range(t) for j in range(t)]
    rows = [  # what enters an inner node leaves it
        [(e[0] == layer and e[2] == k) - (e[0] == layer - 1 and e[1] == k) for e in edges]
        for layer in range(1, layers)
        for k in range(t)
    ]
    gain = [-float(e[0] == 0 and e[2] == end) for e in edges]
    bounds = [0 if e[0] == layers - 1 and e[1] != start else capacity[e] for e in edges]
    constraints = {"A_eq": np.array(rows, float), "b_eq": np.zeros(len(rows))} if rows else {}
    return -linprog(gain, bounds=[(0, b) for b in bounds], **constraints).fun


@pytest.mark.parametrize("sharpness", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (3, 4)])
@pytest.mark.parametrize("residual", [0.5, 0.0])
def test_attention_flow_is_a_linear_program_for_every_token(sharpness, shape, residual):
    layers, t = shape
    generator = torch.Generator().manual_seed(layers)
    attention = (sharpness * torch.randn(1, layers, 2, t, t, generator=generator, dtype=torch.float64)).softmax(-1)
    gradient = torch.zeros_like(attention)
    gradient[0, -1, :, [1, 2]] = 1.0  # the head reads rows 1 and 2
    capacity = (1 - residual) * attention[0].mean(1).numpy() + residual * np.eye(t)
    expected = np.zeros(t)
    for row in (1, 2):
        flows = np.array([flow_by_linear_programming(capacity, row, token) for token in range(t)])
        expected += flows / flows.sum() / 2
    scores = AttentionFlow(residual)(make_trace(attention, gradient))
    assert scores.values[0].tolist() == pytest.approx(expected.tolist(), rel=1e-7)


def test_attention_flow_of_a_model_is_a_maximum_flow_between_two_nodes():
    trace = bert_trace(bert())
    scores = AttentionFlow()(trace).values
    for item in range(2):
        n = int(trace.mask[item].sum())
        capacity = 0.5 * trace.attention[item, ..., :n, :n].mean(1).double() + 0.5 * torch.eye(n, dtype=torch.float64)
        flows = [
            gaflow.max_flow(capacity, integral=False, sources=[0], targets=[token]).value.item() for token in range(n)
        ]
        assert scores[item, :n].tolist() == pytest.approx((np.array(flows) / sum(flows)).tolist(), rel=1e-9)
        assert scores[item, n:].abs().sum() == 0


def test_where_nothing_flows_scores_are_zero():
    """Without residual connections, two layers that look away from each other."""
    attention = torch.zeros(1, 2, 1, 2, 2)
    attention[0, 1, 0, :, 0] = 1  # the upper layer looks at node 0 only,
    attention[0, 0, 0, 1, :] = 0.5  # from which the lower one leads nowhere
    gradient = torch.zeros_like(attention)
    gradient[0, 1, 0, 0] = 1
    assert AttentionFlow(residual=0)(make_trace(attention, gradient)).values.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("kind", [Rollout, AttentionFlow])
def test_settings_are_named_and_checked(kind):
    assert kind(0.25).name == f"{kind().name}(residual=0.25)"
    for wrong in (-0.1, 1.0, float("nan"), "half", None, False):
        with pytest.raises(ValueError, match=r"residual.* 0 .* 1"):
            kind(wrong)


def test_padding_gets_nothing_from_the_residual_connection():
    _, trace = trace_one_layer("mean")
    assert (Rollout()(trace).values[~MASK.bool()] == 0).all()
    assert Rollout()(trace).values.sum(1).tolist() == pytest.approx([1, 1])
