import gc
from inspect import getdoc

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import UnsupportedModelError
from gaflow.methods import METHODS, PartialLrp, TransAtt, relevance
from gaflow.methods.lrp import Relevance, propagate
from gaflow.models.tracing import Trace, TracedModel
from tests.support.bert_by_hand import Bert
from tests.support.models import FAMILIES, SENTENCE, bert, modernbert
from tests.support.relevance import changed, traced
from tests.support.tracing import SHORT


def assert_close(actual, expected, tolerance):
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    assert np.abs(expected).max() > 0
    assert np.abs(np.asarray(actual) - expected).max() <= tolerance * np.abs(expected).max()


def attributed(gradient, relevance, rows):
    """Transformer attribution of one text, (l, h, t, t) twice and (t,), with whole matrices."""
    t = len(rows)
    joint = np.eye(t)
    for g, r in zip(gradient, relevance, strict=True):
        matrix = np.maximum(g * r, 0).mean(0) + np.eye(t)
        joint = matrix / matrix.sum(1, keepdims=True) @ joint
    return rows @ joint


@pytest.mark.parametrize("target", [1, (2, 0)])
def test_both_are_what_the_formulas_written_out_give_on_a_two_layer_bert(target):
    model, tokenizer = bert(num_hidden_layers=2)
    model.double()
    trace = traced(model, tokenizer, [SENTENCE], target)
    readout = np.zeros(3)
    readout[[target] if isinstance(target, int) else list(target)] = [1] if isinstance(target, int) else [1, -1]
    by_hand, _ = Bert(model, trace.require_model().batch.inputs["input_ids"][0].numpy()).relevance(readout)
    assert_close(PartialLrp()(trace).values[0].numpy(), np.maximum(by_hand[1], 0).mean(0)[0], 1e-6)
    first = np.eye(trace.mask.shape[1])[0]
    assert_close(TransAtt()(trace).values[0].numpy(), attributed(trace.gradient[0].numpy(), by_hand, first), 1e-6)


