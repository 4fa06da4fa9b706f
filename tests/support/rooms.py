"""The rooms of the package: what each may import, and the map of them in CONTRIBUTING.md.

`python -m tests.support.rooms` writes that map from the rooms' docstrings and the table below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gaflow"
FILES = sorted(SOURCE.rglob("*.py"))
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- rooms: written by python -m tests.support.rooms -->\n"
END = "<!-- end of rooms -->\n"

# Modules of the root that serve every room, and what they may import themselves.
PLUMBING: dict[str, tuple[str, ...]] = {
    "errors": (),
    "arguments": ("errors",),
    "extras": ("errors",),
    "files": ("errors",),
    "progress": ("errors",),
    "plugins": ("errors",),
}

# What each room may import beside the plumbing. Whatever a room is built on stands above it.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "schemas": (),
    "flow": (),
    "inputs": ("schemas",),
    "tasks": ("inputs",),
    "attribution": ("schemas", "flow", "inputs", "tasks"),
    "models": ("inputs", "tasks"),
    "methods": ("flow", "inputs", "tasks", "models"),
    "explainer": ("flow", "inputs", "tasks", "attribution", "models", "methods"),
    "data": ("schemas", "inputs", "tasks"),
    "jobs": ("schemas", "flow", "inputs", "tasks", "attribution", "models", "methods", "explainer", "data"),
    "evaluation": ("schemas", "flow", "inputs", "tasks", "attribution", "models", "methods", "explainer", "data"),
    "view": ("flow", "inputs", "tasks", "attribution"),
    "html": ("flow", "inputs", "tasks", "attribution", "view"),
    "notebook": ("flow", "inputs", "tasks", "attribution", "view", "html"),
    "plots": ("flow", "inputs", "tasks", "attribution", "view"),
    "terminal": ("flow", "inputs", "tasks", "attribution", "view"),
    "corpora": ("inputs", "data", "jobs", "view", "html"),
    "benchmark": (
        "schemas", "flow", "inputs", "tasks", "attribution", "models", "methods", "explainer", "data", "jobs",
        "evaluation", "view", "html", "plots",
    ),
    "web": (
        "schemas", "flow", "inputs", "tasks", "attribution", "models", "methods", "explainer", "data", "jobs",
        "evaluation", "view", "html", "corpora",
    ),
    "cli": (
        "flow", "inputs", "tasks", "attribution", "models", "methods", "explainer", "data", "jobs",
        "evaluation", "view", "html", "plots", "terminal", "corpora",
        "benchmark", "web",
    ),
}  # fmt: skip

# The facade: `att.to_html`, `att.widget` and `att.plot*` import the renderers when they are called.
FACADE = {(SOURCE / "attribution" / "attribution.py", room) for room in ("html", "notebook", "plots")}


def room_of(path: Path) -> str:
    """The room that a file belongs to; a module of the root is its own."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules imported anywhere in a file, inside functions and for the type checker too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out in full"
            assert node.module is not None
            if node.module == "gaflow":
                for alias in node.names:
                    yield f"gaflow.{alias.name}"
            else:
                yield node.module


def rooms_imported(path: Path) -> set[str]:
    """The other rooms that a file imports."""
    rooms = set()
    for name in imports(ast.parse(path.read_text(encoding="utf-8"))):
        package, _, rest = name.partition(".")
        if package == "gaflow":
            rooms.add(rest.partition(".")[0])
    return rooms - {room_of(path)}


def description(room: str) -> str:
    """The docstring of a room, without line breaks."""
    folder = SOURCE / room / "__init__.py"
    path = folder if folder.exists() else SOURCE / f"{room}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def room_map() -> str:
    """The table of CONTRIBUTING.md."""
    lines = ["| room | what is in it | may import |", "|---|---|---|"]
    for name in PLUMBING:
        if (SOURCE / f"{name}.py").exists():
            lines.append(f"| `{name}.py` | {description(name)} | {', '.join(PLUMBING[name])} |")
    for room, allowed in MAY_IMPORT.items():
        title = f"{room}/" if (SOURCE / room).is_dir() else f"{room}.py"
        lines.append(f"| `{title}` | {description(room)} | {', '.join(allowed)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """CONTRIBUTING.md with the map of today."""
    before, _, rest = CONTRIBUTING.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + room_map() + END + after


if __name__ == "__main__":
    CONTRIBUTING.write_text(written(), encoding="utf-8")
