import pickle
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    FNetConfig,
    FNetForSequenceClassification,
    JambaConfig,
    JambaForSequenceClassification,
    NystromformerConfig,
    NystromformerForSequenceClassification,
    YosoConfig,
    YosoForSequenceClassification,
)
from transformers.models.bert import modeling_bert

from gaflow import Explainer
from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.inputs.batch import Batch
from gaflow.models.forward import forward
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, backward
from gaflow.tasks.targets import LogitTerm
from tests.support.models import FAMILIES, SENTENCE, bert, distilbert, roberta
from tests.support.traces import count_backward_passes
from tests.support.tracing import SHORT, assert_close, logit_terms, make_batch, state, trace, trace_logit


def assert_same_trace(a, b, tolerance=2e-5):
    assert_close(a.attention, b.attention, tolerance)
    assert_close(a.gradient, b.gradient, tolerance)
    assert_close(a.output, b.output, tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_rows_are_averages_over_real_tokens_and_padding_is_zero(family):
    model, tokenizer = FAMILIES[family]()
    batch = make_batch(tokenizer)
    traced = trace_logit(model, batch)
    b, t = batch.mask.shape
    assert traced.attention.shape[0] == b
    assert traced.attention.shape[-2:] == (t, t)
    assert traced.gradient.shape == traced.attention.shape
    rows = batch.mask[:, None, None, :].expand(traced.attention.shape[:-1]).float()
    assert_close(traced.attention.sum(-1), rows, 1e-6)
    n = int(batch.mask[1].sum())
    for tensor in (traced.attention, traced.gradient):
        assert tensor.dtype == torch.float32
        assert not tensor.requires_grad
        assert tensor[1, :, :, n:].abs().max() == 0
        assert tensor[1, :, :, :, n:].abs().max() == 0
    assert len(traced.hidden) == len(traced.hidden_gradient) == traced.attention.shape[1] + 1
    assert all(g is not None and g.shape == h.shape for g, h in zip(traced.hidden_gradient, traced.hidden, strict=True))
    assert traced.gradient.flatten(2).abs().amax(-1).min() > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_the_models_own(family):
    model, tokenizer = FAMILIES[family]()
    batch = make_batch(tokenizer, [SENTENCE])
    traced = trace(model, batch, [(LogitTerm(1.0, (1,)), LogitTerm(-1.0, (2,)))])
    inputs = {k: v for k, v in batch.inputs.items() if k in ("input_ids", "attention_mask", "token_type_ids")}
    if family == "distilbert":
        inputs.pop("token_type_ids")
    with torch.no_grad():
        logits = model(**inputs).logits
    assert_close(traced.logits, logits)
    assert_close(traced.output, logits[:, 1] - logits[:, 2])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_its_texts_give_alone(family):
    model, tokenizer = FAMILIES[family]()
    together = trace_logit(model, make_batch(tokenizer))
    for k, text in enumerate((SENTENCE, SHORT)):
        alone = trace_logit(model, make_batch(tokenizer, [text]))
        n = alone.mask.shape[1]
        assert_close(together.attention[k : k + 1, ..., :n, :n], alone.attention)
        assert_close(together.gradient[k : k + 1, ..., :n, :n], alone.gradient)
        for of_batch, of_one in zip(together.hidden_gradient, alone.hidden_gradient, strict=True):
            assert of_batch is not None
            assert of_one is not None
            assert_close(of_batch[k : k + 1, :n], of_one)


@pytest.mark.parametrize("family", ["gpt2", "modernbert"])
def test_padding_on_the_left_changes_nothing(family):
    """For models whose head does not read the first position, whatever it holds."""
    model, tokenizer = FAMILIES[family](**({"classifier_pooling": "mean"} if family == "modernbert" else {}))
    right = make_batch(tokenizer)
    n, t = int(right.mask[1].sum()), right.mask.shape[1]
    inputs = {name: torch.stack([v[0], v[1].roll(t - n)]) for name, v in right.inputs.items()}
    inputs["position_ids"] = torch.stack([torch.arange(t), (torch.arange(t) - (t - n)).clamp(min=0)])
    left = Batch(inputs, inputs["attention_mask"].bool(), True, right.encodings)
    a, b = trace_logit(model, right), trace_logit(model, left)
    assert_close(a.attention[1, ..., :n, :n], b.attention[1, ..., t - n :, t - n :])
    assert_close(a.gradient[1, ..., :n, :n], b.gradient[1, ..., t - n :, t - n :])
    assert a.gradient[1].abs().max() > 0
    assert b.attention[1, ..., : t - n].abs().max() == 0
    assert b.gradient[1, :, :, : t - n].abs().max() == 0


def test_the_gradient_is_the_change_of_y_when_one_attention_weight_changes(monkeypatch):
    model, tokenizer = bert()
    model.double()
    batch = make_batch(tokenizer, [SHORT])
    gradient = trace_logit(model, batch).gradient
    original = modeling_bert.eager_attention_forward
    bump: dict = {}

    def bumped(module, query, key, value, attention_mask, **options):
        output, weights = original(module, query, key, value, attention_mask, **options)
        if module.layer_idx == bump["layer"]:
            change = torch.zeros_like(weights)
            change[0, bump["head"], bump["i"], bump["j"]] = bump["step"]
            output = output + (change @ value).transpose(1, 2)
        return output, weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", bumped)
    monkeypatch.setattr(model.config, "_attn_implementation", "eager")
    generator = torch.Generator().manual_seed(1)
    checked = 0
    for layer in range(3):
        for _ in range(6):
            head = int(torch.randint(4, (1,), generator=generator))
            i, j = torch.randint(batch.mask.shape[1], (2,), generator=generator).tolist()
            i = 0 if layer == 2 else i  # only [CLS] is read at the top
            y = []
            for step in (1e-4, -1e-4):
                bump.update(layer=layer, head=head, i=i, j=j, step=step)
                with torch.no_grad():
                    y.append(model(**batch.inputs).logits[0, 0].item())
            slope = (y[0] - y[1]) / 2e-4
            assert slope == pytest.approx(gradient[0, layer, head, i, j].item(), rel=1e-5, abs=1e-9)
            checked += abs(slope) > 1e-6
    assert checked > 12


def test_the_gradient_of_hidden_states_is_the_change_of_y_when_one_changes():
    model, tokenizer = bert()
    model.double()
    batch = make_batch(tokenizer, [SHORT])
    traced = trace_logit(model, batch)
    for layer, gradient in enumerate(traced.hidden_gradient[1:]):
        assert gradient is not None
        direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(layer)).double()
        y = []
        for step in (1e-4, -1e-4):
            change = step * direction
            hook = model.bert.encoder.layer[layer].register_forward_hook(lambda _, __, out, change=change: out + change)
            with torch.no_grad():
                y.append(model(**batch.inputs).logits[0, 0].item())
            hook.remove()
        assert (y[0] - y[1]) / 2e-4 == pytest.approx((gradient * direction).sum().item(), rel=1e-5)


