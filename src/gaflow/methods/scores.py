"""What every method gives: a score per token, and the flow behind it if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from gaflow.network import Flow
from gaflow.tracing import Trace

__all__ = ["Method", "Scores"]


@dataclass(frozen=True)
class Scores:
    """The result of a method on a traced batch."""

    values: Tensor  # (b, t) token scores, 0 at padding
    flow: Flow | None = None  # flow methods only


@runtime_checkable
class Method(Protocol):
    """A settings object: it has a name and maps a trace to scores."""

    @property
    def name(self) -> str: ...

    def __call__(self, trace: Trace) -> Scores: ...
