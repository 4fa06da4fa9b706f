"""Relevance flow and peeled flow: against their definitions, and the law that they extend relevance propagation."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gaflow
from gaflow.errors import ArgumentError, UnsupportedModelError
from gaflow.flow.barrier.solve import solve
from gaflow.inputs.batch import Batch
from gaflow.methods import METHODS, AttnLrp, FlowMethod
from gaflow.methods.balanced import with_gradients
from gaflow.methods.peeling import Peeling, SignedNetwork, input_relevance
from tests.support.models import FAMILIES, SENTENCE, bert, gpt2, wordpiece
from tests.support.task_models import CASES
from tests.support.tracing import SHORT, logit_terms, make_batch, trace, trace_logit

ONE = FlowMethod(preset="relevance_flow")
PEELED = FlowMethod(preset="peeled_flow")


@cache
def traced():
    model, tokenizer = bert()
    return trace_logit(model.double(), make_batch(tokenizer), 1, residual=True)


def knockout(attention, gradient):
    """Signed edges of one text and layer, edge by edge."""
    heads, t, _ = attention.shape
    edges = np.zeros((t, t))
    for h in range(heads):
        for i in range(t):
            mean = sum(attention[h, i, k] * gradient[h, i, k] for k in range(t))
            for j in range(t):
                rest = max(1 - attention[h, i, j], 1e-3)
                edges[i, j] += attention[h, i, j] / rest * (gradient[h, i, j] - mean)
    return edges


def networks(trace, item, n):
    """Signed edges (l, n, n) and residual edges (l, n) of one text."""
    edges, residual = [], []
    for a, g, s, gs in zip(trace.attentions, trace.gradients, trace.stream, trace.stream_gradient, strict=True):
        edges.append(knockout(a[item, :, :n, :n].numpy(), g[item, :, :n, :n].numpy()))
        residual.append((s[item, :n] * gs[item, :n]).sum(-1).numpy())
    return np.stack(edges), np.stack(residual)


def flow_scores(edges, residual):
    """The flow for less the flow against, each solved by itself."""
    values = []
    for sign in (1, -1):
        capacities = np.maximum(sign * edges, 0)
        capacities += np.stack([np.diag(row) for row in np.maximum(sign * residual, 0)])
        values.append(solve(capacities, barrier="capacity").target[0].numpy())
    return values[0] - values[1]


def test_relevance_flow_is_the_flow_of_knockout_edges_and_residual_edges():
    scores = ONE(traced())
    balanced: Any = with_gradients(traced(), "balanced")
    for item, n in enumerate(traced().mask.sum(1).tolist()):
        expected = flow_scores(*networks(balanced, item, n))
        assert np.allclose(scores.values[item, :n].numpy(), expected, rtol=1e-9, atol=1e-12)
    assert (scores.values < 0).any()


def test_what_reaches_no_token_is_reported():
    balanced: Any = with_gradients(traced(), "balanced")
    scores: Any = ONE(traced())
    for item, diagnostics in enumerate(scores.diagnostics):
        n = int(traced().mask[item].sum())
        total = (balanced.hidden[0] * balanced.hidden_gradient[0])[item, :n].sum()
        assert diagnostics["left_to_biases"] == pytest.approx(float(balanced.output[item] - total))
        assert diagnostics["value_against"] == pytest.approx(float(scores.flow_against.value[item]))


def test_removing_a_key_by_hand_changes_the_output_as_its_edge_says_to_first_order():
    generator = torch.Generator().manual_seed(0)
    scores, values, readout = (torch.randn(n, 1, generator=generator).double()[:, 0] for n in (5, 5, 1))
    attention = scores.softmax(0)
    gradient = readout * values  # y = readout * sum_j A_j v_j: linear in A, so first order is all there is
    row = gaflow.information.knockout(attention[None, None], gradient[None, None])[0]
    against = gaflow.information.knockout(attention[None, None], -gradient[None, None])[0]
    for j in range(5):
        others = scores.masked_fill(torch.arange(5) == j, -torch.inf).softmax(0)
        loss = (gradient * attention).sum() - (gradient * others).sum()
        assert float(row[j] - against[j]) == pytest.approx(float(loss))


class Positive(nn.Module):
    """A model without biases and norms whose weights and hidden states are all positive."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def draw(*shape):
            return torch.rand(*shape, generator=generator, dtype=torch.float64)

        self.embedding = nn.Embedding.from_pretrained(draw(9, 6), freeze=False)
        self.weights = nn.ParameterList([nn.Parameter(draw(3, 6, 6)) for _ in range(3)])  # query, value, feed-forward
        self.classifier = nn.Parameter(draw(2, 6))

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, attention_mask):
        x = self.embedding(input_ids) * 1.0
        attentions, states = [], [x]
        for weight in self.weights:
            scores = x @ weight[0] @ x.mT
            attention = scores[:, None].masked_fill(attention_mask[:, None, None] == 0, -torch.inf).softmax(-1)
            mixed = attention[:, 0] @ (x @ weight[1])
            x = x + mixed
            x = x + torch.nn.functional.gelu(x @ weight[2])
            attentions.append(attention)
            states.append(x)
        return SimpleNamespace(logits=x[:, 0] @ self.classifier.T, attentions=attentions, hidden_states=states)


