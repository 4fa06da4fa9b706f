"""Adapters, on tiny models of the families they are for: the layers are those of the model's own computation."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import gaflow
from benchmarks.zoo import condition
from benchmarks.zoo_models import build, make_batch, read_output, trace_output
from gaflow.errors import UnsupportedModelError
from gaflow.inputs.batch import Batch, batches
from gaflow.inputs.encoding import encode
from gaflow.models.adapters import ADAPTERS, REFUSED, find_adapter, runs_alone
from gaflow.models.adapters.observed import AttentionLayer, averages, positioned_layer, recorded_softmaxes
from gaflow.models.forward import forward
from gaflow.models.limits import padding_of
from gaflow.models.restore import borrow
from tests.support.models import SENTENCE, wordpiece

TEXT, TOKENS, PICTURE = "text-classification", "token-classification", "image-classification"
CASES = [
    ("bart", TEXT),
    ("big_bird", TEXT),
    ("bigbird_pegasus", TEXT),
    ("canine", TEXT),
    ("canine", TOKENS),
    ("convbert", TEXT),
    ("funnel", TEXT),
    ("funnel", TOKENS),
    ("hiera", PICTURE),
    ("led", "question-answering"),
    ("levit", PICTURE),
    ("longformer", TEXT),
    ("longformer", TOKENS),
    ("mistral", TEXT),
    ("nystromformer", TEXT),
    ("perceiver", TEXT),
    ("pvt", PICTURE),
    ("segformer", PICTURE),
    ("squeezebert", TEXT),
    ("swin", PICTURE),
    ("t5", TEXT),
    ("t5gemma", TEXT),
    ("vit", PICTURE),
    ("wav2vec2", "audio-classification"),
    ("wavlm", "audio-classification"),
    ("xlnet", TEXT),
]
each_case = pytest.mark.parametrize(("kind", "task"), CASES, ids=[" ".join(case) for case in CASES])
FROM_NOWHERE = {("funnel", TOKENS), ("pvt", PICTURE)}  # some keys of theirs come from no node of the layer below


def make(kind: str, task: str, lengths=(40, 40), **changes) -> tuple[Any, Any]:
    model = build(kind, task, **changes)
    return model, make_batch(model, kind, task, list(lengths))


def double(model, batch):
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in batch.inputs.items()}
    return model.double(), replace(batch, inputs=inputs)


def assert_close(a, b, tolerance=1e-5):
    assert a.shape == b.shape
    assert (a - b).abs().max().item() <= tolerance * max(1.0, b.abs().max().item())


def test_every_way_to_read_attention_is_among_the_cases():
    tried = {ADAPTERS[kind].read for kind, _ in CASES if kind in ADAPTERS}
    assert {adapter.read for adapter in ADAPTERS.values()} <= tried
    assert find_adapter(build("bart", TEXT)).name == "encoder"


@each_case
def test_every_node_takes_averages_of_the_layer_below(kind, task):
    model, batch = make(kind, task)
    trace = trace_output(model, batch)
    sums = trace.attention.sum(-1)
    assert sums.max() <= 1 + 1e-5
    if (kind, task) not in FROM_NOWHERE:
        assert bool(((sums.abs() < 1e-6) | ((sums - 1).abs() < 1e-5)).all())
    assert bool((sums.amax(-1) > 0.5).all())
    assert bool((trace.gradient.flatten(2).abs().amax(-1) > 0).all())
    assert trace.gradient[(trace.attention == 0).all(2, keepdim=True).expand_as(trace.gradient)].abs().sum() == 0
    flow = gaflow.solve(gaflow.information.agf(trace.attention, trace.gradient), mask=trace.mask)
    assert bool((flow.value > 0).all())


class Grow(TorchFunctionMode):
    """Multiplies the softmaxes of a pass, each by its own factor, and has them computed in the model's precision."""

    def __init__(self, factors=()):
        super().__init__()
        self.factors = list(factors)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func not in (torch.softmax, nn.functional.softmax, torch.Tensor.softmax) or args[0].dim() < 3:
            return func(*args, **kwargs)
        kwargs.pop("dtype", None)
        factor = self.factors.pop(0) if self.factors else None
        result = func(*args, **kwargs)
        return result if factor is None else result * factor


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        ("big_bird", TEXT),
        ("segformer", PICTURE),
        ("hiera", PICTURE),
        ("longformer", TEXT),
        ("pvt", PICTURE),
        ("swin", PICTURE),
    ],
)
def test_the_gradient_is_the_slope_of_the_output_when_the_parts_of_an_edge_grow_together(kind, task):
    """By central differences, in a random direction over the edges of a layer."""
    model, batch = double(*make(kind, task))
    with borrow(model), Grow():
        outputs = forward(model, batch)
        with recorded_softmaxes(model) as softmaxes:
            model(**batch.inputs)
        trace = trace_output(model, batch)
    order = [s.weights.shape for s in softmaxes]
    parts = [a for layer in outputs.layers for a in layer.parts]
    assert [tuple(a.shape) for a in parts] == [tuple(shape) for shape in order[: len(parts)]]
    index = len(outputs.layers) // 2
    layer = outputs.layers[index]
    assert layer.layout is not None
    direction = torch.randn(layer.weights().shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    free = [torch.zeros_like(a, requires_grad=True) for a in layer.parts]
    grown = torch.autograd.grad((layer.layout(*free) * direction).sum(), free)
    start = sum(len(lower.parts) for lower in outputs.layers[:index])
    y = []
    for step in (1e-5, -1e-5):
        factors: list[Any] = [None] * len(order)
        factors[start : start + len(grown)] = [1 + step * g for g in grown]
        with torch.no_grad(), borrow(model), torch.no_grad(), Grow(factors):
            y.append(read_output(model(**batch.inputs).logits).sum().item())
    repeat = trace.attention.shape[2] // layer.weights().shape[1]
    laid, slope = (x[:, index, ::repeat] for x in (trace.attention, trace.gradient))
    assert (y[0] - y[1]) / 2e-5 == pytest.approx((direction * laid * slope).sum().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "task", "layers"),
    [
        ("bart", TEXT, 2),
        ("big_bird", TEXT, 2),
        ("funnel", TEXT, 4),
        ("led", "question-answering", 2),
        ("longformer", TEXT, 2),
        ("swin", PICTURE, 2),
        ("xlnet", TEXT, 1),
    ],
)
def test_a_change_of_one_place_changes_the_rows_that_the_network_says(kind, task, layers):
    """A row of attention changes if its node or one of its keys does; in the residual stream a node stays itself."""
    model, batch = double(*make(kind, task))
    before = trace_output(model, batch)
    t = before.mask.shape[1]
    for place_ in (1, t // 2, t - 2):
        after = trace_output(model, disturbed(batch, place_, t))
        reached = torch.zeros(t, dtype=torch.bool)
        reached[place_] = True
        for layer in range(layers):
            edges = (before.attention[0, layer] > 0).any(0)  # (t, t)
            expected = reached | edges[:, reached].any(1)
            rows = (after.attention[0, layer] - before.attention[0, layer]).abs().amax((0, 2)) > 1e-14
            assert torch.equal(rows, expected & edges.any(1)), (layer, place_)
            reached = expected


def disturbed(batch, place_, t):
    """The batch with another token, or patch, at one place."""
    inputs = {name: x.clone() for name, x in batch.inputs.items()}
    if "input_ids" in inputs:
        inputs["input_ids"][0, place_] = 50 if inputs["input_ids"][0, place_] != 50 else 51
    else:
        pixels = inputs["pixel_values"]
        side = round(t**0.5)
        size = pixels.shape[-1] // side
        row, column = place_ // side * size, place_ % side * size
        pixels[0, :, row : row + size, column : column + size] += 1
    return replace(batch, inputs=inputs)


def heads(x, count):
    """(b, t, d) as (b, h, t, d / h)."""
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def first_queries_and_keys(model, attention, embeddings):
    """Queries (scaled), keys and global ones of the first layer."""
    hidden_states: list[Any] = []
    handle = attention.register_forward_pre_hook(
        lambda _, args, kwargs: hidden_states.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    with torch.no_grad():
        model(**embeddings)
    handle.remove()
    return hidden_states[0]


def test_longformer_with_a_window_over_everything_is_dense_attention():
    model, batch = make("longformer", TOKENS, attention_window=80)
    trace = trace_output(model, batch)
    attention = model.longformer.encoder.layer[0].attention.self
    x = first_queries_and_keys(model, attention, batch.inputs)[:, :40]
    with torch.no_grad():
        q, k = (heads(f(x), 4) for f in (attention.query, attention.key))
        expected = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
    assert_close(trace.attention[:, 0], expected)


def test_longformer_has_rows_of_global_tokens_and_columns_for_them_beside_its_window():
    model, batch = make("longformer", TEXT)
    trace = trace_output(model, batch)
    attention = model.longformer.encoder.layer[0].attention.self
    x = first_queries_and_keys(model, attention, batch.inputs)[:, :40]
    near = (torch.arange(40)[:, None] - torch.arange(40)).abs() <= 2
    near[:, 0] = True  # [CLS] is global
    with torch.no_grad():
        q, k = (heads(f(x), 4) for f in (attention.query, attention.key))
        expected = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~near, -torch.inf).softmax(-1)
        q, k = (heads(f(x), 4) for f in (attention.query_global, attention.key_global))
        expected[:, :, 0] = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)[:, :, 0]
    assert_close(trace.attention[:, 0], expected)


