from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gaflow import Explainer
from gaflow.errors import ArgumentError
from gaflow.evaluation import attention_ablation, interactions, second_order, shared_flow
from gaflow.evaluation.edge_faithfulness import patched_model
from gaflow.flow import solve
from tests.support.models import bert, gpt2

TEXTS = ["the dog is not good", "a bad film", "good"]


@pytest.fixture(scope="module")
def explainer():
    model, tokenizer = bert()
    return Explainer(model.double(), tokenizer)


def sizes(explainer):
    return [len(explainer.tokenizer(text)["input_ids"]) - 2 for text in TEXTS]


def log_odds(logits, target):
    others = torch.cat([logits[..., :target], logits[..., target + 1 :]], -1)
    return logits[..., target] - others.logsumexp(-1)


def masked_log_odds(explainer, text, positions, target):
    inputs = explainer.tokenizer(text, return_tensors="pt")
    inputs["input_ids"][0, positions] = explainer.tokenizer.pad_token_id
    with torch.no_grad():
        return log_odds(explainer.model(**inputs).logits[0], target).item()


def test_true_interactions_are_those_of_masked_texts_one_by_one(explainer):
    noise = [np.ones((n, n)) for n in sizes(explainer)]
    result = interactions(explainer, TEXTS, {"given": noise})
    for text, truth in zip(TEXTS, result.true, strict=True):
        n = len(truth)
        target = explainer(text, "cat").target
        unmasked = masked_log_odds(explainer, text, [], target)
        alone = [masked_log_odds(explainer, text, [k + 1], target) for k in range(n)]
        for i in range(n):
            assert truth[i, i] == 0
            for j in range(i + 1, n):
                both = masked_log_odds(explainer, text, [i + 1, j + 1], target)
                expected = unmasked - alone[i] - alone[j] + both
                assert truth[i, j] == truth[j, i] == pytest.approx(expected, abs=1e-9)


def test_correlations_are_of_ranks_and_need_several_pairs(explainer):
    zeros = [np.zeros((n, n)) for n in sizes(explainer)]
    true = interactions(explainer, TEXTS, {"given": zeros}).true
    cubed = [values**3 for values in true]  # the same ranks
    opposite = [-values for values in true]
    result = interactions(explainer, TEXTS, {"same": cubed, "opposite": opposite, "nothing": zeros})
    np.testing.assert_allclose(result.correlation[0], [1, 1, np.nan])
    np.testing.assert_allclose(result.correlation[1], [-1, -1, np.nan])
    np.testing.assert_allclose(result.size_correlation[1], [1, 1, np.nan])
    assert np.isnan(result.correlation[2]).all()
    assert result.methods[-1] == "random"
    table = result.table(resamples=20)
    assert table.loc["opposite", "sign_correlation"] == pytest.approx(-1)
    assert table.loc["opposite", "size_low"] == pytest.approx(1)
    assert table.loc["same", "sign_texts"] == 2


def amount_from(edges, layer, node, token):
    """The flow through a node of the upper end of edge layer `layer` that comes from `token`, along every way."""
    if layer < 0:
        return float(node == token)
    total = 0.0
    for below, amount in enumerate(edges[layer, node]):
        if layer == 0:
            total += amount * (below == token)
            continue
        through = edges[layer - 1, below].sum()
        if through > 0:
            total += amount * amount_from(edges, layer - 1, below, token) / through
    return total


def with_flow(explainer, flow, flow_against=None):
    """An attribution with other flows."""
    return replace(explainer(TEXTS[0], "agf"), flow=flow, flow_against=flow_against)


def test_shared_flow_is_the_sum_over_all_ways(explainer):
    generator = torch.Generator().manual_seed(0)
    flow = solve(torch.rand(3, 4, 4, generator=generator, dtype=torch.float64))
    edges = flow.edges[0].numpy()
    shared = shared_flow(with_flow(explainer, flow))
    for i in range(4):
        for j in range(4):
            expected = 0.0
            for layer in range(3):
                for node in range(4):
                    first, second = (amount_from(edges, layer, node, token) for token in (i, j))
                    expected += min(first, second)
            assert shared[i, j] == pytest.approx(expected, rel=1e-6)
    doubled = shared_flow(with_flow(explainer, flow, flow))
    np.testing.assert_allclose(doubled, 2 * shared)


