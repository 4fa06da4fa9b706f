from typing import Any

import numpy as np
import pytest
import torch

from gaflow.errors import UnsupportedModelError
from gaflow.models.attention_patching import PatchedModel
from tests.support.bert_by_hand import Bert
from tests.support.models import bert, deberta, distilbert, gpt2, modernbert

IDS = torch.tensor([[2, 7, 9, 11, 8, 3]])
BASELINE = torch.tensor([[2, 0, 0, 0, 0, 3]])
T = IDS.shape[1]


class BertWithoutEdges(Bert):
    """BERT in numpy, whose removed edges (l, t, t) carry something else; `values` are those of another text."""

    def __init__(self, model: Any, ids: Any, removed: Any, removal: str, values: list[Any]) -> None:
        self.removed, self.removal, self.values = removed, removal, values
        super().__init__(model, ids)

    def _read(self, k: int, a: Any, v: Any) -> Any:
        remaining = np.where(self.removed[k], 0, a)
        if self.removal == "renormalise":
            remaining = remaining / np.maximum(remaining.sum(-1, keepdims=True), 1e-300)
        read = remaining @ v
        if self.removal == "baseline":
            read = read + np.where(self.removed[k], a, 0) @ self.values[k]
        return read


def patched_model(model: Any, removal: Any) -> PatchedModel:
    embedding = model.get_input_embeddings()
    return PatchedModel(
        model=model,
        inputs={"input_ids": IDS, "attention_mask": torch.ones_like(IDS)},
        embeddings=embedding(IDS).detach(),
        baseline=embedding(BASELINE).detach() if removal == "baseline" else None,
        removal=removal,
    )


def random_edges(runs: int, layers: int, share: float) -> torch.Tensor:
    return torch.rand(runs, layers, T, T, generator=torch.Generator().manual_seed(0)) < share


@pytest.mark.parametrize("removal", ["baseline", "zero", "renormalise"])
def test_logits_are_those_of_a_model_in_numpy_without_these_edges(removal):
    model = bert()[0].double()
    layers = model.config.num_hidden_layers
    removed = random_edges(4, layers, 0.3)
    logits = patched_model(model, removal).logits(removed)
    of_baseline = [layer["v"] for layer in Bert(model, BASELINE[0]).layers]
    for run_edges, run_logits in zip(removed.numpy(), logits, strict=True):
        by_hand = BertWithoutEdges(model, IDS[0], run_edges, removal, of_baseline)
        np.testing.assert_allclose(run_logits.numpy(), by_hand.logits, rtol=1e-6)  # weights are taken in float32


@pytest.mark.parametrize("family", [bert, distilbert, modernbert], ids=lambda family: family.__name__)
def test_renormalised_rows_are_those_of_a_model_with_these_edges_masked(family):
    model, _ = family()
    layers = model.config.num_hidden_layers
    removed = random_edges(1, 1, 0.3).expand(1, layers, T, T) & ~torch.eye(T, dtype=torch.bool)
    logits = patched_model(model, "renormalise").logits(removed)
    mask = torch.zeros(1, 1, T, T).masked_fill(removed[:, :1], torch.finfo(torch.float32).min)
    model.set_attn_implementation("eager")
    attention_mask: Any = mask
    if family is modernbert:
        attention_mask = {"full_attention": mask, "sliding_attention": mask}
    with torch.no_grad():
        expected = model(input_ids=IDS, attention_mask=attention_mask).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", [bert, distilbert, modernbert, gpt2], ids=lambda family: family.__name__)
def test_the_future_of_a_decoder_has_no_edges_and_all_others_are_live(family):
    model, _ = family()
    live = patched_model(model, "zero").live_edges()
    assert live.shape == (model.config.num_hidden_layers, T, T)
    expected = torch.ones(T, T, dtype=torch.bool)
    if family is gpt2:
        expected = expected.tril()
    assert (live == expected).all()


def test_the_model_is_left_as_it_was():
    model, _ = bert()
    before = model.config._attn_implementation
    patched_model(model, "zero").logits(random_edges(2, model.config.num_hidden_layers, 0.5))
    assert model.config._attn_implementation == before
    with torch.no_grad():
        again = model(input_ids=IDS).logits
    assert torch.equal(again, bert()[0](input_ids=IDS).logits)


def test_attention_outside_the_interface_is_refused():
    model, _ = deberta()
    with pytest.raises(UnsupportedModelError):
        patched_model(model, "zero").live_edges()


def test_scores_of_another_number_of_layers_are_refused():
    model, _ = bert()
    with pytest.raises(UnsupportedModelError):
        patched_model(model, "zero").logits(random_edges(2, model.config.num_hidden_layers + 1, 0.5))