def test_where_relevance_is_nowhere_negative_the_flow_is_relevance_propagation():
    ids, mask = torch.tensor([[3, 1, 4, 1, 5], [2, 6, 8, 0, 0]]), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    batch = Batch({"input_ids": ids, "attention_mask": mask}, mask.bool(), True, ())
    plain = trace(Positive(), batch, logit_terms(batch), residual=True)
    lrp = AttnLrp("balanced_cp")(plain).values
    flow: Any = replace(ONE, information="agf_net", gradients="balanced_cp", epsilon=1e-9)(plain)
    assert torch.allclose(flow.values, lrp, rtol=1e-6)
    assert torch.allclose(flow.flow.value, plain.output, rtol=1e-6)
    assert flow.flow_against.value.abs().max() == 0
    capacities = flow.flow.capacity
    assert torch.allclose(flow.flow.edges, capacities, rtol=1e-5, atol=1e-9)  # every edge is full
    balanced: Any = with_gradients(plain, "balanced_cp")
    for layer, (state, gradient) in enumerate(zip(balanced.hidden, balanced.hidden_gradient, strict=True)):
        relevance = (state * gradient).sum(-1).masked_fill(~plain.mask, 0)
        assert torch.allclose(flow.layers()[:, layer], relevance, rtol=1e-6)
        assert torch.allclose(relevance.sum(1), plain.output)


def with_ids(text, changes):
    """The balanced trace of one text of which some ids are replaced, and the ids."""
    model, tokenizer = bert()
    batch = make_batch(tokenizer, [text])
    ids = batch.inputs["input_ids"].clone()
    for position, token in changes.items():
        ids[0, position] = token
    batch = replace(batch, inputs={**batch.inputs, "input_ids": ids})
    return with_gradients(trace_logit(model.double(), batch, 1, residual=True), "balanced")


@pytest.mark.parametrize("replacement", [None, "pad", 7])
def test_peeled_flow_averages_edges_over_the_contexts_that_hold_their_tokens(replacement):
    tokens = {None: [wordpiece().pad_token_id, wordpiece().mask_token_id], "pad": [wordpiece().pad_token_id], 7: [7]}
    model, tokenizer = bert()
    method = replace(PEELED, rounds=4, share=0.2, replacement=replacement)
    explainer = gaflow.Explainer(model.double(), tokenizer)
    att = explainer(SENTENCE, method, target=1)
    n = len(att.tokens)
    ordinary = np.arange(1, n - 1)
    removed: list[int] = []
    edges, residual, relevance, counts, pairs = 0.0, 0.0, np.zeros(n), np.zeros(n), np.zeros((n, n))
    for context in range(4):
        token = tokens[replacement][context % len(tokens[replacement])]
        if context:
            order = ordinary[np.argsort(-(relevance / counts)[ordinary], kind="stable")]
            removed = order[: int(0.2 * context * len(ordinary) + 1e-9)].tolist()
            assert removed
        balanced: Any = with_ids(SENTENCE, dict.fromkeys(removed, token))
        present = np.ones(n)
        present[removed] = 0
        of_edges, of_residual = networks(balanced, 0, n)
        edges = edges + of_edges * np.outer(present, present)
        residual = residual + of_residual * present
        relevance += (balanced.hidden[0] * balanced.hidden_gradient[0])[0].sum(-1).numpy() * present
        counts += present
        pairs += np.outer(present, present)
    expected = flow_scores(edges / pairs, residual / counts)
    assert np.allclose(att.scores, expected, rtol=1e-7, atol=1e-10)


def test_one_round_is_relevance_flow():
    assert torch.equal(replace(PEELED, rounds=1)(traced()).values, ONE(traced()).values)


def test_all_texts_of_a_batch_run_together():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer)
    explainer(SHORT)  # shows once whether the model can be streamed
    passes = []
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    try:
        explainer([SENTENCE, SHORT], "peeled_flow", batch_size=2)
    finally:
        handle.remove()
    assert len(passes) == 5
    assert METHODS["peeled_flow"].info.passes == "5 forward, 5 backward"
    assert METHODS["relevance_flow"].info.one_trace


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", ["relevance_flow", "peeled_flow"])
def test_every_task_is_explained_with_flows_and_certificates(name, method):
    model, processor = CASES[name].make()
    explainer = gaflow.Explainer(model, processor, task=CASES[name].task)
    att: Any = explainer(CASES[name].inputs[0], method, CASES[name].one)
    assert att.certificate.converged
    assert np.abs(att.scores).max() > 0
    assert gaflow.axioms(att).ok
    assert np.allclose(att.layers.sum(1), att.layers.sum(1)[0])


