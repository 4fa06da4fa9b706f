"""Sentence encoders: an encoder, the pooling of its hidden states, and the layers after it.

The embedding of a text is a weighted sum of its last hidden states, for every pooling:

    e = Σ_i w_i h_i    w_i constant: 1 / n for the mean, 1 for the only token that "cls" and "last" read, ...

The maximum chooses one token for each dimension, and so its weights are 0 and 1. Dense layers and a normalisation may
follow. The logits of a sentence encoder are its embedding and the same divided by its norm, (b, 2, d): the dot product
and the cosine with a given vector are weighted sums of them.

The convention this file owns: padding has weight 0, and the pooling is the model's own, in the names of the library
sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gaflow.arguments import checked, one_of, optional_whole_number
from gaflow.errors import Argument, ArgumentError, unsupported
from gaflow.inputs.transformers_types import ModelConfig, ModelOutput
from gaflow.models.forward import model_arguments
from gaflow.models.restore import borrow, uncompiled
from gaflow.tasks.similarity import MEASURES


def _mean(_hidden: Tensor, mask: Tensor) -> Tensor:
    return mask / mask.sum(1, keepdim=True)


def _mean_sqrt_len(_hidden: Tensor, mask: Tensor) -> Tensor:
    return mask / mask.sum(1, keepdim=True).sqrt()


def _weighted_mean(_hidden: Tensor, mask: Tensor) -> Tensor:
    ranks = mask.cumsum(1) * mask  # 1, 2, ... as decoders see more of the text at later tokens
    return ranks / ranks.sum(1, keepdim=True)


def _cls(_hidden: Tensor, mask: Tensor) -> Tensor:
    return (mask.cumsum(1) == 1).to(mask) * mask


def _last(_hidden: Tensor, mask: Tensor) -> Tensor:
    return (mask.cumsum(1) == mask.sum(1, keepdim=True)).to(mask) * mask


def _max(hidden: Tensor, mask: Tensor) -> Tensor:
    visible = hidden.detach().masked_fill(mask[..., None] == 0, -torch.inf)
    return torch.zeros_like(visible).scatter_(1, visible.argmax(1, keepdim=True), 1.0)


# pooling -> the weights (b, t) or (b, t, d) of hidden states (b, t, d), where the mask (b, t) is 1 at real tokens
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": _mean,
    "cls": _cls,
    "max": _max,
    "lasttoken": _last,
    "weightedmean": _weighted_mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
}
_OF_ONE_TOKEN = {"cls", "lasttoken"}


class Dense(nn.Module):
    """A linear layer after the pooling, and its activation."""

    def __init__(self, linear: nn.Linear, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings (b, d) of another size."""
        x = self.linear(x)
        return x if self.activation is None else self.activation(x)


