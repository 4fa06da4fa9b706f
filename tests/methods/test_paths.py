"""Path averages: against the rule written out point by point, and against integrated gradients where both agree."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.inputs.batch import collate, neutral_tokens
from gaflow.inputs.encoding import encode
from gaflow.methods import Cat, FlowMethod, IntegratedGradients
from gaflow.methods.paths import Paths, along_path
from gaflow.methods.text_random import torch_generator
from gaflow.models.cost import _BYTES_PER_PASS, MethodCost, estimate
from gaflow.models.limits import padding_of
from gaflow.models.memory import geometry_of
from gaflow.models.tracing import TracedModel
from tests.support.models import FAMILIES, SENTENCE, bert, gpt2
from tests.support.path_traces import TEXTS, traced
from tests.support.traces import random_trace
from tests.support.tracing import assert_close, state, trace_logit
from tests.support.tracing import trace as trace_model

SINGLE = ("modernbert",)  # its softmax is in float32 whatever the model is in


def contributions_at(path, layer):
    """Contributions (b, t) of the hidden states of a layer, whose gradient is 1 by convention."""
    gradient = path.hidden_gradient[layer]
    assert gradient is not None
    assert torch.equal(gradient, torch.ones_like(path.hidden[layer]))
    return path.hidden[layer][..., 0]


def test_where_embeddings_are_sums_the_average_at_the_input_is_integrated_gradients():
    trace = traced(gpt2, TEXTS[2:])
    expected = IntegratedGradients(steps=50)(trace).values
    rough, fine = (contributions_at(along_path(trace, Paths(steps)), 0) for steps in (20, 80))
    assert_close(fine, expected, 2e-3)
    assert (fine - expected).abs().max() < 0.2 * (rough - expected).abs().max()  # the error of the rule: 1/16


@pytest.mark.parametrize(
    "settings", [{}, {"groups": 2, "orders": 2}, {"groups": 99, "orders": 1}, {"groups": 3, "ranked": 2}], ids=str
)
@pytest.mark.parametrize("build", [bert, gpt2])
def test_contributions_of_every_layer_sum_to_what_the_output_gains(build, settings):
    trace = traced(build, TEXTS[2:])
    m = sum(s >= 0 for s in trace.require_model().batch.encodings[0].segments)
    gain = float(trace.output - at(trace.require_model(), torch.zeros(1, m)).output)
    path = along_path(trace, Paths(60, **settings))
    for layer in range(len(path.hidden)):
        assert float(contributions_at(path, layer).sum()) == pytest.approx(gain, rel=1e-2)


def test_with_as_many_groups_as_tokens_the_input_gets_shapley_values_of_the_drawn_orders():
    trace = traced(gpt2, ["a good film"])
    traced_model = trace.require_model()
    encoding = traced_model.batch.encodings[0]
    ordinary = torch.tensor([s >= 0 for s in encoding.segments])
    m = int(ordinary.sum())
    path = along_path(trace, Paths(50, groups=m, orders=3))
    generator = torch_generator(0, [int(k) for k in encoding.inputs["input_ids"]])
    drawn = [torch.randperm(m, generator=generator) for _ in range(3)]
    expected = torch.zeros(m, dtype=torch.float64)
    for order in [walk for one in drawn for walk in (one, one.flip(0))]:
        parts, last = torch.zeros(1, m), float(at(traced_model, torch.zeros(1, m)).output)
        for token in order:
            parts[0, token] = 1
            value = float(at(traced_model, parts).output)
            expected[token] += (value - last) / 6
            last = value
    assert_close(contributions_at(path, 0)[0, ordinary], expected, 3e-3)
    assert float(contributions_at(path, 0)[0, ~ordinary].abs().sum()) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_average_is_that_of_single_points(family):
    """The rule written out: one point after the other, by the model's own gradient."""
    trace = traced(FAMILIES[family], TEXTS[:1])
    path = along_path(trace, Paths(3))
    traced_model = trace.require_model()
    m = sum(s >= 0 for s in traced_model.batch.encodings[0].segments)
    points = [at(traced_model, torch.full((1, m), k / 3, dtype=torch.float64)) for k in range(4)]
    tolerance = 1e-4 if family in SINGLE else 1e-9
    mean = sum(weight * one.gradient for weight, one in zip((1 / 6, 1 / 3, 1 / 3, 1 / 6), points, strict=True))
    assert_close(path.gradient, mean, tolerance)

    def integral(name, k):
        states = [getattr(one, name)[k] for one in points]
        slopes = [getattr(one, f"{name}_gradient")[k] for one in points]
        return sum(((slopes[n] + slopes[n + 1]) / 2 * (states[n + 1] - states[n])).sum(-1) for n in range(3))

    for k in range(len(trace.stream)):
        assert_close(path.stream[k][..., 0], integral("stream", k), tolerance)
        assert_close(contributions_at(path, k), integral("hidden", k), tolerance)
    assert torch.equal(path.attention, trace.attention)