def test_with_a_cls_head_only_the_first_row_of_the_top_layer_has_a_gradient():
    model, tokenizer = bert()
    gradient = trace_logit(model, make_batch(tokenizer, [SENTENCE])).gradient
    assert gradient[0, -1, :, 1:].abs().max() == 0
    assert gradient[0, -1, :, 0].abs().max() > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", ["train", "eval", "mixed", "frozen"])
def test_the_model_is_left_exactly_as_found(family, mode):
    model, tokenizer = FAMILIES[family]()
    if mode == "train":
        model.train()
    if mode == "mixed":
        children = list(model.modules())
        for module in children[::3]:
            module.training = True
        for k, weight in enumerate(model.parameters()):
            weight.requires_grad_(k % 3 == 0)
            weight.grad = torch.ones_like(weight) if k % 2 else None
    if mode == "frozen":
        model.requires_grad_(False)
    before = state(model)
    trace_logit(model, make_batch(tokenizer))
    assert state(model) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("where", ["forward", "between", "backward"])
def test_the_model_is_left_exactly_as_found_when_something_fails(error, where):
    model, tokenizer = bert()
    model.train().requires_grad_(False)

    def fail(*_):
        raise error("stop")

    if where == "forward":
        model.bert.encoder.layer[1].register_forward_hook(fail)
    before = state(model)
    batch = make_batch(tokenizer)

    def trace_and_fail():
        with borrow(model):
            forward_pass = forward(model, batch)
            if where == "between":
                fail()
            if where == "backward":
                forward_pass.logits.register_hook(fail)
            backward(forward_pass, logit_terms(batch))

    with pytest.raises(error, match="stop"):
        trace_and_fail()
    assert state(model) == before
    assert model.config._attn_implementation == "sdpa"


