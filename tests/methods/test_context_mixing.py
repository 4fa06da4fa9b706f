"""Value zeroing and ALTI against value vectors that are zeroed one by one."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from transformers import Gemma2Config

from gaflow.errors import UnsupportedModelError
from gaflow.methods import Alti, ValueZeroing
from gaflow.progress import silent
from tests.support.bert_by_hand import Bert
from tests.support.models import FAMILIES, SENTENCE, _make, bert, byte_bpe, longformer
from tests.support.tracing import make_batch, trace_logit

KINDS = (ValueZeroing, Alti)
kinds = pytest.mark.parametrize("kind", KINDS)


def traced(family, texts=(SENTENCE,)):
    model, tokenizer = FAMILIES[family]()
    if family != "modernbert":
        model = model.double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.copy_(torch.linspace(-0.1, 0.2, len(weight)))
    return model, trace_logit(model, make_batch(tokenizer, texts))


def rownorm(matrices):
    return matrices / matrices.sum(-1, keepdims=True)


def nearness(parts, output):
    """The C of ALTI from parts (i, j, d) of an output (i, d)."""
    distances = [
        [cdist(parts[i, [j]], output[[i]], "cityblock").item() for j in range(len(output))] for i in range(len(output))
    ]
    return np.maximum(np.abs(output).sum(-1)[:, None] - np.array(distances), 0)


def test_value_zeroing_of_bert_is_what_is_worked_out_by_hand():
    model, trace = traced("bert")
    by_hand = Bert(model, trace.require_model().batch.inputs["input_ids"][0].numpy())
    expected = []
    for layer in range(len(by_hand.layers)):
        usual = by_hand.hidden[layer + 1]
        columns = [np.diag(cdist(usual, by_hand.output_without(layer, token), "cosine")) for token in range(len(usual))]
        expected.append(np.array(columns).T)
    mixing = ValueZeroing().mixing(trace, 0, silent)
    assert np.allclose(mixing, rownorm(np.array(expected)), rtol=1e-9, atol=1e-12)


def test_alti_of_bert_is_what_is_worked_out_by_hand():
    model, trace = traced("bert")
    by_hand = Bert(model, trace.require_model().batch.inputs["input_ids"][0].numpy())
    expected = [nearness(*by_hand.parts_of_attention(layer)) for layer in range(len(by_hand.layers))]
    mixing = Alti().mixing(trace, 0, silent)
    assert np.allclose(mixing, rownorm(np.array(expected)), rtol=1e-9, atol=1e-12)


@kinds
def test_scores_are_the_mixing_of_all_layers_multiplied_out(kind):
    _, trace = traced("bert", (SENTENCE, "a good film"))
    for item in range(2):
        n = int(trace.mask[item].sum())
        mixing = kind().mixing(trace, item, silent).numpy()
        assert np.allclose(mixing.sum(-1), 1)
        first_row = np.eye(n)[0]
        scores = kind()(trace).values[item, :n].numpy()
        assert np.allclose(scores, np.linalg.multi_dot([first_row, *mixing[::-1]]), rtol=1e-12)
        last = kind(rollout=False)(trace).values[item, :n].numpy()
        assert np.allclose(last, mixing[-1][0], rtol=1e-12)


@contextmanager
def values_changed(module, part, keep):
    """Inside this block the value vectors in the output of a module, at `part`, are multiplied by `keep` (t,)."""

    def change(_module, _inputs, output):
        changed = output.clone()
        changed[..., part] *= keep[None, :, None].to(output)
        return changed

    with module.register_forward_hook(change):
        yield


def run(model, trace, module, number: int | None = 0):
    """What `module` returns in a pass of the traced text, or with `number=None` what it reads."""
    states = []

    def keep(_module, inputs, output):
        states.append(inputs[0] if number is None else output)

    with module.register_forward_hook(keep), torch.no_grad():
        model(**trace.require_model().batch.inputs)
    (state,) = states
    return (state if isinstance(state, torch.Tensor) else state[number])[0].double().numpy()


FIRST, LAST = slice(None), slice(64, None)  # of 32 numbers for the query, 32 for the key and 32 for the value
PLACES = {  # of each layer: the module that gives values, where in its output, and the block
    "distilbert": lambda m: [(layer.attention.v_lin, FIRST, layer) for layer in m.distilbert.transformer.layer],
    "deberta": lambda m: [(layer.attention.self.value_proj, FIRST, layer) for layer in m.deberta.encoder.layer],
    "modernbert": lambda m: [(layer.attn.Wqkv, LAST, layer) for layer in m.model.layers],
    "gpt2": lambda m: [(layer.attn.c_attn, LAST, layer) for layer in m.transformer.h],
}


@pytest.mark.parametrize("family", PLACES)
def test_value_zeroing_compares_blocks_whose_value_vectors_are_zero(family):
    model, trace = traced(family)
    n = trace.mask.shape[1]
    expected = []
    model.config._attn_implementation = "eager"
    for values, part, block in PLACES[family](model):
        usual, columns = run(model, trace, block), []
        for token in range(n):
            with values_changed(values, part, 1 - torch.eye(n)[token]):
                columns.append(np.diag(cdist(usual, run(model, trace, block), "cosine")))
        expected.append(np.array(columns).T)
    mixing = ValueZeroing().mixing(trace, 0, silent).numpy()
    tolerance = 1e-4 if family == "modernbert" else 1e-9
    assert np.abs(mixing - rownorm(np.array(expected))).max() <= tolerance


def test_alti_of_a_pre_norm_model_takes_parts_of_the_residual_sum():
    model, trace = traced("gpt2")
    n = trace.mask.shape[1]
    expected = []
    for (values, part, block), norm in zip(PLACES["gpt2"](model), [h.ln_2 for h in model.transformer.h], strict=True):
        total = run(model, trace, norm, number=None)
        with values_changed(values, part, torch.zeros(n)):
            without_any = run(model, trace, norm, number=None)
        parts = []
        for token in range(n):
            with values_changed(values, part, torch.eye(n)[token]):
                parts.append(run(model, trace, norm, number=None) - without_any)
        parts = np.array(parts).swapaxes(0, 1)
        stream = run(model, trace, block.ln_1, number=None)
        expected.append(nearness(parts + np.eye(n)[:, :, None] * stream, total))
    mixing = Alti().mixing(trace, 0, silent).numpy()
    assert np.allclose(mixing, rownorm(np.array(expected)), rtol=1e-9, atol=1e-12)


@kinds
@pytest.mark.parametrize("batch_size", [1, 5, 100])
def test_how_many_tokens_run_together_changes_nothing(kind, batch_size):
    _, trace = traced("bert")
    method = replace(kind(), batch_size=batch_size)
    assert method.name == kind().name
    assert np.allclose(method(trace).values, kind()(trace).values, rtol=1e-10)


@kinds
def test_a_model_that_attends_in_windows_is_an_error(kind):
    model, tokenizer = longformer()
    with pytest.raises(UnsupportedModelError):
        kind()(trace_logit(model, make_batch(tokenizer)))


def gemma2():
    """A model that normalises what attention gives before it adds it to the residual stream."""
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "pad_token_id": 1,
    }
    return _make(Gemma2Config, byte_bpe(), size)


def test_a_norm_between_attention_and_residual_stream_is_an_error_for_alti_alone():
    model, tokenizer = gemma2()
    trace = trace_logit(model.double(), make_batch(tokenizer))
    with pytest.raises(UnsupportedModelError, match="norm"):
        Alti()(trace)
    assert ValueZeroing()(trace).values.sum(1).tolist() == pytest.approx([1, 1])


class Reported:
    def __init__(self):
        self.fractions = []

    def __call__(self, fraction):
        self.fractions.append(fraction)


@kinds
def test_progress_grows_to_the_end(kind):
    _, trace = traced("bert", (SENTENCE, "a good film"))
    report = Reported()
    traced_model = replace(trace.require_model(), report=report)
    kind(batch_size=4)(replace(trace, model=traced_model))
    assert report.fractions == sorted(report.fractions)
    assert report.fractions[-1] == 1


@kinds
def test_settings_are_checked(kind):
    assert kind(rollout=False).name == f"{kind.base_name}(rollout=False)"
    for wrong in ({"rollout": 1}, {"batch_size": 0}):
        with pytest.raises((ValueError, TypeError)):
            kind(**wrong)


def test_a_model_in_half_precision_gives_nearly_the_same():
    model, tokenizer = bert()
    batch = make_batch(tokenizer)
    exact = trace_logit(model, batch)
    expected = [kind()(exact).values for kind in KINDS]
    rounded = trace_logit(model.bfloat16(), batch)
    for kind, values in zip(KINDS, expected, strict=True):
        assert (kind()(rounded).values - values).abs().max() < 0.05