def at(traced_model: TracedModel, parts):
    """A trace of the model whose embedding module is shifted towards that of the absent token, by `parts` (1, m)."""
    model: Any = traced_model.model
    batch, embedding = traced_model.batch, model.get_input_embeddings()
    absent = embedding(torch.tensor(batch.neutral["pad"])).detach()
    ordinary = torch.tensor([[s >= 0 for s in batch.encodings[0].segments]])
    inclusion = torch.ones(ordinary.shape, dtype=absent.dtype)
    inclusion[ordinary] = parts.to(absent.dtype).flatten()
    handle = embedding.register_forward_hook(lambda m, i, o: absent + inclusion[..., None] * (o - absent))
    try:
        return trace_model(model, batch, traced_model.terms, residual=True)
    finally:
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_each_text_alone_gives(family):
    build = FAMILIES[family]
    paths = Paths(2, groups=2, orders=1, ranked=1)
    together = along_path(traced(build), paths)
    tolerance = 1e-4 if family in SINGLE else 1e-9
    for k, text in enumerate(TEXTS):
        alone = along_path(traced(build, [text]), paths)
        n = alone.mask.shape[1]
        assert_close(together.gradient[k : k + 1, ..., :n, :n], alone.gradient, tolerance)
        assert together.gradient[k, ..., n:, :].abs().sum() + together.gradient[k, ..., n:].abs().sum() == 0
        for name in ("hidden", "stream"):
            for ours, theirs in zip(getattr(together, name), getattr(alone, name), strict=True):
                assert_close(ours[k : k + 1, :n], theirs, tolerance)
                assert ours[k, n:].abs().sum() == 0


def test_how_many_points_share_a_pass_changes_nothing():
    trace = traced(texts=TEXTS[:1])
    passes = []
    handle = trace.require_model().model.register_forward_pre_hook(lambda *_: passes.append(1))
    together, single = along_path(trace, Paths(6)), along_path(trace, Paths(6, batch_size=1))
    handle.remove()
    assert len(passes) == 1 + Paths(6).passes == 1 + 7
    assert_close(together.gradient, single.gradient, 1e-12)
    assert_close(together.stream[1], single.stream[1], 1e-12)


@pytest.mark.parametrize(
    "paths", [Paths(3), Paths(3, 2, 1), Paths(3, 2, 3), Paths(2, 4, 2), Paths(2, 3, 0, 2), Paths(2, 3, 1, 1)]
)
def test_how_often_the_model_is_asked_is_known_before(paths):
    trace = traced(texts=TEXTS[:1])
    rows = []
    model: Any = trace.require_model().model
    handle = model.bert.encoder.register_forward_pre_hook(lambda m, inputs: rows.append(len(inputs[0])))
    along_path(trace, paths)
    handle.remove()
    assert sum(rows) == paths.passes
    assert max(rows) <= paths.largest_stage <= paths.passes


def test_ranked_paths_are_those_of_the_order_that_the_paths_before_them_give():
    trace = traced(gpt2, TEXTS[2:])
    ordinary = torch.tensor([s >= 0 for s in trace.require_model().batch.encodings[0].segments])
    m, groups, steps = int(ordinary.sum()), 3, 4
    straight = along_path(trace, Paths(groups * steps))
    order = contributions_at(straight, 0)[0, ordinary].argsort()
    path = along_path(trace, Paths(steps, groups, ranked=1))
    gradient, contributions = straight.gradient.clone(), contributions_at(straight, 0)[0, ordinary].clone()
    for walk in (order, order.flip(0)):
        inclusion, points = torch.zeros(1, m, dtype=torch.float64), []
        points.append(at(trace.require_model(), inclusion))
        for group in walk.tensor_split(groups):
            for k in range(1, steps + 1):
                inclusion[0, group] = k / steps
                points.append(at(trace.require_model(), inclusion))
        for p, q in pairwise(points):
            gradient += (p.gradient + q.gradient) / (2 * groups * steps)
            slopes = [x.hidden_gradient[0] for x in (p, q)]
            contributions += ((slopes[0] + slopes[1]) / 2 * (q.hidden[0] - p.hidden[0])).sum(-1)[0, ordinary]
    assert_close(path.gradient, gradient / 3, 1e-9)
    assert_close(contributions_at(path, 0)[0, ordinary], contributions / 3, 1e-9)


def test_a_pass_holds_no_more_points_than_fit_its_longest_text():
    texts = [
        "a good film",
        SENTENCE,
        "smart.",
        f"{SENTENCE} {SENTENCE}",
        SENTENCE,
    ]
    trace = traced(texts=texts)
    model: Any = trace.require_model().model
    shapes = []
    handle = model.bert.encoder.register_forward_pre_hook(lambda m, inputs: shapes.append(inputs[0].shape[:2]))
    along_path(trace, Paths(12, batch_size=20))
    handle.remove()
    assert max(rows for rows, _ in shapes) <= 20
    assert sum(rows for rows, _ in shapes) == 5 * 13


