"""What can go wrong, and what to do about it. Every message names what was given and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaflow.flow.network import Flow


class GaflowError(Exception):
    """Base of every error that gaflow raises on purpose (bad arguments are ValueError or TypeError too)."""


class SolveError(GaflowError):
    """The barrier solver did not reach its certificate; `flow` holds the flagged result, `items` who failed."""

    def __init__(self, message: str, flow: Flow, items: list[int]):
        super().__init__(message)
        self.flow = flow
        self.items = items


class UnsupportedModelError(GaflowError):
    """The model gives no attention weights of a shape that a layered network can be built from."""


class MissingExtraError(GaflowError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


class UnknownMethodError(GaflowError, ValueError):
    """No method of that name; the message lists the nearest names."""


class TargetError(GaflowError, ValueError):
    """The target is no class, label or contrast of this model."""


class TextError(GaflowError, ValueError):
    """The text is empty, or longer than the model takes."""


class DataError(GaflowError, ValueError):
    """A data set, or stored attributions, cannot be read as asked: no such column, wrong types, damaged files."""


class JobError(GaflowError, ValueError):
    """The folder of a data-set run belongs to another job, or to a process that is still at it."""


class TooLargeError(GaflowError, MemoryError):
    """A batch or a text needs more memory than the device has left; the message names what would fit."""