def test_a_traced_model_can_still_be_pickled():
    model, tokenizer = bert()
    trace_logit(model, make_batch(tokenizer))
    assert pickle.dumps(model)


def test_hooks_that_were_there_before_stay_and_run():
    model, tokenizer = bert()
    calls = []
    model.bert.encoder.layer[0].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        model.set_attn_implementation("eager")
        model(**make_batch(tokenizer).inputs, output_attentions=True)
    before = state(model)
    trace_logit(model, make_batch(tokenizer))
    assert state(model) == before
    assert len(calls) == 2


@pytest.mark.parametrize("mode", ["train", "frozen", "half frozen", "no_grad", "inference_mode"])
def test_the_trace_does_not_depend_on_the_mode_it_is_taken_in(mode):
    model, tokenizer = roberta()
    batch = make_batch(tokenizer)
    plain = trace_logit(model, batch)
    if mode == "train":
        model.train()
    if mode == "frozen":
        model.requires_grad_(False)
    if mode == "half frozen":
        model.roberta.embeddings.requires_grad_(False)
        model.roberta.encoder.layer[0].requires_grad_(False)
    with torch.no_grad() if mode == "no_grad" else torch.inference_mode(mode == "inference_mode"):
        traced = trace_logit(model, batch)
    assert_same_trace(traced, plain, 0)
    assert not any(x.is_inference() or x.requires_grad for x in (*traced.attentions, *traced.gradients))
    for a, b in zip(traced.hidden_gradient, plain.hidden_gradient, strict=True):
        assert a is not None
        assert b is not None
        assert torch.equal(a, b)


def test_one_forward_and_one_backward_pass_and_no_gradient_of_any_weight(monkeypatch):
    model, tokenizer = bert()
    calls = []
    count_backward_passes(monkeypatch, lambda _outputs: calls.append("grad"))
    model.register_forward_hook(lambda *_: calls.append("forward"))
    for weight in model.parameters():
        weight.register_hook(lambda _: calls.append("weight"))
    trace_logit(model, make_batch(tokenizer))
    assert calls == ["forward", "grad"]
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_attention_and_gradient_come_in_float32_or_wider(dtype):
    model, tokenizer = distilbert()
    plain = trace_logit(model, make_batch(tokenizer))
    traced = trace_logit(model.to(dtype), make_batch(tokenizer))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert traced.attention.dtype == traced.gradient.dtype == wide
    assert traced.hidden[0].dtype == dtype
    assert_close(traced.attention, plain.attention.to(wide), 0.05)


def test_a_config_nested_in_another_is_set_and_restored():
    class Wrapper(nn.Module):
        def __init__(self, inner, config):
            super().__init__()
            self.inner, self.config = inner, config

        def forward(self, input_ids, attention_mask, **options):
            return self.inner(input_ids=input_ids, attention_mask=attention_mask, **options)

    inner, tokenizer = bert()
    outer = Wrapper(inner, bert()[0].config)
    outer.config._attn_implementation = "flash_attention_2"
    traced = trace_logit(outer, make_batch(tokenizer))
    assert traced.attention.shape[1] == 3
    assert outer.config._attn_implementation == "flash_attention_2"
    assert inner.config._attn_implementation == "sdpa"