@pytest.mark.parametrize("kind", ["original_full", "block_sparse"])
def test_big_bird_attends_in_blocks_and_to_the_first_one_twice(kind):
    """In evaluation mode the random blocks are all the first block, beside the global ones and the neighbours."""
    model, batch = make("big_bird", TEXT, attention_type=kind)
    trace = trace_output(model, batch)
    attention = model.bert.encoder.layer[0].attention.self
    x = first_queries_and_keys(model, attention, batch.inputs)
    times = torch.ones(10, 10)
    if kind == "block_sparse":
        times = torch.eye(10) + torch.eye(10).roll(1, 1).triu() + torch.eye(10).roll(1, 0).tril()
        times[:, 0] = times[:, -1] = 1
        times[1:-1, 0] += 1
        times[0], times[-1] = 1, 1
    times = times.repeat_interleave(4, 0).repeat_interleave(4, 1)
    with torch.no_grad():
        q, k = (heads(f(x), 4) for f in (attention.query, attention.key))
        weights = times * (q @ k.transpose(-1, -2) / 8**0.5).exp()
    assert_close(trace.attention[:, 0], weights / weights.sum(-1, keepdim=True))


def test_a_model_that_exchanges_its_layers_gets_them_back():
    model, batch = make("big_bird", TEXT, lengths=(12, 12))  # too short for blocks
    before = condition(model)
    trace = trace_output(model, batch)
    assert condition(model) == before
    assert model.bert.attention_type == "block_sparse"
    assert_close(trace.attention.sum(-1), torch.ones(2, 2, 4, 12))