def test_a_pass_holds_no_more_points_than_its_bytes(monkeypatch):
    trace = traced(texts=TEXTS[:1])
    model: Any = trace.require_model().model
    geometry, n = geometry_of(model), trace.mask.shape[1]
    assert geometry is not None
    one = estimate(geometry, n, 1, MethodCost(2)).path - estimate(geometry, n, 1, MethodCost(1)).path
    rows = []
    handle = model.bert.encoder.register_forward_pre_hook(lambda m, inputs: rows.append(len(inputs[0])))
    for room, most in ((5 * one, 5), (1, 1)):
        rows.clear()
        # The limit belongs to the kind of device; callers limit the points of a pass with `batch_size`.
        monkeypatch.setitem(_BYTES_PER_PASS, "cpu", room)
        along_path(trace, Paths(12))
        assert (max(rows), sum(rows)) == (most, 13)
    handle.remove()


def test_half_precision_is_added_up_in_float32():
    model, tokenizer = bert()
    model = model.bfloat16()
    padding = padding_of(model, tokenizer)
    batch = collate(encode(tokenizer, [TEXTS[0]]), padding, None, neutral_tokens(tokenizer, padding))
    trace = trace_logit(model, batch, residual=True)
    together, single = (along_path(trace, Paths(4, 4, 0, 1, batch_size=size)).gradient for size in (None, 1))
    assert together.dtype == torch.float32
    assert (together - single).abs().max() < 2e-2 * together.abs().max()


def test_models_without_hidden_states_have_paths_but_no_ranked_ones():
    trace = replace(traced(texts=TEXTS[:1], residual=False))
    model: Any = trace.require_model().model
    handle = model.bert.register_forward_hook(lambda m, i, o: setattr(o, "hidden_states", ()))
    try:
        bare = replace(trace, hidden=(), hidden_gradient=())
        assert torch.isfinite(along_path(bare, Paths(2)).gradient).all()
        with pytest.raises(UnsupportedModelError, match="hidden states"):
            along_path(bare, Paths(2, 2, ranked=1))
    finally:
        handle.remove()


def test_a_text_of_fewer_tokens_than_groups_has_as_many_groups_as_tokens():
    paths = Paths(3, groups=4, ranked=1)
    assert (paths.for_tokens(2), paths.for_tokens(4)) == (Paths(3, groups=2, ranked=1), paths)
    assert paths.for_tokens(1) == Paths(12)  # one token comes in straight
    assert torch.isfinite(along_path(traced(texts=["good"]), paths).gradient).all()


@pytest.mark.parametrize("wrong", [{"groups": 2}, {"orders": 1}, {"ranked": 1}, {"steps": 0}, {"groups": True}])
def test_paths_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=r"groups|steps"):
        Paths(**{"steps": 2} | wrong)


def test_orders_are_drawn_by_the_seed_and_leave_the_global_state_alone():
    trace = traced(texts=TEXTS[:1])
    before = torch.get_rng_state()
    first, again, other = (along_path(trace, Paths(1, 2, 1, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.gradient, again.gradient)
    assert not torch.equal(first.gradient, other.gradient)


def test_the_average_converges():
    trace = traced(texts=TEXTS[:1])
    rough, fine, finest = (along_path(trace, Paths(steps)).gradient for steps in (4, 16, 64))
    assert (fine - finest).abs().max() < 0.1 * (rough - finest).abs().max()


def test_another_baseline_is_another_path():
    trace = traced(texts=TEXTS[:1])
    unknown = along_path(trace, Paths(2, replacement="unk"))
    padding = along_path(trace, Paths(2, replacement="pad"))
    assert not torch.allclose(unknown.gradient, padding.gradient)


def test_the_model_is_left_as_found_and_nothing_is_kept_for_autograd():
    trace = traced()
    model = trace.require_model().model
    model.train()
    model.requires_grad_(False)
    before = state(model)
    path = along_path(trace, Paths(2))
    assert state(model) == before
    tensors = [path.gradient, *path.hidden, *path.stream, *path.stream_gradient]
    assert not any(x.requires_grad for x in tensors)


def test_a_trace_without_a_model_has_no_path():
    with pytest.raises(GaflowError, match="without one"):
        along_path(random_trace(), Paths(2))


def test_a_model_that_pools_its_tokens_has_no_path():
    trace = traced(texts=TEXTS[:1])
    model: Any = trace.require_model().model
    handle = model.bert.register_forward_hook(
        lambda m, i, o: setattr(o, "hidden_states", (*o.hidden_states[:-1], o.hidden_states[-1][:, ::2]))
    )
    try:
        with pytest.raises(UnsupportedModelError, match=r"hidden state.* 7 for 14"):
            along_path(trace, Paths(1))
    finally:
        handle.remove()


def test_methods_of_a_trace_have_a_path_averaged_twin():
    path = along_path(traced(gpt2), Paths(3))
    together = Cat()(replace(path, attentions=path.attentions[:1])).values  # the first block alone: the embeddings
    assert torch.equal(together, contributions_at(path, 0))
    assert torch.equal(FlowMethod("agf", steps=3)(traced(gpt2)).values, FlowMethod("agf")(path).values)
