"""What all commands share: the application itself, and options that mean the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import gaflow
from gaflow.data.sources import LabelNames
from gaflow.methods import METHODS, find_method

__all__ = [
    "Device",
    "FlowHtml",
    "Html",
    "Json",
    "LabelColumn",
    "LabelNamesOption",
    "Model",
    "Pair",
    "PairColumn",
    "Split",
    "Subset",
    "TargetLabel",
    "TaskName",
    "TextColumn",
    "TextOrDash",
    "Truncation",
    "WindowsFlag",
    "app",
    "count",
    "label_names_of",
    "method_names",
    "options_of",
    "run",
    "split_names",
]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_UsageError: Any = typer.BadParameter.__base__  # typer gives it no name of its own

TextOrDash = Annotated[str, typer.Argument(metavar="TEXT|-", help="The text; - reads it from stdin.")]
Pair = Annotated[str | None, typer.Option(metavar="TEXT", help="The second text of a pair; the context of a question.")]
Model = Annotated[str | None, typer.Option(metavar="MODEL", help="Hub id or folder; default: built in.")]
TaskName = Annotated[
    str | None, typer.Option(metavar="NAME", help="fill-mask, question-answering ...; default: what the model is for.")
]
TargetLabel = Annotated[
    str | None,
    typer.Option(metavar="LABEL", help="Label, index, 'A minus B', 'word=TAG', answer, word; default: predicted."),
]
Truncation = Annotated[bool, typer.Option("--truncation", help="Cut a text that is too long.")]
WindowsFlag = Annotated[bool, typer.Option("--windows", help="Read a text that is too long in overlapping parts.")]
Device = Annotated[str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps ...; default: a GPU if any.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained page to FILE.")]
FlowHtml = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page to play with to FILE: where each token's flow goes.")
]
TextColumn = Annotated[str, typer.Option(metavar="NAME", help="Column of the texts.")]
PairColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of second texts.")]
LabelColumn = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the true labels.")]
LabelNamesOption = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="What labels 0, 1, ... are called by the model; or 'x=A,y=B'.")
]
Split = Annotated[str, typer.Option(metavar="NAME", help="Split of a hub data set.")]
Subset = Annotated[str | None, typer.Option(metavar="NAME", help="Configuration of a hub data set.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def run(args: Sequence[str] | None = None) -> int:
    """Parse `args`, run the command and give the exit code; a wrong usage is a ValueError."""
    try:
        return app(args, prog_name="gaflow", standalone_mode=False) or 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _UsageError as error:
        asked = getattr(error.ctx, "command_path", "gaflow")
        reason = error.format_message().rstrip(".")
        if reason.startswith("No such option") and asked.endswith(("explain", "compare")):
            reason += ", and a text that begins with '-' goes after '--'"
        elif reason.startswith("Got unexpected extra argument") and asked.endswith(("explain", "compare")):
            reason += "; a text of several words goes in quotes"
        raise ValueError(f"{reason}; see '{asked} --help'") from None


def options_of(args: Sequence[str]) -> dict[str, str]:
    """The options of the command that `args` name, by what Python calls them; none if they name no command."""
    known = getattr(typer.main.get_command(app), "commands", {})
    command = next((known[each] for each in args if each in known), None)
    options = {p.name: max(p.opts, key=len) for p in (command.params if command else ()) if p.name}
    return {name: option for name, option in options.items() if option.startswith("--")}


def count(value: Any) -> int:
    """A whole number from the command line; the library says which ones it takes."""
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no whole number") from None


def label_names_of(given: str | None) -> LabelNames | None:
    """What labels are called by the model: names of 0, 1, ... or pairs of both."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if not all("=" in part for part in parts):
        return parts
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}


def method_names(given: str | None, default: Sequence[str]) -> list[str]:
    """The methods that --methods means, checked before a model is loaded; `default` if it is not given."""
    if given is None:
        names = list(default)
    elif given.strip().lower() == "all":
        names = list(METHODS)
    else:
        names = [name.lower() for name in split_names(given)]
    for name in names:
        find_method(name)
    return names


def split_names(given: str) -> list[str]:
    """The names in --methods, whatever they mean."""
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise ValueError(f"--methods {given!r} has an empty name; separate names by single commas")
    folded = [name.lower() for name in names]
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if twice:
        raise ValueError(f"--methods names {', '.join(twice)} twice; give each method once")
    return names


@app.callback(invoke_without_command=True)
def _gaflow(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Explain the predictions of Transformer models by Generalized Attention Flow.

    \b
    Example:
      gaflow explain "this dog is not cute, but very smart." --model org/name

    Exit codes: 0 done, 1 failure, 2 bad input, 130 interrupted. NO_COLOR, FORCE_COLOR and COLUMNS are respected.
    """
    if version:
        typer.echo(f"gaflow {gaflow.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
