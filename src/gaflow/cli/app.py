"""What all commands share: the application itself, and options that mean the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gaflow.arguments import distinct
from gaflow.data.sources import LabelNames
from gaflow.errors import Argument, ArgumentError
from gaflow.methods import METHODS, find_method


class _Interrupted(Exception):
    """Ctrl-C on its way through typer, which would make a bare exit code of it."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; what an interruption says is not lost."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise _Interrupted(*interrupt.args) from None


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_UsageError: Any = typer.BadParameter.__base__  # typer gives it no name of its own


def as_integer(value: str | int) -> int:
    """A whole number from the command line; the library says which ones it takes."""
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no whole number") from None


def option(metavar: str, description: str, *names: str) -> Any:
    """An option with a value; `names` if it is not called like its parameter."""
    return typer.Option(*names, metavar=metavar, help=description)


def methods_option(description: str) -> Any:
    """The option for several methods: a list, or repeated."""
    return option("A,B,...", description, "--methods", "--method")


def method_option(description: str) -> Any:
    """The option for one method."""
    return option("NAME", description, "--method", "--methods")


def number(description: str, metavar: str = "N") -> Any:
    """An option that is a whole number."""
    return typer.Option(parser=as_integer, metavar=metavar, help=description)


def as_path(value: str) -> Path:
    """A path from the command line; the empty one would be the current folder."""
    if not value.strip():
        raise typer.BadParameter(f"{value!r} is empty; give a path, such as '.' for this folder")
    return Path(value)


def as_settings(value: str) -> dict[str, object]:
    """Settings from the command line, as a JSON object."""
    try:
        settings = json.loads(value)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise typer.BadParameter(f"{value!r} is no JSON object")
    return settings


def path_option(metavar: str, description: str, *names: str) -> Any:
    """An option that is a path."""
    return typer.Option(*names, parser=as_path, metavar=metavar, help=description)


def flag(name: str, description: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=description)


TextOrDash = Annotated[str, typer.Argument(metavar="TEXT|-", help="The text; - reads it from stdin.")]
Pair = Annotated[str | None, option("TEXT", "The second text of a pair; the context of a question.")]
Model = Annotated[str | None, option("MODEL", "Hub id or folder; default: built in.")]
Dtype = Annotated[str | None, option("NAME", "float16, bfloat16 ..., or auto: as it is stored; default: float32.")]
Revision = Annotated[str | None, option("NAME", "Branch, tag or commit of a model on the hub.")]
DeviceMapOption = Annotated[str | None, option("NAME", "Spread the model over all devices: auto, balanced ...")]
Quantization = Annotated[
    dict[str, object] | None,
    typer.Option(
        "--quantization-config",
        parser=as_settings,
        metavar="JSON",
        help='Load it quantised: \'{"quant_method": "bitsandbytes", "load_in_4bit": true}\'.',
    ),
]
TrustRemoteCode = Annotated[bool, flag("--trust-remote-code", "Run the code that comes with the model.")]
TaskName = Annotated[str | None, option("NAME", "fill-mask, question-answering ...; default: the task of the model.")]
TargetLabel = Annotated[
    str | None, option("LABEL", "Label, index, 'A minus B', 'word=TAG', answer, word; default: predicted.")
]
BatchSize = Annotated[int, number("Texts that run together.")]
Truncation = Annotated[bool, flag("--truncation", "Cut a text that is too long.")]
WindowsFlag = Annotated[bool, flag("--windows", "Read a text that is too long in overlapping windows.")]
Device = Annotated[str | None, option("NAME", "cpu, cuda, cuda:1, mps ...; default: the GPU, if there is one.")]
Html = Annotated[Path | None, path_option("FILE", "Write a self-contained page to FILE.")]
FlowHtml = Annotated[Path | None, path_option("FILE", "Write an interactive page of the flow to FILE.")]
OutputFolder = Annotated[
    Path, path_option("DIR", "Folder of the results. An unfinished run in it is continued.", "--out", "-o")
]
TextColumn = Annotated[str, option("NAME", "Column of the texts.")]
PairColumn = Annotated[str | None, option("NAME", "Column of second texts.")]
LabelColumn = Annotated[str | None, option("NAME", "Column of the true labels.")]
LabelNamesOption = Annotated[str | None, option("A,B,...", "Names of labels 0, 1, ..., or pairs 'x=A,y=B'.")]
RowLimit = Annotated[int | None, number("Only the first N rows.")]
Split = Annotated[str, option("NAME", "Split of a hub data set.")]
Subset = Annotated[str | None, option("NAME", "Configuration of a hub data set.")]
Json = Annotated[bool, flag("--json", "Print one JSON document and nothing else.")]


def run(args: Sequence[str] | None = None) -> int:
    """Parse `args`, run the command and return the exit code; a wrong usage is a ValueError."""
    try:
        return app(args, prog_name="gaflow", standalone_mode=False) or 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _Interrupted as interrupted:
        raise KeyboardInterrupt(*interrupted.args) from None
    except _UsageError as error:
        command = getattr(error.ctx, "command_path", "gaflow")
        takes_text = command.endswith(("explain", "compare"))
        reason = error.format_message().rstrip(".")
        if takes_text and reason.startswith("No such option"):
            reason += ", and a text that begins with '-' goes after '--'"
        elif takes_text and reason.startswith("Got unexpected extra argument"):
            reason += "; a text of several words goes in quotes"
        raise ValueError(f"{reason}; see '{command} --help'") from None


def options_of(args: Sequence[str]) -> dict[str, str]:
    """The options of the command that `args` name, by the names of their parameters; none if they name no command."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    for arg in args:
        if arg in commands:
            return {parameter.name: parameter.opts[0] for parameter in commands[arg].params}
    return {}


def parse_label_names(label_names: str | None) -> LabelNames | None:
    """What the model calls the labels: names of 0, 1, ..., or pairs of a label and its name."""
    if label_names is None:
        return None
    names = [name.strip() for name in label_names.split(",")]
    if not all("=" in name for name in names):
        return names
    pairs = [name.partition("=") for name in names]
    return {label.strip(): name.strip() for label, _, name in pairs}


def parse_methods(methods: Sequence[str] | None, default: Sequence[str] = ()) -> list[str]:
    """The methods that lists of names mean, checked before a model is loaded; `default` if there is no list."""
    if not methods:
        names = list(default)
    elif is_all(methods):
        names = list(METHODS)
    else:
        names = [name.lower() for name in split_names(methods)]
    for name in names:
        find_method(name, "methods")
    return names


def is_all(methods: Sequence[str]) -> bool:
    """Whether lists of names mean all methods."""
    return ",".join(methods).strip().lower() == "all"


def split_names(methods: Sequence[str]) -> list[str]:
    """The names in all --methods, whether there are such methods or not."""
    joined = ",".join(methods)
    names = [name.strip() for name in joined.split(",")]
    if not all(names):
        raise ArgumentError(Argument("methods"), f" {joined!r} has an empty name; separate names by single commas")
    distinct("methods", [name.lower() for name in names], "give each method once")
    return names


@app.callback(invoke_without_command=True)
def _gaflow(
    context: typer.Context,
    version: Annotated[bool, flag("--version", "Print the version.")] = False,
) -> None:
    """Explain the predictions of Transformer models by Generalized Attention Flow.

    \b
    Example:
      gaflow explain "this dog is not cute, but very smart." --model org/name

    Exit codes: 0 done, 1 failure, 2 bad input, 130 interrupted. NO_COLOR, FORCE_COLOR and COLUMNS are respected.
    """
    if version:
        typer.echo(f"gaflow {metadata.version('gaflow')}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
