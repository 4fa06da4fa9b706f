import random
import re
import sys
import threading
from dataclasses import replace
from itertools import product
from math import comb, factorial
from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr._core.lime import get_exp_kernel_similarity_function as exp_kernel
from tokenizers import pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast

from gaflow.errors import ArgumentError, GaflowError, MissingExtraError
from gaflow.explainer.explainer import Explainer
from gaflow.inputs.batch import Batch
from gaflow.inputs.encoding import Encoding
from gaflow.methods import METHODS, IntegratedGradients, KernelShap, Lime, Occlusion, find_method
from gaflow.methods.removal import Removal
from gaflow.methods.text_random import torch_generator
from gaflow.models.tracing import Trace, TracedModel
from tests.support.models import FAMILIES, SENTENCE, bert, byte_bpe, distilbert, gpt2, roberta
from tests.support.traces import TraceRecorder, count_backward_passes
from tests.support.tracing import logit_terms, state

SHORT = "this dog is very smart"
NAMES = ["ig", "kernel_shap", "lime"]
DEFAULTS = {"ig": IntegratedGradients(), "kernel_shap": KernelShap(), "lime": Lime()}
LIBRARIES = {"ig": "captum", "kernel_shap": "sklearn", "lime": "sklearn"}
SMALL = {"ig": IntegratedGradients(steps=6), "kernel_shap": KernelShap(samples=70), "lime": Lime(samples=60)}


def make(build=bert, dtype=torch.float64, **changes):
    model, tokenizer = build(**changes)
    return Explainer(model.to(dtype), tokenizer)


def make_tried(**changes):
    """An explainer of a model that has shown whether it can be streamed, which takes two passes of it."""
    ex = make(**changes)
    ex("a dog", "agf")
    return ex


def bare_gpt2(**changes):
    """A decoder whose tokenizer adds no special tokens, as GPT-2's own."""
    model, _ = gpt2(**changes)
    backend = type(byte_bpe().backend_tokenizer).from_str(byte_bpe().backend_tokenizer.to_str())
    backend.post_processor = processors.ByteLevel(trim_offsets=True)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return model, PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")


ALL = {**FAMILIES, "bare gpt2": bare_gpt2}