def test_scores_are_closed_forms_of_given_relevance_and_padding_is_left_out(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    shape, mask = (2, 3, 2, 4, 4), torch.tensor([[True] * 4, [True] * 3 + [False]])
    real = mask[:, None, None, :, None] & mask[:, None, None, None, :]
    attention, gradient = (torch.randn(shape, generator=generator).double() * real for _ in range(2))
    gradient[0, -1, :, 1:] = 0  # the first text has a [CLS] head, the second pools by the mean
    model = torch.nn.Linear(1, 1)
    question = TracedModel(model, None, None)  # type: ignore[arg-type]
    trace = Trace(attention.unbind(1), gradient.unbind(1), (), (), torch.zeros(2, 2), torch.zeros(2), mask, question)
    monkeypatch.setattr(relevance, "propagate", lambda trace, dtype: Relevance(attention, torch.ones(2), trace.output))
    partial, multiplied = PartialLrp()(trace).values.numpy(), TransAtt()(trace).values.numpy()
    for item, rows in enumerate(([1, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3])):
        n = len(rows)
        cut = attention[item, ..., :n, :n].numpy()
        assert_close(partial[item, :n], np.array(rows) @ np.maximum(cut[-1], 0).mean(0), 1e-12)
        assert_close(multiplied[item, :n], attributed(gradient[item, ..., :n, :n].numpy(), cut, np.array(rows)), 1e-12)
        assert multiplied[item].sum() == pytest.approx(1)
    assert partial[1, 3] == multiplied[1, 3] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_explained_and_says_how_much_relevance_was_conserved(family):
    ex = gaflow.Explainer(*FAMILIES[family]())
    for att in ex.compare(SENTENCE, ["partial_lrp", "transatt"], target="neutral minus negative").values():
        assert att.label == "neutral minus negative"
        assert att.scores.min() >= 0
        assert att.scores.max() > 0
        assert att.diagnostics["conserved_relevance"] == pytest.approx(1, abs=1e-6)


def test_heads_that_pool_by_the_mean_read_every_row():
    model, tokenizer = modernbert(classifier_pooling="mean")
    trace = traced(model, tokenizer)
    top = propagate(trace).attention[:, -1].relu().mean(1)
    for k, n in enumerate(trace.mask.sum(1).tolist()):
        assert_close(PartialLrp()(trace).values[k, :n].numpy(), top[k, :n, :n].mean(0).numpy(), 1e-5)


def test_two_methods_cost_one_pass_more_than_the_trace_alone():
    model, tokenizer = bert()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    ex = gaflow.Explainer(model, tokenizer)
    ex.compare(SENTENCE, ["partial_lrp", "transatt"])
    assert len(calls) == 2
    ex.compare(SENTENCE, [PartialLrp(), PartialLrp(double=False), TransAtt(), TransAtt(double=False)])
    assert len(calls) == 2 + 3


def test_what_was_propagated_goes_with_its_trace():
    gc.collect()
    before = len(relevance._PROPAGATED)
    trace = traced(*bert())
    one = TransAtt()(trace).values
    assert torch.equal(TransAtt()(trace).values, one)
    assert len(relevance._PROPAGATED) == before + 1
    del trace
    gc.collect()
    assert len(relevance._PROPAGATED) == before


def test_double_precision_is_a_setting_that_shows_in_the_name():
    trace = traced(*bert())
    for name, kind in (("partial_lrp", PartialLrp), ("transatt", TransAtt)):
        assert METHODS[name] == kind()
        assert kind(double=False).name == f"{name}(double=False)"
        exact, quick = kind()(trace).values, kind(double=False)(trace).values
        assert exact.dtype == quick.dtype == torch.float32
        assert not torch.equal(exact, quick)
        assert torch.allclose(exact, quick, rtol=1e-2, atol=1e-4)
        with pytest.raises(TypeError, match=r"double.*'no'"):
            kind(double="no")  # type: ignore[arg-type]


def test_the_patents_are_mentioned():
    for kind in (PartialLrp, TransAtt):
        assert "patented" in (getdoc(kind) or "")
        assert kind.info.family == "relevance"
        assert not kind.info.one_trace


def test_a_model_that_no_rule_covers_is_refused_by_name_and_others_still_explain_it():
    model, tokenizer = changed(torch.sin)
    ex = gaflow.Explainer(model, tokenizer)
    with pytest.raises(UnsupportedModelError, match=r"torch\.sin.*agf"):
        ex(SHORT, method="transatt")
    assert ex(SHORT, method="agf").scores.max() > 0


@pytest.mark.parametrize(
    ("arrived", "warned"), [(1.0, False), (0.995, False), (0.5, True), (1.5, True), (np.nan, True)]
)
def test_relevance_that_got_lost_is_warned_of(arrived, warned, monkeypatch):
    trace = traced(*bert())
    complete = propagate(trace)
    lost = Relevance(complete.attention, torch.tensor([1.0, arrived]), complete.output)
    monkeypatch.setattr(relevance, "propagate", lambda trace, dtype: lost)
    for method in (PartialLrp(), TransAtt()):
        one, other = method(trace).diagnostics
        assert one == {"conserved_relevance": 1.0}
        assert ("warning" in other) == warned
        if warned:
            assert str(other["warning"]).startswith(f"{arrived:.3g} of the relevance 1 ")


def test_pooling_by_a_product_with_the_mask_is_the_same_alone_and_in_a_batch():
    model, tokenizer = bert()
    pooler, inputs = model.bert.pooler, {}
    model.bert.register_forward_pre_hook(lambda _, args, kwargs: inputs.update(kwargs), with_kwargs=True)

    def pool(hidden):
        weights = inputs["attention_mask"][:, None].to(hidden)
        return torch.bmm(weights / weights.sum(-1, keepdim=True), hidden)[:, 0]

    pooler.forward = pool
    ex = gaflow.Explainer(model.double(), tokenizer)
    for method in ("partial_lrp", "transatt"):
        for text, att in zip([SENTENCE, SHORT], ex([SENTENCE, SHORT], method), strict=True):
            assert att.diagnostics["conserved_relevance"] == pytest.approx(1, abs=1e-6)
            assert_close(att.scores, ex(text, method).scores, 1e-9)
