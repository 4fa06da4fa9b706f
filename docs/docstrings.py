"""Docstrings of the package as reStructuredText: blocks of code, and fields of records by their comments."""

from __future__ import annotations

import inspect
import re

_FIELD = re.compile(r"    (?P<name>[a-z]\w*): (?P<type>[^=#]+?)(?: = [^#]*)?(?:  # (?P<comment>.*))?$")


def mark_code(lines: list[str]) -> list[str]:
    """Make blocks that are set apart by a blank line and indentation code blocks, as they are in Markdown."""
    marked: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and marked and not marked[-1].strip():
            marked += [".. code-block:: python", ""]
            inside = True
        elif line.strip() and not indented:
            inside = False
        marked.append(line)
    return marked


def without_modules(signature: str | None) -> str | None:
    """A signature in which `~numpy.ndarray` is `ndarray`; None stays None."""
    if signature is None:
        return None
    return re.sub(r"~?\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", signature).replace("~", "")


def fields(record: type) -> list[str]:
    """A definition list of a record's fields: name, type, and the comment at the end of the line or in lines below."""
    described: dict[str, list[str]] = {}
    name = ""
    for line in _body(record):
        match = _FIELD.match(line)
        if match:
            name = match["name"]
            described[name] = [f"`{name}`: `{match['type'].strip()}`", f"    {_escaped(match['comment'] or '')}"]
        elif name and line.strip().startswith("# "):
            described[name].append(f"    {_escaped(line.strip()[2:])}")
    if not described:
        return []
    listed = ["", ".. rubric:: Fields", ""]
    for entry in described.values():
        listed += [*entry, ""]
    return listed


def _body(record: type) -> list[str]:
    """The lines of a class before its first method, without its docstring."""
    try:
        source = inspect.getsource(record)
    except (OSError, TypeError):
        return []
    source = re.sub(r'"""(.|\n)*?"""', "", source, count=1)
    return re.split(r"\n    (?:def|@|class) ", source)[0].splitlines()[1:]


def _escaped(comment: str) -> str:
    """Text in which only backticks mean something."""
    return re.sub(r"([*|]|_(?!\w))", r"\\\1", comment)