def assert_near(actual, expected, tolerance):
    """Equal up to `tolerance` of the largest expected number."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


class Oracle:
    """The model as a function of which tokens are there, asked by way of `inputs_embeds`."""

    def __init__(self, ex, text, target, absent=None):
        inputs = ex.tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        special = inputs.pop("special_tokens_mask")[0].bool()
        ids = inputs.pop("input_ids")
        if "distilbert" in ex.model.config.model_type:
            inputs.pop("token_type_ids")
        self.model, self.inputs, self.target = ex.model, dict(inputs), target
        self.places = (~special).nonzero()[:, 0]
        embedding = ex.model.get_input_embeddings()
        self.words = embedding(ids).detach()
        self.absent = embedding(torch.tensor([ex.tokenizer.pad_token_id if absent is None else absent])).detach()[0]

    def __call__(self, presence):
        """`y` of one text whose ordinary tokens are there as `presence` (m,) says."""
        words = self.words.clone()
        change = self.words[0, self.places] - self.absent
        words[0, self.places] = self.absent + torch.as_tensor(presence, dtype=words.dtype)[:, None] * change
        return self.output(words)

    def output(self, words):
        logits = self.model(inputs_embeds=words, **self.inputs).logits[0]
        if isinstance(self.target, tuple):
            return logits[self.target[0]] - logits[self.target[1]]
        return logits[self.target]

    def full(self, scores):
        """Scores of ordinary tokens among those of all tokens, special ones with 0."""
        all_scores = np.zeros(self.words.shape[1])
        all_scores[self.places.numpy()] = scores
        return all_scores


def shapley(oracle):
    """Shapley values by their definition, over all subsets."""
    m = len(oracle.places)
    with torch.no_grad():
        value = {subset: oracle(subset).item() for subset in product((0, 1), repeat=m)}
    scores = []
    for i in range(m):
        without = [s for s in value if not s[i]]
        weights = [factorial(sum(s)) * factorial(m - sum(s) - 1) / factorial(m) for s in without]
        gains = [value[(*s[:i], 1, *s[i + 1 :])] - value[s] for s in without]
        scores.append(np.dot(weights, gains))
    return np.array(scores)


@pytest.fixture
def drawn(monkeypatch):
    """The 0/1 vectors that the model was asked about, and what it said, of the last text."""
    sample = {}
    original = Removal.outputs

    def record(self, inclusion, *rest):
        outputs = original(self, inclusion, *rest)
        if len(inclusion) > 2:  # not the two ends alone
            sample.update(p=inclusion.double().numpy(), y=outputs.double().numpy(), positions=self.positions.numpy())
        return outputs

    monkeypatch.setattr(Removal, "outputs", record)
    return sample


# Integrated gradients


@pytest.mark.parametrize("family", ALL)
def test_integrated_gradients_are_the_quadrature_written_out(family):
    ex = make(ALL[family])
    att = ex(SHORT, IntegratedGradients(steps=9))
    oracle = Oracle(ex, SHORT, att.target)
    nodes, weights = np.polynomial.legendre.leggauss(9)
    total = torch.zeros_like(oracle.words)
    base = oracle.words.clone()
    base[0, oracle.places] = oracle.absent
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        point = (base + node * (oracle.words - base)).requires_grad_()
        total += weight * torch.autograd.grad(oracle.output(point), point)[0]
    scores = ((oracle.words - base) * total).sum(-1)[0].numpy()
    assert_near(att.scores, scores, 1e-6)
    assert not att.scores[att.special_mask].any()


@pytest.mark.parametrize("family", ALL)
def test_integrated_gradients_sum_to_the_change_of_the_output(family):
    ex = make(ALL[family], torch.float32)
    steps = 400 if family == "distilbert" else 50  # its head has kinks, on which the rule converges slowly
    att = ex(SENTENCE, IntegratedGradients(steps))
    oracle = Oracle(ex, SENTENCE, att.target)
    with torch.no_grad():
        change = (oracle(np.ones(len(oracle.places))) - oracle(np.zeros(len(oracle.places)))).item()
    assert att.scores.sum() == pytest.approx(change, rel=0.01)
    assert att.diagnostics["convergence_delta"] == pytest.approx(att.scores.sum() - change, abs=1e-4 * abs(change))
    assert att.diagnostics["baseline_output"] == pytest.approx(att.output - change, rel=1e-4, abs=1e-5)
    assert "warning" not in att.diagnostics


def test_integrated_gradients_sum_to_the_change_of_the_output_of_the_embedded_model():
    att = Explainer(device="cpu")(SENTENCE, "ig")
    change = att.output - float(att.diagnostics["baseline_output"])
    assert abs(change) > 0.1
    assert att.scores.sum() == pytest.approx(change, rel=0.01)


def test_a_rough_integral_is_flagged():
    att = make(distilbert)(SENTENCE, IntegratedGradients(steps=1))
    error = abs(float(att.diagnostics["convergence_delta"]))
    assert re.search(rf" {re.escape(format(error, '.2g'))}\b.* 1 steps", str(att.diagnostics["warning"]))


def test_an_integral_is_flagged_if_it_is_off_by_more_than_a_hundredth_of_all_scores():
    ex = make(distilbert)
    flags = set()
    for steps in (1, 6, 10, 12):
        att = ex(SENTENCE, IntegratedGradients(steps))
        share = abs(float(att.diagnostics["convergence_delta"])) / np.abs(att.scores).sum()
        assert ("warning" in att.diagnostics) == (share > 0.01)
        flags.add(share > 0.01)
    assert flags == {False, True}


# A model that is linear in its word embeddings has the same answer for all


class Linear(nn.Module):
    """`y_c = sum over tokens of <weight[position, c], word>`."""

    def __init__(self, tokens):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(30, 4, dtype=torch.float64)
        self.embedding.weight.data = torch.randn(30, 4, generator=generator, dtype=torch.float64)
        self.weight = nn.Parameter(torch.randn(tokens, 2, 4, generator=generator, dtype=torch.float64))

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, attention_mask):
        return type("Output", (), {"logits": torch.einsum("btd,tcd->bc", self.embedding(input_ids), self.weight)})


def linear_trace(ordinary, special=2):
    """A trace of the linear model on a text with so many ordinary tokens between special ones."""
    segments = (-1, *([0] * ordinary), *([-1] * (special - 1)))
    n = len(segments)
    ids = [(3 + 7 * k) % 29 + 1 for k in range(n)]
    mask = [1] * n
    inputs = {"input_ids": ids, "attention_mask": mask}
    encoding = Encoding("a", None, inputs, ("a",) * n, ((0, 1),) * n, segments, False)
    tensors = {name: torch.tensor([value]) for name, value in inputs.items()}
    batch = Batch(tensors, torch.ones(1, n, dtype=torch.bool), False, (encoding,), {"pad": 0})
    model = Linear(n)
    question = TracedModel(model, batch, logit_terms(batch, 1))
    empty = (torch.zeros(1, 1, n, n),)
    exact = (model.weight[:, 1] * (model.embedding.weight[ids] - model.embedding.weight[0])).sum(-1).detach().numpy()
    exact[[k for k, s in enumerate(segments) if s < 0]] = 0
    return Trace(empty, empty, (), (), torch.zeros(1, 2), torch.zeros(1), batch.mask, question), exact


@pytest.mark.parametrize("ordinary", [1, 2, 5, 12, 20])
def test_a_linear_model_has_its_own_terms_for_integrated_gradients_and_shapley_values(ordinary):
    trace, exact = linear_trace(ordinary)
    for method in (IntegratedGradients(steps=3), KernelShap(samples=100)):
        scores = method(trace)
        assert_near(scores.values[0], exact, 1e-5)
        assert scores.diagnostics[0]["replacement"] == "pad"
        assert abs(float(scores.diagnostics[0]["convergence_delta"])) < 1e-3


def test_a_linear_model_has_nearly_its_own_terms_for_lime():
    trace, exact = linear_trace(5)
    assert_near(Lime(samples=2000)(trace).values[0], exact, 0.02)  # the penalty takes a little
    assert_near(Lime(samples=300, alpha=1e-6)(trace).values[0], exact, 1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_without_ordinary_tokens_has_scores_of_zero(name):
    trace, _ = linear_trace(0)
    scores = METHODS[name](trace)
    assert scores.values.tolist() == [[0, 0]]
    assert scores.diagnostics == ({"replacement": "pad"},)


# KernelSHAP


@pytest.mark.parametrize("family", ["bert", "roberta", "bare gpt2"])
def test_kernel_shap_gives_exact_shapley_values_of_short_texts(family):
    ex = make(ALL[family])
    text = {
        "bert": "this dog is very smart not cute it",
        "roberta": "this dog is not cutes",
        "bare gpt2": "this dog is not cutes",
    }[family]
    att = ex(text, "kernel_shap")
    oracle = Oracle(ex, text, att.target)
    assert len(oracle.places) == 8
    assert_near(att.scores, oracle.full(shapley(oracle)), 1e-5)


def test_kernel_shap_is_the_weighted_regression_on_what_was_drawn(drawn):
    att = make()(SENTENCE, KernelShap(samples=300))
    p, y = drawn["p"], drawn["y"]
    m = p.shape[1]
    assert p.shape == (300, 12)
    assert p[0].tolist() == [1] * m
    assert p[1].tolist() == [0] * m
    sizes = p[2:].sum(1)
    assert sizes.min() > 0
    assert sizes.max() < m
    weights = np.where((p.sum(1) == 0) | (p.sum(1) == m), 1e3, 1.0)  # square roots
    design = np.column_stack([p, np.ones(len(p))]) * weights[:, None]
    coefficients = np.linalg.lstsq(design, y * weights, rcond=None)[0][:m]
    assert_near(att.scores[drawn["positions"]], coefficients, 1e-4)


def test_kernel_shap_draws_sizes_as_shapley_weights_them(drawn):
    make()(SENTENCE, KernelShap(samples=1900))
    sizes = drawn["p"][2:].sum(1)
    m = drawn["p"].shape[1]
    expected = np.array([1 / (k * (m - k)) for k in range(1, m)])
    frequencies = np.array([(sizes == k).mean() for k in range(1, m)])
    assert np.abs(frequencies - expected / expected.sum()).max() < 0.05


def test_kernel_shap_takes_every_subset_once_if_there_are_as_many_samples():
    subsets, weights = KernelShap(samples=16)._draw(4, torch_generator(0, [1]))
    assert sorted(subsets.int().tolist()) == [list(subset) for subset in product((0, 1), repeat=4)]
    kernel = {0: 1e6, 1: 3 / (4 * 1 * 3), 2: 3 / (6 * 2 * 2), 3: 3 / (4 * 3 * 1), 4: 1e6}
    assert weights.tolist() == pytest.approx([kernel[size] for size in subsets.sum(1).int().tolist()])


def test_drawn_subsets_weigh_one_and_the_two_ends_a_million():
    subsets, weights = KernelShap(samples=15)._draw(4, torch_generator(0, [1]))
    assert subsets[:2].tolist() == [[1] * 4, [0] * 4]
    assert weights.tolist() == [1e6, 1e6, *[1.0] * 13]


def test_drawn_shapley_values_come_near_the_exact_ones():
    ex = make()
    text = "although this dog is not cute, it is"
    exact = ex(text, KernelShap(samples=1 << 9)).scores
    near = ex(text, KernelShap(samples=500)).scores
    assert not np.array_equal(exact, near)
    assert_near(near, exact, 0.1)


def test_paired_samples_hold_every_token_once_and_are_exact_where_only_pairs_interact(drawn):
    make()(SENTENCE, KernelShap(samples=63, paired=True))
    subsets = drawn["p"]
    assert subsets.shape == (63, 12)
    assert np.array_equal(subsets[0:62:2] + subsets[1:62:2], np.ones((31, 12)))
    interactions = torch.randn(9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = (interactions + interactions.T).sum(1) / 2  # Shapley values of p Q p: half of each interaction
    errors = []
    for paired in (True, False):
        method = KernelShap(samples=80, paired=paired)
        drawn_subsets, weights = method._draw(9, torch_generator(0, [1]))
        p = drawn_subsets.double()
        y = ((p @ interactions) * p).sum(1)
        fitted = method._regression().fit(p.numpy(), y.numpy(), weights.numpy())
        errors.append(np.abs(fitted.coef_ - exact.numpy()).max())
    assert errors[0] < 1e-3 < 0.1 < errors[1]


def test_the_number_of_samples_grows_with_the_text_if_none_is_chosen(drawn):
    method = KernelShap(samples=None, paired=True)
    make()(SENTENCE, method)
    assert len(drawn["p"]) == 2048 + 2 * 12
    assert method.info.passes == "2048 forward, 2 more per token"


def test_the_shapley_kernel_is_that_of_the_paper():
    from gaflow.methods.perturbation import _shapley_kernel

    subsets = torch.tensor([[1.0] * k + [0.0] * (5 - k) for k in range(1, 5)])
    expected = [4 / (comb(5, k) * k * (5 - k)) for k in range(1, 5)]
    assert _shapley_kernel(subsets).tolist() == pytest.approx(expected)


def captum_scores(ex, text, captum_method, method, **options):
    """Captum's scores of the ordinary tokens, where torch draws the numbers of the text."""
    encoding = ex.tokenizer(text)["input_ids"]
    att = ex(text, method)
    oracle = Oracle(ex, text, att.target)

    def output(inclusion):
        with torch.no_grad():
            return torch.stack([oracle(row) for row in inclusion])

    tokens = len(oracle.places)
    with torch.random.fork_rng():
        torch.set_rng_state(torch_generator(method.seed, encoding).get_state())
        expected = captum_method(output, **options).attribute(
            torch.ones(1, tokens),
            torch.zeros(1, tokens),
            n_samples=method.samples,
            perturbations_per_eval=method.samples,
        )
    return att.scores, oracle.full(expected[0].numpy())


