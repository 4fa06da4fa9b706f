"""Pictures and sounds as the model took them in, kept with their explanation.

The convention this file owns: pixels are those that the model saw (resized and cropped, in plain colours), so that
patches lie on them exactly; offsets of a sound count its samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Image", "Media", "Sound", "from_tensor"]


@dataclass(frozen=True, eq=False)
class Image:
    """A picture, and the patches it was cut into."""

    pixels: np.ndarray  # (h, w, 3) uint8
    grid: tuple[int, int]  # rows, columns of patches

    @property
    def tensor(self) -> Tensor:
        """What to store."""
        return torch.from_numpy(np.ascontiguousarray(self.pixels))

    def about(self) -> dict[str, Any]:
        """What else to store."""
        return {"kind": "image", "grid": list(self.grid)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self.grid == other.grid and np.array_equal(self.pixels, other.pixels)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Sound:
    """A sound."""

    samples: np.ndarray  # (n,) float32
    rate: int  # samples in a second

    @property
    def tensor(self) -> Tensor:
        """What to store."""
        return torch.from_numpy(np.ascontiguousarray(self.samples))

    def about(self) -> dict[str, Any]:
        """What else to store."""
        return {"kind": "sound", "rate": self.rate}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sound) and self.rate == other.rate and np.array_equal(self.samples, other.samples)

    __hash__ = None  # type: ignore[assignment]


Media = Image | Sound


def from_tensor(tensor: Tensor, about: Any) -> Media:
    """What `tensor` and `about` were stored for; ValueError if they do not fit together."""
    values = tensor.numpy()
    if about["kind"] == "image":
        rows, columns = (int(k) for k in about["grid"])
        if values.ndim != 3 or values.shape[2] != 3 or values.dtype != np.uint8 or min(rows, columns) < 1:
            raise ValueError("the stored picture is none")
        return Image(values, (rows, columns))
    if about["kind"] != "sound" or values.ndim != 1 or not np.isfinite(values).all() or int(about["rate"]) < 1:
        raise ValueError("the stored sound is none")
    return Sound(values.astype(np.float32), int(about["rate"]))
