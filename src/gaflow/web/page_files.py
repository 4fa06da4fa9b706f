"""The page of the explorer: a few fixed files, none of which is named by a request's path.

Scripts are ES modules as they lie in static/, without a build step. The drawing of flows is the module of the static
flow page.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

from gaflow.html.document import open_style, static
from gaflow.web.problems import HttpProblem

router = APIRouter(include_in_schema=False)

_HTML = "text/html; charset=utf-8"
_CSS = "text/css; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"


@router.get("/")
def index() -> Response:
    """The page."""
    return Response(_file("index.html"), media_type=_HTML)


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """A style sheet or a module of the page."""
    if name == "style.css":
        return Response(open_style("flow.css") + _file("explorer.css"), media_type=_CSS)
    if name == "flow.js":
        return Response(static("flow.js"), media_type=_SCRIPT)
    if name in _modules():
        return Response(_file(name), media_type=_SCRIPT)
    raise HttpProblem(404, f"this server has no file {name!r}", "name")


@cache
def _modules() -> frozenset[str]:
    """The modules that the package was installed with."""
    folder = files("gaflow").joinpath("web", "static")
    return frozenset(file.name for file in folder.iterdir() if file.name.endswith(".js"))


@cache
def _file(name: str) -> str:
    return files("gaflow").joinpath("web", "static", name).read_text("utf-8")