def test_kernel_shap_is_captum_s():
    actual, expected = captum_scores(make(), SENTENCE, captum.attr.KernelShap, KernelShap(samples=90))
    assert_near(actual, expected, 1e-4)


def test_lime_is_captum_s():
    method = Lime(samples=80, width=0.5, alpha=2.0)
    options = {"interpretable_model": SkLearnRidge(alpha=2.0), "similarity_func": exp_kernel("cosine", 0.5)}
    actual, expected = captum_scores(make(), SENTENCE, captum.attr.Lime, method, **options)
    assert_near(actual, expected, 1e-4)


# LIME


def test_lime_is_the_weighted_ridge_regression_on_what_was_drawn(drawn):
    for method in (Lime(samples=300), Lime(samples=200, width=0.4, alpha=7.0)):
        att = make()(SENTENCE, method)
        p, y = drawn["p"], drawn["y"]
        assert p.shape == (method.samples, 12)
        assert abs(p.mean() - 0.5) < 0.05
        cosine = p.sum(1) / np.sqrt(np.maximum(p.sum(1), 1) * p.shape[1])
        weights = np.exp(-((1 - cosine) ** 2) / (2 * method.width**2))
        middle = weights @ p / weights.sum()
        x, z = p - middle, y - weights @ y / weights.sum()
        solved = np.linalg.solve(x.T @ (x * weights[:, None]) + method.alpha * np.eye(p.shape[1]), x.T @ (weights * z))
        assert_near(att.scores[drawn["positions"]], solved, 1e-4)