def test_cuts_routes_and_ranges_of_the_flows():
    pytest.importorskip("ortools")
    att: Any = gaflow.Explainer(*bert())(SENTENCE, "peeled_flow")
    for flow in (att.flow, att.flow_against):
        cut = gaflow.min_cut(flow)
        assert cut.value == pytest.approx(float(flow.value), rel=1e-5)
        low, high = gaflow.score_ranges(flow.capacity[0])
        gap = float(flow.certificate.gap) + 1e-12
        assert (low - gap <= flow.target[0]).all()
        assert (flow.target[0] <= high + gap).all()
        routes = gaflow.routes(flow, k=None)
        assert sum(route.amount for route in routes) == pytest.approx(float(flow.value), rel=1e-6)


def test_potentials_are_those_of_each_flow():
    explainer = gaflow.Explainer(*bert())
    attributions: Any = explainer([SENTENCE, "a good film"], "relevance_flow", batch_size=2)
    for att in attributions:
        for flow in (att.flow, att.flow_against):
            alone: Any = gaflow.solve(flow.capacity, barrier="capacity")
            assert torch.allclose(flow.potentials.nodes, alone.potentials.nodes, atol=1e-4)
            assert gaflow.min_cut(flow).edges == gaflow.min_cut(flow, exact=True).edges


def test_chosen_sources_and_targets_hold_for_both_flows():
    model, tokenizer = bert()
    att: Any = gaflow.Explainer(model, tokenizer)(SENTENCE, replace(PEELED, sources="head", targets="ordinary"))
    for flow in (att.flow, att.flow_against):
        assert float(flow.source[0, 1:].abs().sum()) == 0
        assert float(flow.target[0, [0, -1]].abs().sum()) == 0
        assert float(flow.value) > 0


@pytest.mark.parametrize("changes", [{"nodes": True}, {"information": "agf"}])
def test_peeling_needs_signed_edges(changes):
    with pytest.raises(ArgumentError, match="rounds"):
        replace(PEELED, **changes)


def test_balanced_gradients_combine_with_nodes():
    for method in (replace(ONE, nodes=True), FlowMethod("agf", gradients="balanced_cp")):
        scores: Any = method(traced())
        assert scores.flow.converged.all()
        assert scores.values.abs().max() > 0
    assert FlowMethod("agf", gradients="balanced").name == "agf(gradients='balanced')"


@pytest.mark.parametrize(
    "settings", [{"rounds": 0}, {"share": 0.0}, {"rounds": 12, "share": 0.1}, {"rounds": 1.5}, {"replacement": 1.5}]
)
def test_the_number_of_rounds_and_their_share_are_checked(settings):
    with pytest.raises((ArgumentError, TypeError)):
        Peeling(**settings)


def test_shares_are_rounded_down_and_never_by_an_error_of_rounding():
    assert [Peeling(11, 0.1).count(context, 10) for context in range(11)] == list(range(11))
    assert [Peeling(5, 0.1).count(context, 12) for context in range(5)] == [0, 1, 2, 3, 4]
    assert Peeling(5, 0.1).count(4, 2) == 0


def test_two_rounds_are_a_pass_more_than_one():
    two = replace(PEELED, rounds=2, share=0.2)(traced()).values
    assert not torch.allclose(two, ONE(traced()).values)


def test_capacities_are_the_parts_of_one_sign():
    network = SignedNetwork(torch.tensor([[[[0.0, 2.0], [-3.0, 0.0]]]]), torch.tensor([[[1.0, -4.0]]]))
    assert network.capacities().tolist() == [[[[1.0, 2.0], [0.0, 0.0]]]]
    assert network.capacities(-1).tolist() == [[[[0.0, 0.0], [3.0, 4.0]]]]


@pytest.mark.parametrize(
    ("hidden", "gradient"),
    [((), ()), ((torch.ones(1, 2, 3),), (None,)), ((torch.ones(1, 5, 3),), (torch.ones(1, 5, 3),))],
    ids=["no states", "no gradient", "another length"],
)
def test_a_trace_without_states_of_the_tokens_is_refused(hidden, gradient):
    trace_of_two: Any = SimpleNamespace(
        hidden=hidden, hidden_gradient=gradient, mask=torch.ones(1, 2, dtype=torch.bool)
    )
    with pytest.raises(UnsupportedModelError, match="hidden state"):
        input_relevance(trace_of_two)


def test_a_tokenizer_without_mask_or_pad_uses_what_there_is():
    model, tokenizer = gpt2()
    explainer = gaflow.Explainer(model, tokenizer)
    assert np.abs(explainer(SENTENCE, "peeled_flow").scores).max() > 0
    model, tokenizer = FAMILIES["albert"]()  # without a mask token
    assert np.abs(gaflow.Explainer(model, tokenizer)(SENTENCE, "peeled_flow").scores).max() > 0
