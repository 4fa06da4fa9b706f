"""Residual sums: by hand on a model of two numbers, by hooks and laws on every family."""

from dataclasses import dataclass, field
from inspect import signature
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    FalconConfig,
    GPTJConfig,
    GPTNeoXConfig,
)

from gaflow.errors import UnsupportedModelError
from gaflow.explainer.explainer import Explainer
from gaflow.inputs.batch import Batch
from gaflow.methods.base import Scores
from gaflow.models.tracing import Trace
from tests.support.models import FAMILIES, SIZE, bert, byte_bpe
from tests.support.task_models import listener, picture, sound, viewer
from tests.support.tracing import SHORT, assert_close, make_batch, state, trace_logit


class Tiny(nn.Module):
    """Two tokens, width 1, one head; every token attends to both alike, and a block is `x + 3 mean(x)`, twice."""

    def __init__(self, join="x + attended", blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(3, 1)
        self.embedding.weight.data = torch.tensor([[0.0], [1.0], [2.0]])
        self.value = nn.Parameter(torch.tensor(3.0))
        self.join, self.blocks = join, blocks

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, output_attentions=False, output_hidden_states=False, return_dict=True):
        x = self.embedding(input_ids)
        hidden, attentions = [x], []
        for _ in range(self.blocks):  # the same weights again, as in ALBERT
            a = (x @ x.mT * 0).softmax(-1)[:, None]
            attended = a[:, 0] @ (x * self.value)
            names: Any = {"x": x, "attended": attended, "fed": x * x, "torch": torch}
            if self.join.startswith("+="):
                x = x * 1  # a model that overwrites its stream
                x += attended
            else:
                x = eval(self.join, names)
            hidden.append(x)
            attentions.append(a)
        return SimpleNamespace(logits=x[:, 0] * 1, attentions=tuple(attentions), hidden_states=tuple(hidden))


def tiny_trace(*args, **settings):
    ids = torch.tensor([[1, 2]])
    batch = Batch({"input_ids": ids}, torch.ones(1, 2, dtype=torch.bool), False, cast(Any, ()))
    return trace_logit(Tiny(*args, **settings), batch, residual=True)


@pytest.mark.parametrize(
    "join",
    ["x + attended", "attended + x", "x.add(attended)", "torch.add(attended, x)", "torch.add(x, other=attended)", "+="],
)
def test_the_sums_of_a_model_small_enough_to_work_out_by_hand(join):
    # x = (1, 2); s = x + 3 mean(x) = (5.5, 6.5); s' = s + 3 mean(s) = (23.5, 24.5); y = s'_0 = 2.5 s_0 + 1.5 s_1
    trace = tiny_trace(join)
    assert [h.flatten().tolist() for h in trace.stream] == [[1, 2], [5.5, 6.5]]
    assert [g.flatten().tolist() for g in trace.stream_gradient] == [[2.5, 1.5], [1, 0]]
    assert trace.output.tolist() == [23.5]


@pytest.mark.parametrize(
    "join", ["x + attended + fed", "attended + fed + x", "x + (fed + attended)", "(x + fed) + attended"]
)
def test_in_a_parallel_block_all_that_is_not_attention_is_stream(join):
    trace = tiny_trace(join, blocks=1)
    assert [h.flatten().tolist() for h in trace.stream] == [[2, 6]]
    assert [g.flatten().tolist() for g in trace.stream_gradient] == [[1, 0]]


def test_a_scaled_operand_counts_as_scaled():
    (stream,) = tiny_trace("torch.add(attended, x, alpha=2)", blocks=1).stream
    assert stream.flatten().tolist() == [2, 4]


def test_a_model_without_residual_sums_is_refused_only_where_they_are_asked_for():
    with pytest.raises(UnsupportedModelError, match=r"layer 1.*residual stream"):
        tiny_trace("attended if x[0, 0] > 1 else x + attended")
    model, tokenizer = bert()
    trace = trace_logit(model, make_batch(tokenizer))
    assert trace.stream == trace.stream_gradient == ()


def test_a_stream_that_is_overwritten_afterwards_is_refused():
    with pytest.raises(UnsupportedModelError, match="no addition of layer 0"):
        tiny_trace("(lambda copy: (copy + attended, copy.detach().neg_())[0])(x * 1)")


