"""`gaflow methods`: what there is, and what each method takes and gives."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from inspect import getdoc
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from gaflow.cli.app import Json, app
from gaflow.cli.input_output import print_json
from gaflow.flow.information import INFORMATION
from gaflow.methods import METHODS, Method, MethodInfo
from gaflow.terminal.console import make_console, show
from gaflow.view.text import one_line

__all__ = ["methods"]

_COLUMNS = {"name": 14, "family": 12, "signed": 6, "class-specific": 14, "passes": 21}
_NOTE = (
    "signed: scores below 0 speak against the class; class-specific: another class gives other scores. "
    "Every explanation begins with one trace, 1 forward and 1 backward, which all methods that need no more share."
)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods: family, what their scores mean, what they cost, where they come from.

    \b
    Example:
      gaflow methods --json
    """
    rows = [_describe(name, method) for name, method in METHODS.items()]
    if as_json:
        print_json(rows)
        return
    console = make_console()
    wide = console.width >= len(_line(list(_COLUMNS), padded=True))
    lines: list[Any] = [Text(_line(list(_COLUMNS), padded=wide), style="dim")]
    for row in rows:
        facts = [row["name"], row["family"], _yes(row["signed"]), _yes(row["class_specific"]), row["passes"]]
        lines.append(Text(_line([one_line(str(fact or "-")) for fact in facts], padded=wide), style="bold"))
        lines.append(Padding(Text(one_line(_sentence(row))), (0, 0, 0, 2)))
    show(console, Group(*lines, "", Text(_NOTE, style="dim")))


def _describe(name: str, method: Method) -> dict[str, Any]:
    """What a method's settings object says about itself; None where it says nothing."""
    documented = INFORMATION.get(name, method)  # a plain flow is its information tensor
    about = getattr(method, "info", None)
    facts = asdict(about) if isinstance(about, MethodInfo) else dict.fromkeys(f.name for f in fields(MethodInfo))
    settings = {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}
    description = (getdoc(documented) or "").split("\n")[0]
    return {"name": name, "description": description, **facts, "settings": settings}


def _sentence(row: dict[str, Any]) -> str:
    """Description, source and the extra, for those who read."""
    parts = [row["description"], "" if row["reference"] in (None, "none") else f"{row['reference']}."]
    return " ".join([*filter(None, parts), *([f"Extra: {row['extra']}."] if row["extra"] else [])])


def _line(cells: list[str], *, padded: bool) -> str:
    """Cells below one another, or where there is no room for that, one after the other."""
    if not padded:
        return "; ".join(cells)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _COLUMNS.values(), strict=True))


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"
