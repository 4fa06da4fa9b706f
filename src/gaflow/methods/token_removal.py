"""A text with some of its tokens removed, wholly or in part: the inputs of integrated gradients, KernelSHAP and LIME.

    word embedding of token i  =  baseline + p_i (embedding_i - baseline),      0 <= p_i <= 1

for every ordinary token. `p` are its inclusion weights, and the baseline is the word embedding of a token without
meaning, [PAD] if there is one. `y` becomes a function of the vector `p`, and by the chain rule
`dy/dp_i = <dy/dembedding_i, embedding_i - baseline>`: integrating it along `p = (a, ..., a)` is integrating gradients
along the word embeddings and summing over their width.

The convention this file owns: **only word embeddings change**. Special tokens, input ids, positions, token types and
attention mask stay those of the text. (Ids with [PAD] written in would do the same in BERT, but move the positions in
RoBERTa and the token that is read in decoders, which look for padding among the ids.) The text runs without its
batch's padding, so a batch gives the same as each text alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gaflow.errors import Argument, GaflowError, UnsupportedModelError
from gaflow.methods.removal import TOKEN_NAMES, Removal, Replacement
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.embeddings import word_embedding
from gaflow.models.restore import borrow
from gaflow.models.tracing import TracedModel


class TokenRemoval(Removal):
    """The removal of tokens from the text `item` of a batch; `replacement` and `batch_size` are the methods' settings.

    Its values are the word embeddings (1, n, d) in float32 or wider.
    """

    input_name = "embeddings"

    def __init__(self, traced_model: TracedModel, item: int, replacement: Replacement, batch_size: int | None) -> None:
        batch = traced_model.batch
        model = traced_model.model
        embedding = _word_embedding(traced_model)
        name, token = baseline_token(batch.neutral, replacement, embedding)
        ids = batch.inputs["input_ids"][[item], : len(batch.encodings[item])]  # without padding
        with borrow(model, eager=False), torch.no_grad():
            embeddings = embedding(ids)
            baseline = embedding(torch.full_like(ids[:, :1], token))
        if not isinstance(embeddings, Tensor) or embeddings.shape[:2] != ids.shape:
            raise UnsupportedModelError(f"{type(model).__name__} has no word embeddings of its tokens")
        if getattr(getattr(model, "config", None), "pad_token_id", 0) is None:
            batch_size = 1  # decoders refuse more, since they could not find where a text ends
        super().__init__(traced_model, item, embeddings.to(accumulation_dtype(embeddings)), name, batch_size)
        self._baseline = baseline[0, 0].to(self.dtype)  # (d,)

    def values_at(self, inclusion: Tensor) -> Tensor:
        """Word embeddings (s, n, d) for inclusion weights (s, m)."""
        weights = self.values.new_ones(len(inclusion), self.length)
        weights = weights.index_copy(1, self.positions, inclusion.to(self.values))
        return torch.lerp(self._baseline, self.values, weights[..., None])  # exact at 0 and at 1


def _word_embedding(traced_model: TracedModel) -> nn.Module:
    embedding = word_embedding(traced_model.model)
    if embedding is None or "input_ids" not in traced_model.batch.inputs:
        raise UnsupportedModelError(
            f"{type(traced_model.model).__name__} has no word embeddings (get_input_embeddings() gives none, or its "
            "input is no text), so no token can be removed; use a method that needs the trace only"
        )
    return embedding


def baseline_token(
    special_tokens: Mapping[str, int], replacement: Replacement, embedding: nn.Module
) -> tuple[str, int]:
    """Name and id of the token that stands for removed ones; None: the first of the tokenizer's `special_tokens`."""
    if isinstance(replacement, int):
        name = f"token {replacement}"
        token = replacement
    else:
        name = next(iter(special_tokens), "pad") if replacement is None else replacement
        if name not in special_tokens:
            available = ", ".join(special_tokens) or f"none of {', '.join(TOKEN_NAMES)}"
            raise GaflowError(
                f"the tokenizer has no {name} token to stand for removed tokens (it has {available}); choose one with ",
                Argument("replacement"),
                " (a name or a token id), or set tokenizer.pad_token",
            )
        token = special_tokens[name]
    size: int | None = getattr(embedding, "num_embeddings", None)
    if size is not None and not 0 <= token < size:
        raise GaflowError(
            Argument("replacement"),
            f" {name!r} is token {token}, but the model has word embeddings for 0 to {size - 1}; "
            "choose another name or token id",
        )
    return name, token