def test_lime_is_not_all_zeros_and_tells_signs_apart():
    att = make()(SENTENCE, "lime")
    ordinary = att.scores[~att.special_mask]
    assert bool((ordinary != 0).all())
    assert ordinary.min() < 0 < ordinary.max()


# Laws of all three


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "bare gpt2"])
@pytest.mark.parametrize("name", NAMES)
def test_a_batch_gives_what_each_text_gives_alone(family, name):
    ex = make(ALL[family], torch.float32)
    texts = [SENTENCE, "x", SHORT, "the dog"]
    together = ex(texts, SMALL[name], batch_size=4)
    for text, att in zip(texts, together, strict=True):
        alone = ex(text, SMALL[name])
        assert att.target == alone.target
        assert_near(att.scores, alone.scores, 1e-6)
        assert att.diagnostics.keys() == alone.diagnostics.keys()
        assert att.diagnostics.get("baseline_output", 0) == pytest.approx(
            alone.diagnostics.get("baseline_output", 0), rel=1e-5
        )


@pytest.mark.parametrize("family", ["bert", "deberta", "bare gpt2"])
@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_and_padding_have_a_score_of_zero(family, name):
    ex = make(ALL[family], torch.float32)
    short = ex([SENTENCE, SHORT], SMALL[name])[1]
    assert not short.scores[short.special_mask].any()
    assert bool((short.scores[~short.special_mask] != 0).all())
    assert short.special_mask.any() == (family != "bare gpt2")