def test_funnel_keeps_its_pooled_nodes_at_the_first_of_their_places():
    model, batch = make("funnel", TEXT, lengths=(16, 16), block_sizes=[1, 1, 1], block_repeats=[1, 1, 1])
    trace = trace_output(model, batch)
    nodes = [trace.attention[0, layer].sum((0, 2)).nonzero().flatten().tolist() for layer in range(3)]
    assert nodes == [list(range(16)), [0, 1, 3, 5, 7, 9, 11, 13], [0, 1, 5, 9]]
    keys = [trace.attention[0, layer].sum((0, 1)).nonzero().flatten().tolist() for layer in range(3)]
    assert keys == [nodes[0], nodes[0], nodes[1]]  # only queries are pooled


def test_swin_merges_four_patches_into_the_keys_of_the_next_stage():
    model, batch = make("swin", PICTURE)
    trace = trace_output(model, batch)
    third = trace.attention[0, 2, 0].reshape(64, 8, 8)[0]  # the first stage has 8 x 8 patches, the second 4 x 4
    blocks = third.reshape(4, 2, 4, 2).transpose(1, 2).reshape(16, 4)
    assert_close(blocks, blocks[:, :1].expand(-1, 4))
    assert torch.equal(trace.attention[:, 0, 0], trace.attention[:, 0, 1])  # two heads, each shown twice
    assert trace.attention.shape == (2, 4, 4, 64, 64)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "gemma", "gpt2"])
