"""Signed networks of relevance, and their average over a text and contexts without its strongest tokens.

One backward pass sees one text, in which redundant evidence hides: of two words that say the same, neither matters
alone. So the strongest tokens are peeled off, and what is left is traced again. In round `r = 1, 2, ...` the share
`r * share` of the ordinary tokens with the highest relevance so far is replaced by a baseline (`token_removal.py`).
Relevance of a token is `<dy/dh, h>` at the input layer, averaged over the contexts that hold it.

An edge of the averaged network is the mean over the contexts that hold both its tokens, a residual edge over those that
hold its token. The convention this file owns: the baselines of the contexts alternate between [PAD] and [MASK] if the
tokenizer has both and none is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gaflow.arguments import positive_number, whole_number
from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.flow.information import signed_token_information
from gaflow.methods.balanced import forward_with
from gaflow.methods.media_removal import changed_inputs, removal_for
from gaflow.methods.removal import Removal, Replacement, check_replacement
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, TracedModel, backward

_ALTERNATING = ("pad", "mask")


@dataclass(frozen=True)
class Peeling:
    """The contexts that a network is averaged over."""

    rounds: int = 1  # contexts, the text itself included
    share: float = 0.1  # of the ordinary tokens that every further round removes
    replacement: Replacement = None  # the baseline of a removed token; None: [PAD] and [MASK] in turn

    def __post_init__(self) -> None:
        whole_number("rounds", self.rounds)
        positive_number("share", self.share)
        check_replacement(self.replacement)
        if (self.rounds - 1) * self.share > 1:
            raise ArgumentError(
                Argument("rounds", self.rounds),
                f" with a share of {self.share} would remove more tokens than there are",
            )

    def count(self, context: int, tokens: int) -> int:
        """How many of so many tokens are removed in this context; 0 in the first."""
        return int(context * self.share * tokens + 1e-9)  # 0.1 * 3 * 10 is a little more or less than 3


@dataclass(frozen=True)
class SignedNetwork:
    """What speaks for the output, above 0, and what against it, below 0."""

    edges: Tensor  # (b, l, t, t)
    residual: Tensor  # (b, l, t) from a token to itself

    def capacities(self, sign: int = 1) -> Tensor:
        """The network (b, l, t, t) of what speaks for the output; for sign -1, of what speaks against it."""
        edges = (sign * self.edges).relu_()
        edges.diagonal(dim1=-2, dim2=-1).add_((sign * self.residual).relu())
        return edges


def input_relevance(trace: Trace) -> Tensor:
    """`<dy/dh, h>` of every token at the input layer, (b, t), 0 at padding."""
    hidden = trace.hidden[:1]
    gradient = trace.hidden_gradient[:1]
    if not hidden or gradient[0] is None or hidden[0].shape[:2] != trace.mask.shape:
        raise UnsupportedModelError(
            "this method needs a hidden state of every token at the input layer, and its gradient, which this model "
            "does not return; use agf"
        )
    relevance = signed_token_information(hidden, [gradient[0]])[:, 0]
    return relevance.masked_fill(~trace.mask.to(relevance.device), 0)


def peel(trace: Trace, peeling: Peeling, network_of: Callable[[Trace], SignedNetwork]) -> SignedNetwork:
    """The network of a trace, averaged over its contexts; all texts of the batch run together."""
    network = network_of(trace)
    if peeling.rounds == 1:
        return network
    traced_model = trace.require_model()
    edges = network.edges
    residual = network.residual
    relevance = input_relevance(trace)
    contexts = torch.ones_like(relevance)  # that hold a token
    pairs = torch.ones_like(edges[:, 0])  # contexts that hold both tokens
    replacements = _replacements(traced_model, peeling.replacement)
    for context in range(1, peeling.rounds):
        ranking = relevance / contexts
        removals = _removals(traced_model, replacements[context % len(replacements)])
        present, inclusions = _without_strongest(removals, ranking, context, peeling)
        changed = _trace_changed(trace, inclusions)
        network = network_of(changed)
        both = (present[:, :, None] * present[:, None, :]).to(edges)
        edges = edges + network.edges * both[:, None]
        residual = residual + network.residual * present[:, None].to(residual)
        relevance = relevance + input_relevance(changed) * present
        contexts = contexts + present
        pairs = pairs + both
        traced_model.report(context / peeling.rounds)
    return SignedNetwork(edges / pairs[:, None], residual / contexts[:, None].to(residual))


def _replacements(traced_model: TracedModel, replacement: Replacement) -> list[Replacement]:
    """The baselines that take turns."""
    if replacement is not None:
        return [replacement]
    available = [name for name in _ALTERNATING if name in traced_model.batch.neutral]
    return [*available] or [None]


def _removals(traced_model: TracedModel, replacement: Replacement) -> list[Removal]:
    items = range(len(traced_model.batch.encodings))
    return [removal_for(traced_model, item, replacement, None) for item in items]


def _without_strongest(
    removals: Sequence[Removal], ranking: Tensor, context: int, peeling: Peeling
) -> tuple[Tensor, list[tuple[Removal, Tensor]]]:
    """Which tokens a context holds (b, t), 1 or 0, and the inclusion weights (1, m) of each text."""
    present = torch.ones_like(ranking)
    inclusions = []
    for removal in removals:
        positions = removal.positions.to(ranking.device)
        strongest = ranking[removal.item, positions].argsort(descending=True, stable=True)
        removed = positions[strongest[: peeling.count(context, len(removal))]]
        present[removal.item, removed] = 0
        inclusion = present[removal.item, positions]
        inclusions.append((removal, inclusion[None].to(removal.positions.device, removal.dtype)))
    return present, inclusions


def _trace_changed(trace: Trace, inclusions: Sequence[tuple[Removal, Tensor]]) -> Trace:
    """The trace of the batch with tokens removed, of the same kind."""
    traced_model = trace.require_model()
    batch, embeddings = changed_inputs(inclusions)
    residual = bool(trace.stream)
    with borrow(traced_model.model):
        forward_pass = forward_with(
            trace.gradient_kind,
            traced_model.model,
            batch,
            residual=residual,
            embeddings=embeddings,
            head_means=trace.needed_means,
        )
        return backward(forward_pass, traced_model.terms)