@pytest.mark.parametrize("name", NAMES)
def test_a_contrast_is_the_difference_of_its_classes(name):
    ex = make()
    a, b = (ex(SENTENCE, SMALL[name], target=k).scores for k in (2, 0))
    assert_near(ex(SENTENCE, SMALL[name], target=(2, 0)).scores, a - b, 1e-4)
    assert not np.allclose(a, b, rtol=0.01)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", ["bert", "bare gpt2"])
def test_a_text_of_one_token_is_explained(name, family):
    ex = make(ALL[family])
    text = {"bert": "dog", "bare gpt2": "a"}[family]
    att = ex(text, METHODS[name])
    oracle = Oracle(ex, text, att.target)
    assert len(oracle.places) == 1
    change = (oracle([1.0]) - oracle([0.0])).item()
    assert_near(att.scores, oracle.full([change]), 0.02 if name == "lime" else 1e-3)


def test_a_token_that_is_absent_keeps_its_place_in_models_that_look_for_padding():
    ex = make(roberta)
    att = ex(SHORT, "kernel_shap", target=1)
    ids = ex.tokenizer(SHORT, return_tensors="pt")["input_ids"]
    places = torch.arange(ids.shape[1])[None] + 2  # RoBERTa counts from 2
    empty = torch.where(torch.tensor(att.special_mask), ids, 1)
    with torch.no_grad():
        change = ex.model(ids, position_ids=places).logits[0, 1] - ex.model(empty, position_ids=places).logits[0, 1]
        moved = ex.model(ids).logits[0, 1] - ex.model(empty).logits[0, 1]
    assert att.scores.sum() == pytest.approx(change.item(), rel=1e-3)
    assert abs(moved - change) > 0.01 * abs(change)