def test_ways_that_never_meet_share_nothing(explainer):
    straight = torch.eye(3).repeat(2, 1, 1)[None].double()
    attribution = with_flow(explainer, SimpleNamespace(edges=straight))
    np.testing.assert_array_equal(shared_flow(attribution), 2 * np.eye(3))


def test_second_order_effects_are_those_of_the_hessian(explainer):
    text = TEXTS[0]
    effects = second_order(explainer, text)
    inputs = explainer.tokenizer(text, return_tensors="pt")
    ids = inputs["input_ids"]
    embedding = explainer.model.get_input_embeddings()
    values = embedding(ids).detach()
    baseline_ids = ids.clone()
    baseline_ids[0, 1:-1] = explainer.tokenizer.pad_token_id
    difference = (values - embedding(baseline_ids).detach())[0]
    target = explainer(text, "cat").target

    def y(embeddings):
        logits = explainer.model(inputs_embeds=embeddings, attention_mask=inputs["attention_mask"]).logits[0]
        return log_odds(logits, target)

    explainer.model.set_attn_implementation("eager")  # whose second derivatives torch has
    hessian = torch.autograd.functional.hessian(y, values)
    assert isinstance(hessian, torch.Tensor)
    hessian = hessian[0, :, :, 0]  # (t, d, t, d)
    expected = torch.einsum("id,idje,je->ij", difference, hessian, difference)
    np.testing.assert_allclose(effects, expected.detach().numpy(), atol=1e-5 * expected.abs().max().item())


def test_balanced_second_order_effects_are_symmetric_and_of_their_own(explainer):
    plain = second_order(explainer, TEXTS[0])
    balanced = second_order(explainer, TEXTS[0], "balanced")
    np.testing.assert_allclose(balanced, balanced.T)
    assert np.abs(balanced - plain).max() > 1e-3 * np.abs(plain).max()
    assert (balanced[0] == 0).all()  # a special token is the same in the baseline


def test_ablation_removes_all_attention_between_two_tokens(explainer):
    text = TEXTS[1]
    losses = attention_ablation(explainer, text, "renormalise")
    (encoding,) = explainer.runner.encode([text], names=["text"])
    patched = patched_model(explainer, encoding, "renormalise")
    target = explainer(text, "cat").target
    live = patched.live_edges()
    removed = torch.zeros(2, *live.shape, dtype=torch.bool)
    removed[1, :, 1, 3] = True
    removed[1, :, 3, 1] = True
    y = log_odds(patched.logits(removed), target)
    assert losses[1, 3] == losses[3, 1] == pytest.approx((y[0] - y[1]).item(), abs=1e-9)
    assert (losses[0] == 0).all()


def test_a_decoder_s_attributions_predict_too():
    explainer = Explainer(*gpt2())
    attributions = explainer(TEXTS, "relevance_flow")
    result = interactions(explainer, TEXTS, {"flow": attributions}, "mask" if explainer.tokenizer.mask_token else "pad")
    assert result.correlation.shape == (2, 3)


def test_wrong_arguments_are_named(explainer):
    for predictions in ({}, {"random": []}, {"a": [np.zeros((5, 5))]}, {"a": [np.zeros(5)] * 3}):
        with pytest.raises(ArgumentError) as error:
            interactions(explainer, TEXTS, predictions)
        assert error.value.argument == "predictions"
    with pytest.raises(ArgumentError):
        second_order(explainer, TEXTS[0], replacement="delete")
    with pytest.raises(ArgumentError):
        second_order(explainer, TEXTS[0], "sharp")
    with pytest.raises(ArgumentError):
        shared_flow(explainer(TEXTS[0], "cat"))
