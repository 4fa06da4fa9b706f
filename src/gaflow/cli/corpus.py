"""`gaflow corpus`: importances of words over a stored run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from gaflow.arguments import whole_number
from gaflow.attribution.export import as_json
from gaflow.cli.app import Html, Json, app, as_path, flag, method_option, number
from gaflow.cli.input_output import check_file, print_json, print_written, write_file
from gaflow.cli.progress import spinner
from gaflow.terminal.console import make_console, show, table
from gaflow.view.text import one_line, shortened

if TYPE_CHECKING:
    from pandas import DataFrame

_HEADS = ("share", "interval", "texts", "lift", "words")


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(parser=as_path, metavar="DIR", help="What 'gaflow attribute' wrote.")],
    method: Annotated[str | None, method_option("Method whose scores count; needed if DIR has several.")] = None,
    length: Annotated[int, number("The most words of an n-gram.")] = 1,
    minimum: Annotated[int, number("Leave out words in fewer texts of a class.")] = 10,
    top: Annotated[int, number("How many words to list for each class.", "K")] = 10,
    match_case: Annotated[bool, flag("--match-case", "Count 'Good' and 'good' apart.")] = False,
    html: Html = None,
    json: Json = False,
) -> None:
    """List the words that count most for each class, over all texts of a run, and plausible shortcuts.

    \b
    Examples:
      gaflow corpus attributions
      gaflow corpus attributions --length 2 --minimum 20 --html words.html
    """
    from gaflow.corpora import corpus as corpus_table
    from gaflow.corpora import corpus_page, shortcuts

    whole_number("top", top)
    check_file("--html", html)
    with spinner("reading"):
        words = corpus_table(folder, method=method, length=length, minimum=minimum, fold_case=not match_case)
    write_file("--html", html, lambda path: corpus_page(words, path))
    suspects = shortcuts(words)
    if json:
        columns = words.drop(columns="examples")
        document = {**words.attrs, "words": columns.to_dict("records"), "shortcuts": suspects["words"].tolist()}
        print_json(as_json(document))  # an interval of a single text has no ends
        return
    lines: list[RenderableType] = [Text(_title(words), style="bold")]
    for name, rows in words.groupby("class", sort=True):
        lines += ["", Text(one_line(str(name)), style="bold"), table(_HEADS, _lines(rows.head(top)))]
    if len(suspects):
        lines += ["", Text("plausible shortcuts: far more of the score than of the words", style="bold")]
        lines.append(table(("class", *_HEADS), _lines(suspects.head(top), with_class=True)))
    if not len(words):
        lines.append(Text(f"no word is in {minimum} texts of a class; pass a smaller --minimum"))
    show(make_console(), Group(*lines))
    print_written(html)


def _title(words: DataFrame) -> str:
    title = f"{words.attrs['texts']} texts by {one_line(words.attrs['method'])}"
    if words.attrs["left_out"]:
        title += f", {words.attrs['left_out']} without scores left out"
    return title


def _lines(words: DataFrame, *, with_class: bool = False) -> list[list[str]]:
    lines = []
    for row in words.to_dict("records"):
        cells = [
            f"{row['share']:.2%}",
            "-" if math.isnan(row["low"]) else f"{row['low']:.2%} to {row['high']:.2%}",  # of a single text
            str(row["texts"]),
            f"{row['lift']:.1f}",
            shortened(row["words"]),
        ]
        lines.append([one_line(row["class"]), *cells] if with_class else cells)
    return lines