def parallel(kind, **changes):
    tokenizer = byte_bpe()
    size = {"vocab_size": len(tokenizer), "pad_token_id": 1, "num_labels": 3, "initializer_range": 0.3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForSequenceClassification.from_config(kind(**{**size, **changes})).eval(), tokenizer


PARALLEL = {
    "gpt_neox": lambda: parallel(GPTNeoXConfig, **{**SIZE, "use_parallel_residual": True}),
    "falcon": lambda: parallel(
        FalconConfig, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=48, parallel_attn=True
    ),
    "gptj": lambda: parallel(GPTJConfig, n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=64, rotary_dim=4),
}
EVERY = {**FAMILIES, **PARALLEL}


@pytest.mark.parametrize("family", EVERY)
def test_every_family_shows_the_sums_of_every_layer(family):
    model, tokenizer = EVERY[family]()
    before = state(model)
    batch = make_batch(tokenizer)
    trace, plain = trace_logit(model, batch, residual=True), trace_logit(model, batch)
    assert state(model) == before
    assert torch.equal(trace.attention, plain.attention)
    assert torch.equal(trace.gradient, plain.gradient)
    layers = trace.attention.shape[1]
    assert len(trace.stream) == len(trace.stream_gradient) == layers
    for k in range(layers):
        assert trace.stream[k].shape == trace.stream_gradient[k].shape == trace.hidden[k].shape
        if family in FAMILIES:  # one after the other: the stream is what the block was given
            assert torch.equal(trace.stream[k], trace.hidden[k])
        else:
            assert not torch.equal(trace.stream[k], trace.hidden[k])


@dataclass(frozen=True)
class RecordTrace:
    """A method that keeps the trace, with its residual sums, and scores every token alike."""

    traces: list[Trace] = field(default_factory=list)
    name = "record"
    needs = ("residual",)

    def __call__(self, trace):
        self.traces.append(trace)
        return Scores(trace.mask.double())


@pytest.mark.parametrize(("make", "item"), [(viewer, picture()), (listener, sound(960))])
def test_pictures_and_sounds_show_the_sums_of_every_layer(make, item):
    explainer = Explainer(*make())
    recorder = RecordTrace()
    explainer(item, recorder)
    (trace,) = recorder.traces
    assert len(trace.stream) == trace.attention.shape[1]
    for k, stream in enumerate(trace.stream):
        assert torch.equal(stream, trace.hidden[k])


# the norm that reads the residual sum, by hand for every family
NORMS = {
    **dict.fromkeys(("bert", "roberta", "electra", "deberta"), "attention.output.LayerNorm"),
    "distilbert": "sa_layer_norm",
    "albert": "attention.LayerNorm",
    "mpnet": "attention.LayerNorm",
    "modernbert": "mlp_norm",
    "gpt2": "ln_2",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_hooks_written_for_the_family_see_the_same_sums(family):
    model, tokenizer = FAMILIES[family]()
    sums = []

    def watch(_, args):
        args[0].retain_grad()
        sums.append(args[0])

    handles = [m.register_forward_pre_hook(watch) for name, m in model.named_modules() if name.endswith(NORMS[family])]
    try:
        model.set_attn_implementation("eager")
        batch = make_batch(tokenizer)
        parameters = signature(model.forward).parameters
        model(**{k: v for k, v in batch.inputs.items() if k in parameters}).logits[:, 0].sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    trace = trace_logit(model, batch, residual=True)
    assert len(sums) == len(trace.stream_gradient)
    for total, gradient in zip(sums, trace.stream_gradient, strict=True):
        assert_close(gradient, total.grad)


@pytest.mark.parametrize("family", EVERY)
def test_above_the_last_attention_only_rows_that_the_head_reads_have_a_gradient(family):
    model, tokenizer = EVERY[family]()
    trace = trace_logit(model, make_batch(tokenizer), residual=True)
    assert torch.equal((trace.stream_gradient[-1] != 0).any(-1), trace.rows() > 0)


@pytest.mark.parametrize("family", EVERY)
def test_a_batch_shows_what_its_texts_show_alone(family):
    model, tokenizer = EVERY[family]()
    together = trace_logit(model, make_batch(tokenizer), residual=True)
    alone = trace_logit(model, make_batch(tokenizer, [SHORT]), residual=True)
    n = alone.mask.shape[1]
    for name in ("stream", "stream_gradient"):
        for of_batch, of_one in zip(getattr(together, name), getattr(alone, name), strict=True):
            assert_close(of_batch[1:, :n], of_one)
