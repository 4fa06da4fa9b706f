"""The options of flow methods: each by its definition on small numbers, and by laws that hold in any combination."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.flow.barrier.solve import Barrier, solve
from gaflow.flow.information import agf, token_information
from gaflow.methods import METHODS, FlowMethod
from tests.support.models import FAMILIES, SENTENCE, bert
from tests.support.text_traces import TEXTS, traced
from tests.support.traces import count_backward_passes, make_trace, random_trace

BOTH = (False, True)
BARRIERS: tuple[Barrier, ...] = ("uniform", "capacity")
OPTIONS = [
    FlowMethod(("agf", "agf_net")[k % 2], barrier=barrier, residual=residual, signed=signed, nodes=nodes, heads="sum")
    for k, (residual, signed, nodes, barrier) in enumerate(product(BOTH, BOTH, BOTH, BARRIERS))
]
FEW = [
    FlowMethod("agf", heads="sum"),
    FlowMethod("agf", residual=True),
    FlowMethod("agf", signed=True, layer="all"),
    FlowMethod("agf", nodes=True, layer=1),
    FlowMethod("gf", signed=True, nodes=True),
    FlowMethod("agf_net", heads="sum", residual=True, signed=True, barrier="capacity", layer="all"),
    FlowMethod("agf_net", heads="sum", residual=True, signed=True, nodes=True, barrier="capacity"),
    FlowMethod("agf_net", heads="sum", residual=True, signed=True, nodes=True, layer="all"),
]
combinations = pytest.mark.parametrize("method", OPTIONS, ids=lambda m: m.name)
each_method = pytest.mark.parametrize("method", FEW, ids=lambda m: m.name)


def small_trace(seed=0, shape=(2, 3, 2, 5, 5)):
    """A trace of nothing but numbers, with hidden states and streams of width 4."""
    generator = torch.Generator().manual_seed(seed)
    b, layers, _, t, _ = shape

    def states(count):
        return tuple(torch.randn(b, t, 4, generator=generator, dtype=torch.float64) for _ in range(count))

    trace = replace(random_trace(seed, shape), hidden=states(layers + 1), hidden_gradient=states(layers + 1))
    return replace(trace, stream=states(layers), stream_gradient=states(layers))


def scaled(trace, factor):
    """The trace of `factor * y`."""
    times = [tuple(factor * g for g in part) for part in (trace.hidden_gradient, trace.stream_gradient)]
    gradients = tuple(factor * g for g in trace.gradients)
    return replace(trace, gradients=gradients, hidden_gradient=times[0], stream_gradient=times[1])


def test_the_papers_methods_have_none_of_the_options():
    for name in ("af", "gf", "agf"):
        assert METHODS[name] == FlowMethod(name)
        assert METHODS[name].needs == ()  # type: ignore[attr-defined]


def test_heads_are_added_up_or_averaged():
    trace = small_trace()
    mean, total = FlowMethod("agf"), FlowMethod("agf", heads="sum")
    assert torch.equal(total.capacities(trace), 2 * mean.capacities(trace))
    torch.testing.assert_close(total(trace).values, 2 * mean(trace).values, rtol=1e-7, atol=1e-12)


def test_a_residual_edge_adds_what_a_token_keeps_to_the_diagonal():
    trace = small_trace()
    plain, residual = FlowMethod("agf").capacities(trace), FlowMethod("agf", residual=True).capacities(trace)
    more = residual - plain
    for layer, token in product(range(3), range(5)):
        gain = float(trace.stream[layer][0, token] @ trace.stream_gradient[layer][0, token])
        assert float(more[0, layer, token, token]) == pytest.approx(max(gain, 0), rel=1e-12, abs=1e-12)
    assert float((more - torch.diag_embed(more.diagonal(dim1=-2, dim2=-1))).abs().max()) == 0


def test_alone_with_its_residual_edge_a_token_passes_the_narrowest_on():
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    trace = replace(make_trace([[[[[0.5]]], [[[0.25]]]]]), stream=(one, 2 * one), stream_gradient=(one, -one))
    scores = FlowMethod("af", residual=True, epsilon=1e-9)(trace)
    assert scores.values.tolist() == [[pytest.approx(0.25, rel=1e-7)]]  # min(0.5 + 1, 0.25 + relu(-2))
    states = (3 * one, one, one)
    capped = replace(trace, hidden=states, hidden_gradient=(one / 30, one, one))
    assert FlowMethod("af", nodes=True, epsilon=1e-9)(capped).values.tolist() == [[pytest.approx(0.1, rel=1e-7)]]


def test_nodes_let_no_more_through_than_they_may_and_bind_where_they_are_narrow():
    trace = small_trace()
    limits = token_information(trace.hidden[:3], [g for g in trace.hidden_gradient[:3] if g is not None])
    for epsilon in (1e-6, 1e-2):
        flow = FlowMethod("agf", nodes=True, epsilon=epsilon)(trace).flow
        assert flow is not None
        assert flow.edges.shape == (2, 3, 5, 5)
        assert flow.capacity is None
        through = flow.through()[:, :3]
        assert bool((through <= limits * (1 + 1e-9)).all())
        assert bool((through[limits > 0] > 0).any())
        assert float(through[limits == 0].abs().max()) == 0
    free = FlowMethod("agf")(trace).flow
    assert free is not None
    assert bool((free.through()[:, :3] > limits + 1e-3).any())


def test_wide_nodes_change_the_flow_by_no_more_than_the_barrier_does():
    trace = small_trace()
    free = FlowMethod("agf", epsilon=1e-8)(trace)
    wide = tuple(h * 0 + 10 for h in trace.hidden)
    capped = FlowMethod("agf", nodes=True, epsilon=1e-8)(replace(trace, hidden=wide, hidden_gradient=wide))
    assert free.flow is not None
    assert capped.flow is not None
    torch.testing.assert_close(capped.flow.value, free.flow.value, rtol=1e-6, atol=0)


def test_signed_scores_are_the_flow_of_y_less_that_of_its_negative():
    trace = small_trace()
    method = FlowMethod("agf_net", heads="sum", residual=True, nodes=True, signed=True)
    scores = method(trace)
    assert scores.flow is not None
    assert scores.flow_against is not None
    unsigned = replace(method, signed=False)
    torch.testing.assert_close(scores.values, unsigned(trace).values - unsigned(scaled(trace, -1)).values)
    assert [fact["value_against"] for fact in scores.diagnostics] == scores.flow_against.value.tolist()
    assert torch.equal(method(scaled(trace, -1)).values, -scores.values)


@combinations
def test_every_layer_sums_to_the_flow_value_and_the_flow_is_certified(method):
    scores = method(small_trace())
    assert scores.flow is not None
    assert bool(scores.flow.converged.all())
    value = scores.flow.value
    if method.signed:
        assert scores.flow_against is not None
        assert bool(scores.flow_against.converged.all())
        value = value - scores.flow_against.value
    layers = scores.layers()
    assert layers is not None
    scale = scores.flow.value.max()
    torch.testing.assert_close(layers.sum(-1), value[:, None].expand(-1, 4), rtol=0, atol=1e-9 * float(scale))
    torch.testing.assert_close(scores.values.sum(-1), value, rtol=0, atol=1e-9 * float(scale))
    all_layers = replace(method, layer="all")(small_trace())
    torch.testing.assert_close(all_layers.values, layers.sum(-2))


@combinations
def test_scores_scale_as_the_output_does(method):
    one, seven = method(small_trace()), method(scaled(small_trace(), 7))
    torch.testing.assert_close(seven.values, 7 * one.values, rtol=1e-7, atol=1e-9)


@combinations
def test_the_network_turned_round_has_the_same_flow(method):
    trace = small_trace()
    capacities = method.capacities(trace)
    back = solve(capacities, barrier=method.barrier)
    forth = solve(capacities.flip(1).mT, barrier=method.barrier)
    torch.testing.assert_close(forth.edges.flip(1).mT, back.edges, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(forth.through().flip(1), back.through(), rtol=1e-7, atol=1e-9)


@combinations
def test_from_wherever_the_solver_comes_the_flow_is_the_same(method):
    """One item in a batch of others, tokens in another order: the solution is unique."""
    trace = small_trace()
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = replace(
        trace,
        attentions=tuple(a[..., order, :][..., order] for a in trace.attentions),
        gradients=tuple(g[..., order, :][..., order] for g in trace.gradients),
        **{
            name: tuple(x[:, order] for x in getattr(trace, name))
            for name in ("hidden", "hidden_gradient", "stream", "stream_gradient")
        },
    )
    torch.testing.assert_close(method(moved).values, method(trace).values[:, order], rtol=1e-6, atol=1e-9)


@cache
def models(family):
    return traced(FAMILIES[family])


@each_method
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_batch_gives_what_each_text_alone_gives_and_padding_nothing(method, family):
    together = method(models(family)).values
    for k, text in enumerate(TEXTS):
        alone = method(traced(FAMILIES[family], [text])).values
        n = alone.shape[1]
        torch.testing.assert_close(together[k, :n], alone[0], rtol=1e-6, atol=1e-7 * float(alone.abs().max()))
        assert float(together[k, n:].abs().sum()) == 0


@each_method
def test_what_padding_holds_changes_nothing(method):
    trace = models("bert")
    gone = ~trace.mask[..., None]
    poisoned = replace(
        trace,
        hidden=tuple(h.masked_fill(gone, torch.nan) for h in trace.hidden),
        stream=tuple(h.masked_fill(gone, torch.nan) for h in trace.stream),
        stream_gradient=tuple(g.masked_fill(gone, 7) for g in trace.stream_gradient),
    )
    assert torch.equal(method(poisoned).values, method(trace).values)


@each_method
def test_the_explainer_asks_for_what_a_method_needs_and_no_more(method, monkeypatch):
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model.double(), tokenizer)
    explainer("a dog", "agf")  # shows once whether the model can be streamed
    calls = []
    count_backward_passes(monkeypatch, lambda _outputs: calls.append("backward"))
    handle = model.register_forward_pre_hook(lambda *_: calls.append("forward"))
    att = explainer(SENTENCE, method)
    handle.remove()
    assert calls == ["forward", "backward"]
    assert att.layers is not None
    assert att.layers.shape == (4, len(att.tokens))
    assert att.method == method.name
    scores = att.layers.sum(0) if method.layer == "all" else att.layers[method.layer]
    np.testing.assert_allclose(att.scores, scores, rtol=1e-12)
    assert METHODS["agf"].name not in explainer.compare(SENTENCE, [method, "attcat"])


def test_several_options_share_one_trace():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer)
    explainer("a dog", "agf")  # shows once whether the model can be streamed
    passes = []
    handle = model.register_forward_pre_hook(lambda *_: passes.append(1))
    explainer.compare(SENTENCE, ["agf", *FEW])
    handle.remove()
    assert len(passes) == 1


def test_residual_edges_need_a_trace_that_shows_them():
    with pytest.raises(GaflowError, match="residual=True"):
        FlowMethod("agf", residual=True)(random_trace())


def test_node_capacities_need_hidden_states():
    with pytest.raises(UnsupportedModelError, match="hidden state"):
        FlowMethod("agf", nodes=True)(random_trace())
    trace = small_trace()
    copies = replace(trace, hidden_gradient=(None, *trace.hidden_gradient[1:]))
    with pytest.raises(UnsupportedModelError, match="leave out nodes"):
        FlowMethod("agf", nodes=True)(copies)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": "max"}, "heads.*'mean', 'sum'.*'max'"),
        ({"information": agf, "heads": "sum"}, "heads='sum'"),
        ({"information": "af", "signed": True}, "signed needs a gradient"),
        ({"replacement": "nothing"}, "replacement must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        FlowMethod(**settings)


@pytest.mark.parametrize("name", ["residual", "signed", "nodes"])
def test_a_switch_is_true_or_false(name):
    settings: Any = {name: "yes"}
    with pytest.raises(TypeError, match=f"{name}.*'yes'"):
        FlowMethod(**settings)


@pytest.mark.parametrize(
    ("method", "name", "passes", "signed", "class_specific"),
    [
        (FlowMethod("agf", signed=True), "agf(signed=True)", "1 forward, 1 backward", True, True),
        (FlowMethod("af", residual=True), "af(residual=True)", "1 forward, 1 backward", False, True),
        (
            FlowMethod(preset="peeled_flow", replacement="mask", rounds=3, throw=False),
            "peeled_flow(replacement='mask', rounds=3)",
            "3 forward, 3 backward",
            True,
            True,
        ),
        (
            FlowMethod("agf_net", nodes=True, heads="sum", layer="all"),
            "agf_net(heads='sum', nodes=True, layer='all')",
            "1 forward, 1 backward",
            False,
            True,
        ),
    ],
)
def test_what_is_known_of_a_method_follows_its_options(method, name, passes, signed, class_specific):
    assert method.name == name
    assert (method.info.passes, method.info.signed, method.info.class_specific) == (passes, signed, class_specific)
    assert method.needs == (("residual",) if method.residual else ())


@pytest.mark.parametrize("option", ["steps", "groups", "orders", "ranked", "seed", "batch_size"])
def test_options_of_earlier_versions_are_refused_by_name(option):
    settings: Any = {option: 1}
    with pytest.raises(TypeError, match=f"{option} is no option of flow methods"):
        FlowMethod("agf", **settings)
