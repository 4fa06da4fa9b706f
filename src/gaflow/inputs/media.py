"""Pictures and sounds as the model took them in, kept with their explanation.

The convention this file owns: pixels are those that the model saw (resized and cropped, in plain colours), and patches
lie on them exactly; offsets of a sound count its samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.schemas.check import SCHEMAS, check, check_arrays

_SAMPLES_PER_FRAME = 320  # of wav2vec 2.0 and most models after it


class _Array:
    """What pictures and sounds have in common: an array, and a few facts about it."""

    @property
    def array(self) -> np.ndarray:
        """Pixels or samples."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """What to store beside `tensor`, as JSON."""
        raise NotImplementedError

    @property
    def tensor(self) -> Tensor:
        """The array as it is stored."""
        return torch.from_numpy(np.ascontiguousarray(self.array))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Array) or self.metadata() != other.metadata():
            return False
        return np.array_equal(self.array, other.array)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Image(_Array):
    """A picture, and the patches it was cut into."""

    pixels: np.ndarray  # (h, w, 3) uint8
    grid: tuple[int, int]  # rows, columns of patches

    @property
    def array(self) -> np.ndarray:
        """The pixels."""
        return self.pixels

    def metadata(self) -> dict[str, Any]:
        """The kind and the grid."""
        return {"kind": "image", "grid": list(self.grid)}

    @property
    def expected_tokens(self) -> int:
        """How many tokens a model probably makes of the picture, special ones left out."""
        rows, columns = self.grid
        return rows * columns


@dataclass(frozen=True, eq=False)
class Sound(_Array):
    """A sound of one channel."""

    samples: np.ndarray  # (n,) float32
    rate: int  # samples in a second

    @property
    def array(self) -> np.ndarray:
        """The samples."""
        return self.samples

    def metadata(self) -> dict[str, Any]:
        """The kind and the rate."""
        return {"kind": "sound", "rate": self.rate}

    @property
    def expected_tokens(self) -> int:
        """How many tokens a model probably makes of the sound."""
        return max(1, len(self.samples) // _SAMPLES_PER_FRAME)


Media = Image | Sound


def media_from_array(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any], count: int) -> Media:
    """The picture or sound in a stored array "media", of `count` ordinary tokens; ValueError if it does not fit."""
    kind = metadata["kind"]
    check(metadata, SCHEMAS[kind], "media")
    check_arrays(arrays, kind, {})
    if kind == "sound":
        return Sound(arrays["media"], metadata["rate"])
    rows, columns = metadata["grid"]
    if rows * columns != count:
        raise ValueError(f"media.grid has {rows} times {columns} patches, but there are {count} ordinary tokens")
    return Image(arrays["media"], (rows, columns))
