"""Attention methods (Abnar and Zuidema 2020): scores from attention weights alone, whatever class is explained.

With `E` the mean over heads, `A^1 ... A^L` the attention weights (query x key) and `r` the rows that the head reads
(one row for [CLS] heads, where `r A` is `A[0, :]`; `Trace.rows` decides it):

- raw attention: `r (E A^L)`
- rollout: `r M^L ... M^1` with `M^l = 1/2 E A^l + 1/2 I`
- attention flow: `F[i, j]` is the maximum flow from output node `i` to input node `j`, each pair by itself, in the
  layered network whose capacities are the `M^l`; the rows of `F` are divided by their sums, then `r F`

The convention this file owns: the identity stands for the residual connection of **real** tokens only, so
padding neither receives nor passes on anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError
from gaflow.flow.information import af
from gaflow.flow.maxflow.single_pairs import pair_values
from gaflow.methods.base import MethodInfo, NamedSettings, Scores
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace

MEAN_ATTENTION = HeadMean(af)

_INFO = MethodInfo(
    family="attention",
    signed=False,
    class_specific=False,
    passes="1 forward",
    reference="Abnar and Zuidema 2020, ACL",
)


@dataclass(frozen=True)
class RawAttention:
    """Raw attention: how much the last layer attends to each token, mean over heads."""

    info = _INFO
    name = "rawatt"
    head_means = (MEAN_ATTENTION,)

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return Scores(read_rows(trace.rows(), trace.head_mean(MEAN_ATTENTION, -1)))


@dataclass(frozen=True)
class _WithResidual(NamedSettings):
    """The setting of methods in which the identity stands for residual connections."""

    residual: float = 0.5  # weight of the identity, 0 <= residual < 1

    head_means = (MEAN_ATTENTION,)

    def __post_init__(self) -> None:
        super().__post_init__()
        residual = self.residual
        if isinstance(residual, bool) or not isinstance(residual, int | float) or not 0 <= residual < 1:
            raise ArgumentError(
                Argument("residual"),
                f" must be at least 0 and below 1, not {residual!r}: it is the weight of the identity",
            )


@dataclass(frozen=True)
class Rollout(_WithResidual):
    """Attention rollout: attention of all layers multiplied out, with residual connections."""

    base_name = "rollout"
    info = _INFO

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        scores = trace.rows()  # zero at padding: the identity below adds nothing there
        for layer in reversed(range(trace.layers)):
            attended = read_rows(scores, trace.head_mean(MEAN_ATTENTION, layer))
            scores = (1 - self.residual) * attended + self.residual * scores
        return Scores(scores)


@dataclass(frozen=True)
class AttentionFlow(_WithResidual):
    """Attention flow as first proposed: a maximum flow of its own to each token, solved by OR-Tools."""

    base_name = "attention_flow"
    info = replace(_INFO, libraries=("ortools",), extra="maxflow")

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        attention = trace.head_means(MEAN_ATTENTION).cpu().double().numpy()
        rows = trace.rows().cpu().double().numpy()
        mask = trace.mask.cpu().numpy()
        values = np.zeros(mask.shape)
        for item, real in enumerate(mask):
            of_text = attention[item][:, real][:, :, real]
            values[item, real] = self._score_text(of_text, rows[item, real])
        return Scores(torch.as_tensor(values))

    def _score_text(self, attention: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores (t,) of one text from its attention (l, t, t) and the weights of its rows (t,)."""
        capacity = (1 - self.residual) * attention + self.residual * np.eye(len(rows))
        read = np.flatnonzero(rows)
        flows = pair_values(capacity, read.tolist())
        sums = flows.sum(1, keepdims=True)
        shares = np.divide(flows, sums, out=np.zeros_like(flows), where=sums > 0)
        return rows[read] @ shares


def read_rows(rows: Tensor, matrix: Tensor) -> Tensor:
    """`rows @ matrix` for each item: (b, t) and (b, t, t) give (b, t)."""
    return torch.einsum("bq,bqk->bk", rows.to(matrix.dtype), matrix)
