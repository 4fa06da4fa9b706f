"""A kept result as a file: pages, a figure, JSON, a graph for other front ends, or the file of `gaflow.load`."""

from __future__ import annotations

import io
import json
import tempfile
import threading
from pathlib import Path

from gaflow.attribution.attribution import Attribution

_DRAWING = threading.Lock()  # matplotlib draws one figure at a time
_PAGE = "text/html; charset=utf-8"
MEDIA_TYPES = (_PAGE, "image/svg+xml", "application/json", "application/octet-stream")


def export(att: Attribution, kind: str) -> tuple[bytes, str, str]:
    """The content of the file, its media type and its name."""
    if kind == "html":
        return att.to_html().encode(), _PAGE, "explanation.html"
    if kind == "flow":
        return att.to_flow_html().encode(), _PAGE, "flow.html"
    if kind == "svg":
        return _figure(att), "image/svg+xml", "explanation.svg"
    if kind == "json":
        return _as_text(att.to_dict()), "application/json", "explanation.json"
    if kind == "graph":
        return _as_text(att.to_graph()), "application/json", "graph.json"
    return _saved(att), "application/octet-stream", "explanation.safetensors"


def _figure(att: Attribution) -> bytes:
    drawing = io.StringIO()
    with _DRAWING:
        figure = att.plot() if att.flow is None else att.plot_flow()
        figure.savefig(drawing, format="svg")
    return drawing.getvalue().encode()


def _as_text(values: object) -> bytes:
    return json.dumps(values, ensure_ascii=False, indent=1).encode()


def _saved(att: Attribution) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explanation.safetensors"
        att.save(path)
        return path.read_bytes()