def test_a_decoder_has_no_edges_into_the_future_and_is_read_at_its_last_token(kind):
    model, batch = make(kind, TEXT, lengths=(16, 11))
    trace = trace_output(model, batch)
    future = torch.ones(16, 16).triu(1).bool()
    assert trace.attention[..., future].abs().max() == 0
    assert trace.gradient[..., future].abs().max() == 0
    assert trace.rows().argmax(-1).tolist() == [15, 10]
    assert trace.attention.shape[2] == 4  # heads of queries; keys may be shared by several
    flow = gaflow.solve(gaflow.information.gf(trace.attention, trace.gradient), mask=trace.mask)
    assert flow.edges[..., future].abs().max() == 0
    assert flow.source.argmax(-1).tolist() == [15, 10]


def test_encoder_decoders_are_explained_by_their_encoder():
    model, batch = make("bart", TEXT, lengths=(16, 11), encoder_layers=3, decoder_layers=1)
    trace = trace_output(model, batch)
    assert (trace.adapter, trace.attention.shape[1]) == ("encoder", 3)
    with torch.no_grad():
        expected = model(**batch.inputs, output_attentions=True).encoder_attentions if eager(model) else ()
    assert_close(trace.attention[0], torch.stack([a[0] for a in expected]))


def eager(model):
    model.set_attn_implementation("eager")
    return True


@pytest.mark.parametrize("kind", ["convbert", "mobilebert", "nystromformer"])
def test_texts_of_one_length_run_together_where_padding_would_change_the_answer(kind):
    model = build(kind, TEXT, vocab_size=len(wordpiece()), pad_token_id=0)
    explainer = gaflow.Explainer(model, wordpiece())
    texts = [SENTENCE, "a good film", "a bad film"]
    assert runs_alone(model)
    padding = padding_of(model, wordpiece())
    encodings = encode(wordpiece(), texts)
    assert [len({len(encodings[k]) for k in group}) for group in batches(encodings, 16, padding)] == [1, 1]
    for text, att in zip(texts, explainer(texts, "grads"), strict=True):
        assert_close(torch.tensor(att.scores), torch.tensor(explainer(text, "grads").scores))


@pytest.mark.parametrize("method", ["partial_lrp", "transatt"])
def test_relevance_does_not_follow_attention_in_parts(method):
    model, batch = make("longformer", TEXT)
    trace = trace_output(model, batch)
    with pytest.raises(UnsupportedModelError, match="in parts"):
        gaflow.METHODS[method](trace)


@pytest.mark.parametrize("kind", ["big_bird", "funnel", "longformer", "xlnet"])
def test_methods_that_need_no_more_than_a_trace_work(kind):
    model, batch = make(kind, TEXT)
    trace = trace_output(model, batch)
    for method in ("af", "gf", "agf", "rawatt", "rollout", "attgrads"):
        scores = gaflow.METHODS[method](trace).values
        assert scores.shape == trace.mask.shape
        assert bool(scores.isfinite().all())
        assert bool((scores != 0).any(-1).all())


@each_case
def test_hidden_states_are_those_of_the_layers_or_missing(kind, task):
    model, batch = make(kind, task)
    trace = trace_output(model, batch)
    if trace.hidden:
        assert len(trace.hidden) == trace.attention.shape[1] + 1
    else:
        with pytest.raises(gaflow.GaflowError, match="hidden states"):
            gaflow.METHODS["cat"](trace)


def test_models_that_mask_padding_share_a_batch():
    assert not runs_alone(build("bert", TEXT))


