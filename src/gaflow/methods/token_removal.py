"""A text whose tokens are more or less there: what integrated gradients, KernelSHAP and LIME ask the model about.

    word embedding of token i  =  absent + p_i (present_i - absent),      0 <= p_i <= 1

for every ordinary token; `absent` is the word embedding of a token that says nothing, [PAD] if there is one. So `y`
becomes a function of the vector `p`, and by the chain rule `dy/dp_i = <dy/dword_i, present_i - absent>`: integrating it
along `p = (a, ..., a)` is integrating gradients along the word embeddings and summing over their width.

The convention this file owns: **nothing but word embeddings changes**. Special tokens, input ids, positions, token
types and attention mask stay those of the text. (Ids with [PAD] written in would do the same in BERT, but move the
positions in RoBERTa and the token that is read in decoders, which look for padding among the ids.) The text runs
without its batch's padding, so that a batch gives what each text alone gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import rows_in_a_pass
from gaflow.models.embeddings import word_embedding
from gaflow.models.restore import borrow
from gaflow.models.tracing import TracedModel

__all__ = [
    "TokenRemoval",
    "absent_token",
    "answer_each",
    "check_batch_size",
    "check_replacement",
]

_KINDS = ("pad", "mask", "unk")


@dataclass(frozen=True)
class TokenRemoval:
    """`y` as a function of how much each ordinary token of one text is there."""

    traced_model: TracedModel
    item: int  # of the traced_model's batch
    inputs: Mapping[str, Tensor]  # model input name -> (1, n), without padding
    places: Tensor  # (m,) positions of the ordinary tokens
    present: Tensor  # (1, n, d) word embeddings, float32 or wider
    absent: Tensor  # (d,) likewise
    rows: int  # texts in one pass
    replacement: str  # what stands where a token is absent, for the reader

    @classmethod
    def of(
        cls, traced_model: TracedModel, item: int, replacement: str | int | None, batch_size: int | None
    ) -> TokenRemoval:
        """The text `item` of the batch; `replacement` and `batch_size` as in the methods' settings."""
        batch = traced_model.batch
        embedding = _embedding(traced_model)
        segments = batch.encodings[item].segments
        n = len(segments)
        places = [k for k, segment in enumerate(segments) if segment >= 0]
        inputs = {name: value[item : item + 1, :n] for name, value in batch.inputs.items()}
        name, token = absent_token(batch.neutral, replacement, embedding)
        ids = inputs["input_ids"]
        with borrow(traced_model.model, eager=False), torch.no_grad():
            present, absent = embedding(ids), embedding(torch.full_like(ids[:, :1], token))
        if not isinstance(present, Tensor) or present.shape[:2] != ids.shape:
            raise UnsupportedModelError(f"{type(traced_model.model).__name__} has no word embeddings of its tokens")
        dtype = accumulation_dtype(present)
        rows = batch_size or rows_in_a_pass(present.device, n)
        if getattr(getattr(traced_model.model, "config", None), "pad_token_id", 0) is None:
            rows = 1  # decoders refuse more, since they could not tell where a text ends
        where = torch.tensor(places, device=present.device, dtype=torch.long)
        return cls(traced_model, item, inputs, where, present.to(dtype), absent[0, 0].to(dtype), rows, name)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def length(self) -> int:
        """All tokens, special ones too."""
        return self.present.shape[1]

    def vector(self, value: float) -> Tensor:
        """All ordinary tokens there to the same part, (1, m)."""
        return self.present.new_full((1, len(self)), value)

    def words(self, presence: Tensor) -> Tensor:
        """Word embeddings (s, n, d) for `presence` (s, m)."""
        parts = self.present.new_ones(len(presence), self.present.shape[1])
        parts = parts.index_copy(1, self.places, presence.to(self.present))
        return torch.lerp(self.absent, self.present, parts[..., None])  # exact at 0 and at 1

    def __call__(self, presence: Tensor) -> Tensor:
        """`y` (s,) for `presence` (s, m) in a single pass; gradients flow if they are enabled."""
        s, words = len(presence), self.words(presence)
        inputs = {name: value.expand(s, -1) for name, value in self.inputs.items()}
        return self.traced_model.output([self.item] * s, embeddings=words, eager=False, **inputs)

    def values(self, presence: Tensor, tell: Callable[[float], object] = lambda part: None) -> Tensor:
        """`y` (s,) without gradients for any number of rows, each different one computed once, told as it goes."""
        return answer_each(self, self.rows, presence, tell)


def answer_each(
    output: Callable[[Tensor], Tensor], rows: int, presence: Tensor, tell: Callable[[float], object]
) -> Tensor:
    """`output` (s,) of every row of `presence` (s, m), each different one computed once, `rows` in a pass."""
    different, where = presence.unique(dim=0, return_inverse=True)
    found: list[Tensor] = []
    with torch.no_grad():
        for start in range(0, len(different), rows):
            found.append(output(different[start : start + rows]))
            tell(min(1.0, (start + rows) / len(different)))
    return torch.cat(found)[where.to(found[0].device)]


def _embedding(traced_model: TracedModel) -> nn.Module:
    embedding = word_embedding(traced_model.model)
    if embedding is None or "input_ids" not in traced_model.batch.inputs:
        raise UnsupportedModelError(
            f"{type(traced_model.model).__name__} has no word embeddings (get_input_embeddings() gives none, or its input "
            "is no text), so no token can be taken away; use a method that needs the trace only"
        )
    return embedding


def absent_token(known: Mapping[str, int], wanted: str | int | None, embedding: nn.Module) -> tuple[str, int]:
    """Name and id of the token that stands for absent ones."""
    if isinstance(wanted, int):
        name, token = f"token {wanted}", wanted
    else:
        name = next(iter(known), "pad") if wanted is None else wanted
        if name not in known:
            have = f"it has {', '.join(known)}" if known else "it has none of pad, mask and unk"
            raise GaflowError(
                f"the tokenizer has no {name} token to stand for absent tokens ({have}); choose one by replacement= "
                "(a name or a token id), or set tokenizer.pad_token"
            )
        token = known[name]
    size: Any = getattr(embedding, "num_embeddings", None)
    if size is not None and not 0 <= token < size:
        raise GaflowError(
            f"replacement {name!r} is token {token}, but the model has word embeddings for 0 to {size - 1}; "
            "choose another by replacement= (a name or a token id)"
        )
    return name, token


def check_replacement(value: Any) -> None:
    """Refuse what is neither None, a name, nor a token id."""
    named = isinstance(value, str) and value in _KINDS
    if not (value is None or named or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)):
        raise ValueError(f"replacement must be None, {', '.join(map(repr, _KINDS))} or a token id, not {value!r}")


def check_batch_size(value: Any) -> None:
    """Refuse what is neither None nor a count."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"batch_size must be None or a whole number >= 1, not {value!r}")
