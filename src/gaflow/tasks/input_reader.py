"""The settings by which a task reads its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["InputReader"]


@dataclass(frozen=True)
class InputReader:
    """What a task needs to turn inputs into encodings."""

    model: Any  # pictures and sounds depend on its config and dtype; texts do not
    processor: Any  # tokenizer, image processor or feature extractor
    limit: int | None = None  # the most tokens that the model takes, special ones included
    truncation: bool = False  # cut longer texts
