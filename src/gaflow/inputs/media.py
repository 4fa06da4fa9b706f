"""Pictures and sounds as the model took them in, kept with their explanation.

The convention this file owns: pixels are those that the model saw (resized and cropped, in plain colours), and patches
lie on them exactly; offsets of a sound count its samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Image", "Media", "Sound", "media_from_tensor"]

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


def media_from_tensor(tensor: Tensor, metadata: Any) -> Media:
    """The picture or sound that `tensor` and `metadata` were stored for; ValueError if they do not fit together."""
    array = tensor.numpy()
    if metadata["kind"] == "image":
        rows, columns = map(int, metadata["grid"])
        is_picture = array.ndim == 3 and array.shape[2] == 3 and array.dtype == np.uint8
        if not is_picture or min(rows, columns) < 1:
            raise ValueError("the stored picture is damaged: not (h, w, 3) bytes with a grid of patches")
        return Image(array, (rows, columns))
    if metadata["kind"] != "sound":
        raise ValueError(f"neither a picture nor a sound was stored, but {metadata['kind']!r}")
    rate = int(metadata["rate"])
    if array.ndim != 1 or not np.isfinite(array).all() or rate < 1:
        raise ValueError("the stored sound is damaged: not (n,) finite samples with a rate")
    return Sound(array.astype(np.float32), rate)
