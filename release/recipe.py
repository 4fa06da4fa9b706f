"""The recipe for conda-forge, filled in with the version and the checksum of an sdist."""

from __future__ import annotations

import hashlib
from pathlib import Path

from packaging.utils import parse_sdist_filename

TEMPLATE = Path(__file__).parent.parent / "recipe" / "recipe.yaml"
_VERSION = "VERSION"
_CHECKSUM = "SHA256"


def filled_in(sdist: Path) -> str:
    """The recipe for one release."""
    _, version = parse_sdist_filename(sdist.name)
    checksum = hashlib.sha256(sdist.read_bytes()).hexdigest()
    return TEMPLATE.read_text(encoding="utf-8").replace(_VERSION, str(version)).replace(_CHECKSUM, checksum)
