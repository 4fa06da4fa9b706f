"""Pictures inside pages, as data URIs."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.extras import need
from gaflow.inputs.media import Image
from gaflow.view.media import heat_map

__all__ = ["EmbeddedImage", "images"]


@dataclass(frozen=True)
class EmbeddedImage:
    """A picture inside a page."""

    uri: str
    description: str


def images(att: Attribution) -> list[EmbeddedImage]:
    """The picture and its heat map; none for a sound."""
    if not isinstance(att.media, Image):
        return []
    return [
        EmbeddedImage(_data_uri(att.media.pixels), "the picture as the model saw it"),
        EmbeddedImage(_data_uri(heat_map(att)), "the same picture, each patch shaded by its score"),
    ]


def _data_uri(pixels: np.ndarray) -> str:
    need("PIL", "image", "pictures need Pillow")
    from PIL import Image as pillow

    file = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(file, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