class SentenceEncoder(nn.Module):
    """An encoder and the pooling that makes one embedding of its hidden states.

    Args:
        encoder: a transformers model that returns `last_hidden_state`.
        pooling: "mean", "cls", "max", "lasttoken", "weightedmean" or "mean_sqrt_len_tokens", or several, whose
            embeddings are concatenated. None is "mean", and results say that you did not choose it.
        dense: layers after the pooling.
        normalize: divide the embedding by its norm.
        measure: "cosine" or "dot", what `task="similarity"` explains unless you pass a target.
        max_length: the most tokens of a text. None is the encoder's own limit.

        >>> encoder = gaflow.SentenceEncoder(AutoModel.from_pretrained(folder), "cls")
        >>> explainer = gaflow.Explainer(encoder, tokenizer)
    """

    main_input_name = "input_ids"

    @checked
    def __init__(
        self,
        encoder: nn.Module,
        pooling: str | Sequence[str] | None = None,
        *,
        dense: Sequence[Dense] = (),
        normalize: bool = False,
        measure: str = "cosine",
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        names = [pooling] if isinstance(pooling, str) else list(pooling or ["mean"])
        for name in names:
            one_of("pooling", name, list(POOLINGS))
        one_of("measure", measure, list(MEASURES))
        optional_whole_number("max_length", max_length)
        if not hasattr(encoder, "config"):
            raise ArgumentError(Argument("encoder"), f" is a {type(encoder).__name__}; pass a transformers model")
        self.encoder = uncompiled(encoder)
        self.dense = nn.ModuleList(dense)
        self.config: ModelConfig = encoder.config
        self.pooling = tuple(names)
        self.pooling_by_default = pooling is None
        self.normalize = normalize
        self.measure = measure
        self.max_seq_length = max_length
        self.training = encoder.training

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings of the encoder."""
        return self.encoder.get_input_embeddings()  # type: ignore[operator]

    def forward(
        self, output_attentions: bool = False, output_hidden_states: bool = False, **inputs: Tensor
    ) -> ModelOutput:
        """The encoder's output, and as logits (b, 2, d) the embedding and the same divided by its norm."""
        observed = []
        if output_attentions:
            observed.append("attentions")
        if output_hidden_states:
            observed.append("hidden_states")
        outputs = self._encode(observed, inputs)
        embedding = self.embedding(outputs.last_hidden_state, inputs["attention_mask"])
        unit = nn.functional.normalize(embedding, dim=-1)
        if self.normalize:
            embedding = unit
        both = torch.stack([embedding, unit], 1)
        # Relevance propagation begins at the layer that y is read from, which must be linear. This one changes nothing.
        identity = torch.eye(both.shape[-1], dtype=both.dtype, device=both.device)
        outputs["logits"] = nn.functional.linear(both, identity)
        return outputs

    def embedding(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The embedding (b, d) before a normalisation, from hidden states (b, t, d)."""
        embedding = self._pool(hidden, mask).sum(1)
        for layer in self.dense:
            embedding = layer(embedding)
        return embedding

    def token_parts(self, hidden: Tensor, mask: Tensor) -> Tensor | None:
        """What each token adds to the `embedding`, (b, t, d); None if this says nothing about words.

        It says nothing if the pooling reads a single token, or if an activation follows it. A bias of a dense layer is
        a part of no token.
        """
        if not _OF_ONE_TOKEN.isdisjoint(self.pooling):
            return None
        parts = self._pool(hidden, mask)
        for layer in self.dense:
            if not isinstance(layer, Dense) or layer.activation is not None:
                return None
            parts = nn.functional.linear(parts, layer.linear.weight)
        return parts

    def _encode(self, observe: Sequence[str], inputs: dict[str, Tensor]) -> ModelOutput:
        outputs = self.encoder(**model_arguments(self.encoder, inputs, observe))
        if not isinstance(getattr(outputs, "last_hidden_state", None), Tensor):
            raise unsupported(self.encoder, "it returns no last_hidden_state, which a text's embedding is pooled from")
        return outputs

    def _pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """What each token adds to the pooled embedding, (b, t, d)."""
        real = mask.to(hidden)
        parts = []
        for name in self.pooling:
            weights = POOLINGS[name](hidden, real)
            if weights.dim() == 2:
                weights = weights[..., None]
            parts.append(hidden * weights)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


@dataclass(frozen=True)
class Embeddings:
    """The embeddings of a batch of texts, in float64 on the host."""

    plain: Tensor  # (b, d)
    unit: Tensor  # (b, d) divided by their norms
    plain_parts: Tensor | None  # (b, t, d) what each token adds to `plain`; None if it is no sum over tokens
    unit_parts: Tensor | None  # (b, t, d) likewise


def embed(model: SentenceEncoder, inputs: dict[str, Tensor]) -> Embeddings:
    """The embeddings of a batch, from a forward pass without gradients."""
    mask = inputs["attention_mask"]
    with borrow(model, eager=False), torch.no_grad():
        outputs = model(**inputs)
        embedding = model.embedding(outputs.last_hidden_state, mask)
        parts = model.token_parts(outputs.last_hidden_state, mask)
    logits = outputs.logits.cpu().double()
    plain_parts = None
    unit_parts = None
    if parts is not None:
        parts = parts.cpu().double()
        norms = torch.linalg.vector_norm(embedding.cpu().double(), dim=-1)
        unit_parts = parts / norms[:, None, None]
        plain_parts = unit_parts if model.normalize else parts
    return Embeddings(logits[:, 0], logits[:, 1], plain_parts, unit_parts)
