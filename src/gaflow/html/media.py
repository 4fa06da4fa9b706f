"""Pictures inside pages, as data URIs."""

from __future__ import annotations

import base64
import io

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.extras import need
from gaflow.inputs.media import Image
from gaflow.view.media import heat_map


def images(att: Attribution) -> dict[str, str]:
    """The picture and its heat map, described in words, as data URIs; none for a sound."""
    if not isinstance(att.media, Image):
        return {}
    return {
        "the picture as the model saw it": _data_uri(att.media.pixels),
        "the same picture, each patch shaded by its score": _data_uri(heat_map(att)),
    }


def _data_uri(pixels: np.ndarray) -> str:
    need("PIL", "image", "pictures need Pillow")
    from PIL import Image as pillow

    file = io.BytesIO()
    pillow.fromarray(np.ascontiguousarray(pixels)).save(file, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