@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_seeds_decide_and_nothing_else_does(name):
    ex = make()
    first = ex(SENTENCE, SMALL[name])
    torch.manual_seed(123)
    again = ex(["dog", SENTENCE], SMALL[name])[1]
    assert np.array_equal(first.scores, again.scores)
    other = ex(SENTENCE, replace(SMALL[name], seed=1))
    assert other.method == f"{name}(samples={SMALL[name].samples}, seed=1)"
    assert not np.allclose(first.scores, other.scores, rtol=1e-3)


@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_other_texts_have_other_draws(name, drawn):
    ex = make()
    ex(SENTENCE, SMALL[name])
    first = drawn["p"]
    ex(SENTENCE.replace("dog", "film"), SMALL[name])
    assert first.shape == drawn["p"].shape
    assert not np.array_equal(first, drawn["p"])


@pytest.mark.parametrize("name", NAMES)
def test_random_states_are_left_as_found(name):
    ex = make()
    np.random.seed(3)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    ex([SENTENCE, "dog"], SMALL[name])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert str(np.random.get_state(legacy=False)) == str(before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_threads_do_not_disturb_one_another():
    ex, texts = make(), [SENTENCE, SHORT + " not cute it is", "the quick dog is not cute, it is very"]
    alone = [ex(text, SMALL["kernel_shap"]).scores for text in texts]
    before = torch.get_rng_state()
    by_thread = {}
    threads = [
        threading.Thread(target=lambda k=k: by_thread.update({k: ex(texts[k % 3], SMALL["kernel_shap"]).scores}))
        for k in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(6):
        assert np.array_equal(by_thread[k], alone[k % 3])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("name", NAMES)
def test_the_model_and_the_random_state_are_left_as_found_when_something_fails(name, error):
    ex = make()
    ex.model.train().requires_grad_(False)
    before, drawn = state(ex.model), torch.get_rng_state()
    expected = ex(SENTENCE, SMALL[name])
    reports = []

    def fail(done, total):
        reports.append(done)
        raise error("stop")

    with pytest.raises(error, match="stop"):
        ex(SENTENCE, replace(SMALL[name], batch_size=3), progress=fail)
    assert 0 < reports[0] < 1
    assert state(ex.model) == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert np.array_equal(ex(SENTENCE, SMALL[name]).scores, expected.scores)


@pytest.mark.parametrize("name", NAMES)
def test_an_error_inside_a_pass_leaves_no_hook(name):
    ex = make()
    calls = []

    def fail(*_):
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("broken")

    handle = ex.model.classifier.register_forward_hook(fail)
    before = state(ex.model)
    with pytest.raises(RuntimeError, match="broken"):
        ex(SENTENCE, replace(SMALL[name], batch_size=4))
    assert state(ex.model) == before
    handle.remove()
    assert not any(module._forward_hooks for module in ex.model.modules())


# Cost


@pytest.mark.parametrize("name", NAMES)
def test_the_batch_size_changes_the_passes_but_not_the_scores(name):
    ex = make_tried()
    rows = []
    ex.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits)))
    expected = ex(SENTENCE, SMALL[name])
    few, rows[:] = len(rows), []
    parts = ex(SENTENCE, replace(SMALL[name], batch_size=5))
    assert max(rows) <= 5
    assert len(rows) > few
    assert parts.method == expected.method
    assert_near(parts.scores, expected.scores, 1e-6)


def test_integrated_gradients_need_the_passes_that_they_say(monkeypatch):
    ex, rows, backward = make_tried(), [], []
    ex.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits)))
    count_backward_passes(monkeypatch, backward.append)
    method = IntegratedGradients(steps=7)
    ex(SENTENCE, method)
    assert (sum(rows) - 1, sum(backward) - 1) == (9, 7)  # one each is the trace
    assert method.info.passes == "9 forward, 7 backward"


