"""`gaflow methods`: what there is, and what each method takes and gives."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gaflow.cli.app import Json, app
from gaflow.cli.input_output import print_json
from gaflow.methods import METHODS
from gaflow.methods.description import describe
from gaflow.terminal.console import make_console, show
from gaflow.view.text import one_line

_COLUMNS = ("name", "family", "signed", "class_specific", "passes")
_LINE = "{:14}  {:12}  {:6}  {:14}  {:21}"
_WIDTH = 75  # of such a line
_WORDS = {True: "yes", False: "no", None: "-"}  # for facts that are no words
_NOTE = (
    "signed: negative scores count against the class; class-specific: another class gives other scores. "
    "One trace (1 forward, 1 backward pass) serves all methods that need no more passes."
)


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods: family, meaning of the scores, cost and reference.

    \b
    Example:
      gaflow methods --json
    """
    descriptions = [describe(name, method) for name, method in METHODS.items()]
    if as_json:
        print_json(descriptions)
        return
    console = make_console()
    line = _LINE
    if console.width < _WIDTH:
        line = "{}; {}; {}; {}; {}"
    lines: list[RenderableType] = [Text(line.format(*_COLUMNS).replace("_", "-"), style="dim")]
    for description in descriptions:
        facts = [description[key] for key in _COLUMNS]
        cells = [one_line(str(_WORDS.get(fact, fact))) for fact in facts]
        lines.append(Text(line.format(*cells), style="bold"))
        sentences = [description["description"]]
        if description["reference"] not in (None, "none"):
            sentences.append(f"{description['reference']}.")
        if description["extra"]:
            sentences.append(f"Extra: {description['extra']}.")
        lines.append(Padding(Text(one_line(" ".join(sentences))), (0, 0, 0, 2)))
    show(console, Group(*lines, "", Text(_NOTE, style="dim")))
