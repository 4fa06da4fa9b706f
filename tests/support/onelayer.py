"""A one-layer model with weights set by hand, all of whose scores can be written down.

    y = sum_i r_i (sum_j mean_h A^h_ij <w^h, x_j> + <u, x_i>)

`A` does not depend on the text but on positions, so that `dy/dA^h_ij = r_i <w^h, x_j> / H` and
`dy/dx_j = sum_i r_i mean_h A^h_ij w^h + r_j u`.
"""

from types import SimpleNamespace

import torch
from torch import nn

from gaflow.inputs.batch import Batch
from tests.support.tracing import trace_logit

HEADS, TOKENS, WIDTH = 2, 4, 3


class OneLayer(nn.Module):
    """The model above; `pool` says which rows its head reads."""

    def __init__(self, pool="first"):
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def draw(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.embedding = nn.Embedding.from_pretrained(draw(9, WIDTH), freeze=False)
        self.places = nn.Parameter(draw(HEADS, TOKENS, TOKENS))
        self.values = nn.Parameter(draw(HEADS, WIDTH))  # w
        self.skip = nn.Parameter(draw(WIDTH))  # u
        self.pool = pool

    def get_input_embeddings(self):
        return self.embedding

    def rows(self, mask):
        """r, (b, t)."""
        if self.pool == "mean":
            return mask / mask.sum(-1, keepdim=True)
        position = torch.zeros_like(mask[:, 0]) if self.pool == "first" else mask.sum(-1) - 1
        return torch.zeros(mask.shape, dtype=torch.float64).scatter(1, position[:, None], 1)

    def attend(self, mask):
        """A, (b, h, t, t)."""
        t = mask.shape[1]
        return self.places[None, :, :t, :t].masked_fill(~mask[:, None, None, :].bool(), -torch.inf).softmax(-1)

    def forward(self, input_ids, attention_mask):
        x = self.embedding(input_ids) * 1.0
        attention = self.attend(attention_mask)
        mixed = torch.einsum("bhij,bjd,hd->bi", attention, x, self.values) / HEADS
        y = (self.rows(attention_mask) * (mixed + x @ self.skip)).sum(-1)
        logits = torch.stack([y, -y], 1)
        return SimpleNamespace(logits=logits, attentions=(attention,), hidden_states=(x, mixed[..., None]))


IDS = torch.tensor([[3, 1, 4, 1], [5, 8, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


def trace_one_layer(pool="first"):
    """The model and its trace for a text of four tokens and one of two."""
    model = OneLayer(pool)
    batch = Batch({"input_ids": IDS, "attention_mask": MASK}, MASK.bool(), True, ())
    return model, trace_logit(model, batch)


def written_down(model, item):
    """(r, A, w, u, x) of one text as arrays of its own tokens."""
    n = int(MASK[item].sum())
    with torch.no_grad():
        attention = model.attend(MASK)[item, :, :n, :n].numpy()
        return (
            model.rows(MASK)[item, :n].numpy(),
            attention,
            model.values.numpy(),
            model.skip.numpy(),
            model.embedding(IDS[item, :n]).numpy(),
        )