@pytest.mark.parametrize("name", ["kernel_shap", "lime"])
def test_what_is_drawn_twice_is_computed_once(name):
    ex, rows = make_tried(), []
    ex.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits)))
    ex("this dog is", METHODS[name])
    assert 1 < sum(rows) <= 1 + 2**3 + 2  # the trace, the subsets, the ends
    assert DEFAULTS[name].info.passes == "500 forward"


def test_long_texts_go_through_the_model_a_few_at_a_time():
    ex = make_tried(max_position_embeddings=512)
    text = "dog " * 500
    pieces = []
    ex.model.register_forward_hook(lambda module, args, output: pieces.append(len(output.logits)))
    att = ex(text, IntegratedGradients(steps=5))
    assert len(att.tokens) == 502
    assert max(pieces) == 2
    assert sum(pieces) == 1 + 5 + 2


def test_too_few_samples_for_a_long_text_are_flagged():
    ex = make()
    for method in (KernelShap(samples=9), Lime(samples=9)):
        att = ex(SENTENCE, method)
        assert re.findall(r"\d+", str(att.diagnostics["warning"])) == ["9", "12", "12"]
    assert "warning" in ex(SENTENCE, Lime(samples=12)).diagnostics
    assert "warning" not in ex(SENTENCE, Lime(samples=13)).diagnostics
    assert "warning" not in ex(SENTENCE, KernelShap(samples=60)).diagnostics
    assert "warning" not in ex("dog", KernelShap(samples=2)).diagnostics


@pytest.mark.parametrize("name", NAMES)
def test_progress_is_told_within_a_text(name):
    ex, reports = make(), []
    method = replace(SMALL[name], batch_size=2)
    ex(SENTENCE, method, progress=lambda *n: reports.append(n))
    assert len(reports) > 2
    assert reports == sorted(set(reports))
    assert reports[-1] == (1, 1)
    assert reports[0][0] > 0
    reports.clear()
    ex([SENTENCE, SHORT, "dog"], method, batch_size=2, progress=lambda *n: reports.append(n))
    assert reports == sorted(set(reports))
    assert {(2, 3), (3, 3)} < set(reports)
    assert all(total == 3 for _, total in reports)


def test_progress_of_a_batch_is_shared_equally_by_its_texts():
    recorder, reports = TraceRecorder(), []
    make()([SENTENCE, SHORT], recorder, batch_size=2)
    (trace,) = recorder.traces
    traced_model = replace(trace.require_model(), report=reports.append)
    IntegratedGradients(steps=4, batch_size=2)(replace(trace, model=traced_model))
    assert reports == [0.25, 0.5, 0.75, 1]


# Settings


def test_names_tell_what_differs_from_the_defaults():
    assert [METHODS[name] for name in NAMES] == list(DEFAULTS.values())
    assert [METHODS[name].name for name in NAMES] == NAMES
    assert IntegratedGradients(20).name == "ig(steps=20)"
    assert KernelShap(seed=3, replacement="mask").name == "kernel_shap(seed=3, replacement='mask')"
    assert Lime(100, width=0.5, batch_size=7).name == "lime(samples=100, width=0.5)"


@pytest.mark.parametrize("name", NAMES)
def test_what_they_say_of_themselves(name):
    info = DEFAULTS[name].info
    assert (info.family, info.signed, info.class_specific) == ("perturbation", True, True)
    assert (info.libraries, info.extra) == ((LIBRARIES[name],), "baselines")
    assert not info.one_trace


