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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gaflow.arguments import is_whole_number, whole_number
from gaflow.errors import Argument, ArgumentError, GaflowError, UnsupportedModelError
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import rows_in_a_pass
from gaflow.models.embeddings import word_embedding
from gaflow.models.restore import borrow
from gaflow.models.tracing import TracedModel
from gaflow.progress import Report, silent

__all__ = ["TokenRemoval", "baseline_token", "check_batch_size", "check_replacement", "evaluate_unique_rows"]

_TOKEN_NAMES = ("pad", "mask", "unk")


@dataclass(frozen=True)
class TokenRemoval:
    """`y` as a function of the inclusion weights of the ordinary tokens of one text."""

    traced_model: TracedModel
    item: int  # of the traced model's batch
    inputs: Mapping[str, Tensor]  # model input name -> (1, n), without padding
    positions: Tensor  # (m,) of the ordinary tokens
    embeddings: Tensor  # (1, n, d) word embeddings, float32 or wider
    baseline: Tensor  # (d,) likewise
    batch_size: int  # rows in one pass
    replacement: str  # what the baseline is, for the reader

    @classmethod
    def of(
        cls, traced_model: TracedModel, item: int, replacement: str | int | None, batch_size: int | None
    ) -> TokenRemoval:
        """The text `item` of the batch; `replacement` and `batch_size` as in the methods' settings."""
        batch = traced_model.batch
        model = traced_model.model
        embedding = _word_embedding(traced_model)
        segments = batch.encodings[item].segments
        n = len(segments)
        inputs = {name: value[item : item + 1, :n] for name, value in batch.inputs.items()}
        name, token = baseline_token(batch.neutral, replacement, embedding)
        ids = inputs["input_ids"]
        with borrow(model, eager=False), torch.no_grad():
            embeddings = embedding(ids)
            baseline = embedding(torch.full_like(ids[:, :1], token))
        if not isinstance(embeddings, Tensor) or embeddings.shape[:2] != ids.shape:
            raise UnsupportedModelError(f"{type(model).__name__} has no word embeddings of its tokens")
        batch_size = batch_size or rows_in_a_pass(embeddings.device, n)
        if getattr(getattr(model, "config", None), "pad_token_id", 0) is None:
            batch_size = 1  # decoders refuse more, since they could not find where a text ends
        dtype = accumulation_dtype(embeddings)
        positions = [position for position, segment in enumerate(segments) if segment >= 0]
        return cls(
            traced_model=traced_model,
            item=item,
            inputs=inputs,
            positions=torch.tensor(positions, device=embeddings.device, dtype=torch.long),
            embeddings=embeddings.to(dtype),
            baseline=baseline[0, 0].to(dtype),
            batch_size=batch_size,
            replacement=name,
        )

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def length(self) -> int:
        """How many tokens the text has, special ones included."""
        return self.embeddings.shape[1]

    def uniform_inclusion(self, weight: float) -> Tensor:
        """The same weight for all ordinary tokens, (1, m)."""
        return self.embeddings.new_full((1, len(self)), weight)

    def embeddings_at(self, inclusion: Tensor) -> Tensor:
        """Word embeddings (s, n, d) for inclusion weights (s, m)."""
        weights = self.embeddings.new_ones(len(inclusion), self.length)
        weights = weights.index_copy(1, self.positions, inclusion.to(self.embeddings))
        return torch.lerp(self.baseline, self.embeddings, weights[..., None])  # exact at 0 and at 1

    def __call__(self, inclusion: Tensor) -> Tensor:
        """`y` (s,) for inclusion weights (s, m) in a single pass; gradients flow if they are enabled."""
        s = len(inclusion)
        inputs = {name: value.expand(s, -1) for name, value in self.inputs.items()}
        embeddings = self.embeddings_at(inclusion)
        return self.traced_model.output([self.item] * s, embeddings=embeddings, eager=False, **inputs)

    def outputs(self, inclusion: Tensor, report: Report = silent) -> Tensor:
        """`y` (s,) without gradients for any number of rows (s, m); equal rows are computed once."""
        return evaluate_unique_rows(self, self.batch_size, inclusion, report)


def evaluate_unique_rows(
    output: Callable[[Tensor], Tensor], batch_size: int, inclusion: Tensor, report: Report
) -> Tensor:
    """`output` (s,) of every row of `inclusion` (s, m), `batch_size` rows in a pass; equal rows are computed once."""
    unique, row_of = inclusion.unique(dim=0, return_inverse=True)
    outputs: list[Tensor] = []
    with torch.no_grad():
        for start in range(0, len(unique), batch_size):
            outputs.append(output(unique[start : start + batch_size]))
            report(min(1.0, (start + batch_size) / len(unique)))
    return torch.cat(outputs)[row_of.to(outputs[0].device)]


def _word_embedding(traced_model: TracedModel) -> nn.Module:
    embedding = word_embedding(traced_model.model)
    if embedding is None or "input_ids" not in traced_model.batch.inputs:
        raise UnsupportedModelError(
            f"{type(traced_model.model).__name__} has no word embeddings (get_input_embeddings() gives none, or its "
            "input is no text), so no token can be removed; use a method that needs the trace only"
        )
    return embedding


def baseline_token(
    special_tokens: Mapping[str, int], replacement: str | int | None, embedding: nn.Module
) -> tuple[str, int]:
    """Name and id of the token that stands for removed ones; None: the first of the tokenizer's `special_tokens`."""
    if isinstance(replacement, int):
        name = f"token {replacement}"
        token = replacement
    else:
        name = next(iter(special_tokens), "pad") if replacement is None else replacement
        if name not in special_tokens:
            available = ", ".join(special_tokens) or f"none of {', '.join(_TOKEN_NAMES)}"
            raise GaflowError(
                f"the tokenizer has no {name} token to stand for removed tokens (it has {available}); choose one with ",
                Argument("replacement"),
                " (a name or a token id), or set tokenizer.pad_token",
            )
        token = special_tokens[name]
    size: Any = getattr(embedding, "num_embeddings", None)
    if size is not None and not 0 <= token < size:
        raise GaflowError(
            Argument("replacement"),
            f" {name!r} is token {token}, but the model has word embeddings for 0 to {size - 1}; "
            "choose another name or token id",
        )
    return name, token


def check_replacement(value: Any) -> None:
    """Refuse values that are neither None, a name, nor a token id."""
    if value is None or value in _TOKEN_NAMES:
        return
    if not is_whole_number(value) or value < 0:
        names = ", ".join(repr(name) for name in _TOKEN_NAMES)
        raise ArgumentError(Argument("replacement"), f" must be None, {names} or a token id, not {value!r}")


def check_batch_size(value: Any) -> None:
    """Refuse values that are neither None nor a count."""
    if value is not None:
        whole_number("batch_size", value)