@pytest.mark.parametrize("kind", ["fnet", "mra", "yoso", "poolformer", "resnet"])
def test_a_family_without_attention_is_refused_before_it_runs(kind):
    model = build(kind, PICTURE if kind in ("poolformer", "resnet") else TEXT)
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    batch = make_batch(build("bert", TEXT), "bert", TEXT, [8])
    with pytest.raises(UnsupportedModelError, match=REFUSED[kind].split(":")[0]):
        trace_output(model, batch)


def test_no_family_is_both_adapted_and_refused():
    assert not set(ADAPTERS) & set(REFUSED)


def test_perceiver_with_more_latents_than_tokens_is_refused():
    model, batch = make("perceiver", TEXT, lengths=(16, 7))
    with pytest.raises(UnsupportedModelError, match=r"8 latents.*7 tokens"):
        trace_output(model, batch)


class Fused(nn.Module):
    """One layer of attention that is torch's own, or the same by hand."""

    def __init__(self, fused: bool):
        super().__init__()
        torch.manual_seed(0)
        self.fused, self.config = fused, SimpleNamespace(num_hidden_layers=1)
        self.words = nn.Embedding(20, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids):
        x = self.words(input_ids)
        if self.fused:
            mixed = self.attention(x, x, x, need_weights=True)[0]
        else:
            q, k, v = nn.functional.linear(x, self.attention.in_proj_weight, self.attention.in_proj_bias).chunk(3, -1)
            weights = (heads(q, 2) @ heads(k, 2).transpose(-1, -2) / 2).softmax(-1)
            mixed = self.attention.out_proj((weights @ heads(v, 2)).transpose(1, 2).flatten(2))
        return SimpleNamespace(logits=self.head((x + mixed).tanh())[:, 0])


def test_the_attention_of_torch_itself_is_seen():
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10]])
    batch = Batch({"input_ids": ids}, torch.ones(2, 4, dtype=torch.bool), False, ())
    trace, expected = (trace_output(Fused(fused), batch) for fused in (True, False))
    assert trace.adapter == expected.adapter == "softmaxes"
    assert trace.attention.shape == (2, 1, 2, 4, 4)
    assert_close(trace.attention, expected.attention)
    assert_close(trace.gradient, expected.gradient)
    assert trace.rows().tolist() == [[1, 0, 0, 0]] * 2


def test_an_edge_of_several_parts_has_their_sum_and_the_slope_of_their_growth():
    parts = torch.tensor([[[[0.2, 0.6]]]]), torch.tensor([[[[0.1, 0.1]]]])
    layer = AttentionLayer(parts, lambda a, b: a + b)
    slopes = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[4.0, -5.0]]]])
    assert_close(layer.weights(), torch.tensor([[[[0.3, 0.7]]]]))
    assert_close(layer.gradient(slopes), torch.tensor([[[[2.0, 1.0]]]]))
    assert_close(layer.gradient([slopes[0], None]), torch.tensor([[[[0.2 / 0.3, 1.2 / 0.7]]]]))


def test_a_part_of_its_own_keeps_its_gradient_and_what_stands_for_nothing_has_none():
    layer = AttentionLayer((torch.tensor([[[[0.0, 1.0]]]]),), lambda a: torch.cat([a, 0 * a], -2))
    assert_close(layer.gradient([torch.tensor([[[[3.0, 7.0]]]])]), torch.tensor([[[[0.0, 7.0], [0.0, 0.0]]]]))


def test_keys_are_averages_and_queries_sit_at_their_positions():
    keys = averages([[0, 1], [2], []], 3)
    layer = positioned_layer(torch.tensor([[[[0.5, 0.25, 0.25]]]]), [1], keys)
    assert_close(layer.weights()[0, 0], torch.tensor([[0.0, 0.0, 0.0], [0.25, 0.25, 0.25], [0.0, 0.0, 0.0]]))


def test_recording_softmaxes_leaves_no_hooks():
    model = build("bert", TEXT)
    before = condition(model)
    with pytest.raises(RuntimeError, match="stop"), recorded_softmaxes(model):
        raise RuntimeError("stop")
    assert condition(model) == before
