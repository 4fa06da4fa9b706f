"""Records of tensors whose first axis is the batch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def take_items(record: Record, items: Tensor | slice, /, **changes: Any) -> Record:
    """The record of these items only: its tensors (b, ...) indexed, `changes` as they are, all other fields kept."""
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor) and field.name not in changes:
            changes[field.name] = value[items]
    return replace(record, **changes)