def test_a_compiled_model_is_traced_as_it_was_before():
    class Compiled(nn.Module):
        def __init__(self, model):
            super().__init__()
            self._orig_mod = model

        def forward(self, *_, **__):
            raise AssertionError("the compiled code was run")

    model, tokenizer = bert()
    batch = make_batch(tokenizer)
    assert_same_trace(trace_logit(Compiled(model), batch), trace_logit(model, batch), 0)


def test_a_decoder_fills_no_cache():
    model, tokenizer = FAMILIES["gpt2"]()
    use_cache = []
    model.register_forward_pre_hook(lambda _, __, options: use_cache.append(options["use_cache"]), with_kwargs=True)
    trace_logit(model, make_batch(tokenizer))
    assert use_cache == [False]


def test_threads_may_share_a_model():
    model, tokenizer = bert()
    batches = [make_batch(tokenizer, [text]) for text in (SENTENCE, SHORT, "x", "the dog")]
    alone = [trace_logit(model, batch) for batch in batches]
    traces: dict = {}

    def work(k):
        for _ in range(3):
            traces[k] = trace_logit(model, batches[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert_same_trace(traces[k], alone[k], 1e-6)
    assert model.config._attn_implementation == "sdpa"


SMALL: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
UNSUPPORTED: dict[str, Any] = {
    "no attention": (
        lambda: FNetForSequenceClassification(FNetConfig(**SMALL, intermediate_size=16, tpu_short_seq_length=8)),
        "Fourier",
    ),
    "estimated attention": (
        lambda: YosoForSequenceClassification(YosoConfig(**SMALL, intermediate_size=16)),
        "random estimate",
    ),
    "approximated attention": (
        lambda: NystromformerForSequenceClassification(
            NystromformerConfig(**SMALL, intermediate_size=16, num_landmarks=4, segment_means_seq_len=8)
        ),
        "landmarks",
    ),
    "other mixers": (
        lambda: JambaForSequenceClassification(
            JambaConfig(**SMALL, intermediate_size=16, num_key_value_heads=2, mamba_expand=1, use_mamba_kernels=False)
        ),
        "mamba",
    ),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_a_model_that_cannot_be_traced_says_why_and_what_to_use(kind):
    build, reason = UNSUPPORTED[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().eval()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 2]])
    batch = Batch({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.ones_like(ids).bool(), False, ())
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        trace_logit(model, batch)
    assert type(model).__name__ in str(caught.value)
    assert "BERT" in str(caught.value)


def test_a_model_made_in_inference_mode_is_refused():
    with torch.inference_mode():
        model, tokenizer = bert()
    with pytest.raises(UnsupportedModelError, match="inference_mode"):
        trace_logit(model, make_batch(tokenizer))


def test_a_model_that_hides_a_layer_is_read_by_its_softmaxes():
    model, tokenizer = bert()
    plain = trace_logit(model, make_batch(tokenizer))

    def drop(_, __, outputs):
        outputs["attentions"] = outputs["attentions"][1:]
        return outputs

    model.register_forward_hook(drop)
    traced = trace_logit(model, make_batch(tokenizer))
    assert (plain.adapter, traced.adapter) == ("", "softmaxes")
    assert_same_trace(traced, plain, 0)


def test_a_model_that_comes_to_hand_out_copies_is_read_by_its_softmaxes():
    explainer = Explainer(*bert())
    plain = trace_logit(explainer.model, make_batch(explainer.tokenizer))
    expected = explainer(SENTENCE, "attgrads")

    def copy(_, __, outputs):
        if "attentions" in outputs:
            outputs["attentions"] = tuple(a * 1 for a in outputs["attentions"])
        return outputs

    explainer.model.register_forward_hook(copy)
    traced = trace_logit(explainer.model, make_batch(explainer.tokenizer))
    assert (plain.adapter, traced.adapter) == ("", "softmaxes")
    assert_same_trace(traced, plain, 0)
    assert explainer(SENTENCE, "attgrads").to_dict() == expected.to_dict()


def test_an_output_cut_off_from_autograd_is_refused():
    model, tokenizer = bert()
    model.classifier.register_forward_hook(lambda _, __, logits: logits.detach())
    with pytest.raises(UnsupportedModelError, match="cut off from autograd"):
        trace_logit(model, make_batch(tokenizer))


def test_an_output_without_logits_is_refused():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = bert()[0].bert

        def forward(self, input_ids, **options):
            return self.inner(input_ids=input_ids, **options)

    _, tokenizer = bert()
    with pytest.raises(UnsupportedModelError, match="no logits"):
        trace_logit(Bare(), make_batch(tokenizer, [SHORT]))


@pytest.mark.parametrize("family", FAMILIES)
def test_asking_again_gives_the_traced_output(family):
    model, tokenizer = FAMILIES[family]()
    traced = trace_logit(model, make_batch(tokenizer))
    with torch.no_grad():
        output = traced.require_model().output([1, 0, 1])
        assert not output.requires_grad
    torch.testing.assert_close(output, traced.output[[1, 0, 1]], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(traced.require_model().output([1, 0]), traced.output[[1, 0]], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_asking_again_takes_other_words(family):
    model, tokenizer = FAMILIES[family]()
    batch = make_batch(tokenizer, [SENTENCE])
    question = trace_logit(model, batch).require_model()
    before = state(model)
    ids = batch.inputs["input_ids"]
    words = model.get_input_embeddings()(ids).detach().flip(1).requires_grad_()
    inputs = {"attention_mask": batch.inputs["attention_mask"]}
    y = question.output([0], embeddings=words)
    torch.testing.assert_close(y, model(inputs_embeds=words, **inputs).logits[:, 0], rtol=1e-4, atol=1e-5)
    (slope,) = torch.autograd.grad(y.sum(), words)
    assert bool((slope != 0).any())
    assert state(model) == before


def test_asking_again_leaves_the_attention_implementation_alone():
    model, tokenizer = bert()
    model.set_attn_implementation("sdpa")
    question = trace_logit(model, make_batch(tokenizer)).require_model()
    implementations = []
    model.register_forward_hook(lambda *_: implementations.append(model.config._attn_implementation))
    question.output([0])
    assert implementations == ["sdpa"]


def test_a_method_that_asks_again_can_tell_how_far_it_is():
    model, tokenizer = bert()
    reports = []
    trace_logit(model, make_batch(tokenizer), report=reports.append).require_model().report(0.5)
    assert reports == [0.5]
    trace_logit(model, make_batch(tokenizer)).require_model().report(0.5)


def test_asking_again_takes_changed_inputs_and_leaves_the_model_as_found():
    model, tokenizer = bert()
    model.train()
    batch = make_batch(tokenizer, [SENTENCE])
    traced = trace_logit(model, batch)
    before = state(model)
    ids = batch.inputs["input_ids"].repeat(2, 1)
    ids[1, 2] = tokenizer.mask_token_id
    same, other = traced.require_model().output([0, 0], input_ids=ids).tolist()
    assert state(model) == before
    assert same == pytest.approx(traced.output.item(), abs=1e-6)
    assert abs(other - same) > 1e-4


def test_the_rows_read_are_those_that_the_head_pools():
    expected = {"bert": "first", "distilbert": "first", "gpt2": "last"}
    for family, pooled in expected.items():
        model, tokenizer = FAMILIES[family]()
        traced = trace_logit(model, make_batch(tokenizer))
        last = traced.mask.sum(-1) - 1
        where = torch.zeros_like(last) if pooled == "first" else last
        assert torch.equal(traced.rows(), torch.nn.functional.one_hot(where, traced.mask.shape[1]).float()), family


def test_a_mean_pooling_head_reads_all_real_rows_alike():
    model, tokenizer = FAMILIES["modernbert"](classifier_pooling="mean")
    traced = trace_logit(model, make_batch(tokenizer))
    torch.testing.assert_close(traced.rows(), traced.mask / traced.mask.sum(-1, keepdim=True))


def test_an_output_that_depends_on_nothing_reads_no_row():
    model, tokenizer = bert()
    with torch.no_grad():
        model.classifier.weight[0] = 0
    assert trace_logit(model, make_batch(tokenizer)).rows().tolist() == [[0.0] * 14] * 2


def test_a_trace_of_bare_tensors_cannot_ask_again():
    one = torch.ones(1, 1, 1, 1)
    with pytest.raises(GaflowError, match="without one"):
        Trace((one,), (one,), (), (), one[0, 0], one[0, 0, 0], one[0, 0]).require_model()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.05), (torch.float16, 0.005)])
def test_half_precision_gives_what_float32_gives_up_to_its_rounding(dtype, tolerance):
    plain = trace_logit(bert()[0], make_batch(bert()[1]))
    traced = trace_logit(bert()[0].to(dtype), make_batch(bert()[1]))
    assert_close(traced.attention, plain.attention, tolerance)
    assert (traced.gradient - plain.gradient).abs().max() <= tolerance * plain.gradient.abs().max()
    assert torch.equal(traced.rows(), plain.rows())


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_gradients_of_float16_neither_vanish_nor_overflow(size):
    """The smallest that it holds is 6e-8, the largest 65504."""
    model, tokenizer = bert()
    with torch.no_grad():
        model.classifier.weight.mul_(size)
    model.classifier.bias.data.zero_()
    plain = trace_logit(model, make_batch(tokenizer))
    traced = trace_logit(model.half(), make_batch(tokenizer))
    for layer in range(3):
        scale = plain.gradient[:, layer].abs().max()
        assert (traced.gradient[:, layer] - plain.gradient[:, layer]).abs().max() <= 0.02 * scale
    large = plain.gradient.abs() > 1e-3 * plain.gradient.abs().max()
    assert bool((traced.gradient[large] != 0).all())


def test_layers_that_torch_quantised_are_refused():
    model, tokenizer = bert()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have its users elsewhere
        model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(UnsupportedModelError, match="quantised"):
        trace_logit(model, make_batch(tokenizer))


def test_weights_that_are_integers_do_not_matter_if_the_layers_have_gradients():
    class Coded(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.scale = layer.weight.detach().abs().max() / 127
            self.weight = nn.Parameter((layer.weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)
            self.bias = layer.bias

        def forward(self, x):
            return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)

    coded, tokenizer = bert()
    plain, _ = bert()
    for one, other in zip(coded.bert.encoder.layer, plain.bert.encoder.layer, strict=True):
        one.attention.self.value = Coded(one.attention.self.value)
        other.attention.self.value.weight.data = one.attention.self.value.weight * one.attention.self.value.scale
    assert_same_trace(trace_logit(coded, make_batch(tokenizer)), trace_logit(plain, make_batch(tokenizer)))


def test_a_model_that_fails_in_its_precision_says_so():
    """transformers masks with the smallest float64 and takes the softmax in float32, where that is minus infinity."""
    model, tokenizer = FAMILIES["modernbert"]()
    model.double()
    with pytest.raises(UnsupportedModelError, match=r"finite.*dtype=torch\.float32"):
        trace_logit(model, make_batch(tokenizer))
    assert trace_logit(model, make_batch(tokenizer, [SENTENCE])).gradient.isfinite().all()


def test_a_model_whose_gradient_is_lost_on_the_way_is_refused():
    class Lost(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            return None

    model, tokenizer = bert()
    model.bert.encoder.layer[1].register_forward_hook(lambda _, __, out: Lost.apply(out))
    with pytest.raises(UnsupportedModelError, match=r"gradient.*layer 0"):
        trace_logit(model, make_batch(tokenizer))