@pytest.mark.parametrize(
    ("build", "setting", "value"),
    [
        (IntegratedGradients, "steps", 0),
        (IntegratedGradients, "steps", 2.0),
        (KernelShap, "samples", 1),
        (KernelShap, "seed", -1),
        (Lime, "samples", True),
        (Lime, "seed", None),
        (Lime, "width", 0),
        (Lime, "alpha", float("inf")),
        (Lime, "replacement", "sep"),
        (KernelShap, "replacement", -1),
        (IntegratedGradients, "replacement", True),
        (IntegratedGradients, "batch_size", 0),
    ],
)
def test_settings_that_make_no_sense_are_refused(build, setting, value):
    with pytest.raises(ArgumentError) as caught:
        build(**{setting: value})
    assert caught.value.argument == setting
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_library_is_named_with_its_extra(name, monkeypatch):
    ex = make()
    library = LIBRARIES[name]
    for module in list(sys.modules):
        if module.split(".")[0] == library:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, library, None)
    method = SMALL[name]
    for use in (lambda: ex("dog", method), lambda: method(linear_trace(2)[0]), lambda: find_method(name)):
        with pytest.raises(MissingExtraError, match=r"pip install 'gaflow\[baselines\]'") as caught:
            use()
        assert library in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_another_token_may_stand_for_absent_ones(name):
    ex = make()
    pad = ex(SHORT, SMALL[name])
    mask = ex(SHORT, replace(SMALL[name], replacement="mask"))
    same = ex(SHORT, replace(SMALL[name], replacement=ex.tokenizer.mask_token_id))
    assert np.array_equal(mask.scores, same.scores)
    assert (pad.diagnostics["replacement"], mask.diagnostics["replacement"]) == ("pad", "mask")
    assert same.diagnostics["replacement"] == f"token {ex.tokenizer.mask_token_id}"
    assert not np.allclose(pad.scores, mask.scores, rtol=1e-2)
    assert ex.tokenizer.pad_token_id == 0
    assert np.array_equal(ex(SHORT, replace(SMALL[name], replacement=0)).scores, pad.scores)


def test_without_a_padding_token_another_one_is_taken_and_named():
    model, tokenizer = bare_gpt2(pad_token_id=None)
    tokenizer.pad_token = None
    ex = Explainer(model.double(), tokenizer)
    att = ex("the dogs", "kernel_shap")
    assert att.diagnostics["replacement"] == "unk"
    unknown = tokenizer.unk_token_id
    tokenizer.pad_token = "<pad>"  # only so that the oracle finds one
    oracle = Oracle(ex, "the dogs", att.target, absent=unknown)
    assert_near(att.scores, shapley(oracle), 1e-5)
    tokenizer.pad_token = None
    with pytest.raises(GaflowError, match=r"no mask token.*unk"):
        ex("the dogs", KernelShap(replacement="mask"))
    tokenizer.unk_token = None
    with pytest.raises(GaflowError, match=r"no pad token.*pad, mask, unk.*tokenizer\.pad_token"):
        ex("the dogs", "ig")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_in_half_precision_is_explained(name):
    rough, fine = make(dtype=torch.bfloat16)(SHORT, METHODS[name], 1), make()(SHORT, METHODS[name], 1)
    assert_near(rough.scores, fine.scores, 0.15)


def test_they_come_with_the_others_from_one_trace():
    ex = make()
    attributions = ex.compare(SHORT, ["agf", *SMALL.values()])
    assert list(attributions) == ["agf", *(method.name for method in SMALL.values())]
    for method in SMALL.values():
        assert np.array_equal(attributions[method.name].scores, ex(SHORT, method).scores)


def test_occlusion_is_what_is_lost_without_a_token():
    model, tokenizer = bert()
    explainer = Explainer(model, tokenizer)
    for replacement, token in ((None, tokenizer.pad_token_id), ("mask", tokenizer.mask_token_id)):
        att = explainer(SENTENCE, Occlusion(replacement=replacement), target=1)
        inputs = tokenizer(SENTENCE, return_tensors="pt")
        ids = inputs["input_ids"]
        with torch.no_grad():
            output = model(**inputs).logits[0, 1].item()
            for position in range(1, ids.shape[1] - 1):
                changed = ids.clone()
                changed[0, position] = token
                loss = output - model(**{**inputs, "input_ids": changed}).logits[0, 1].item()
                assert att.scores[position] == pytest.approx(loss, abs=1e-5)
        assert att.scores[0] == att.scores[-1] == 0
    assert Occlusion().info.libraries == ()


def test_settings_at_the_edge_of_what_is_allowed():
    assert Lime(samples=2).samples == 2
    odd: Any = 1
    with pytest.raises(TypeError, match="paired"):
        KernelShap(paired=odd)
    assert METHODS["occlusion"].info.passes == "1 forward per token"
