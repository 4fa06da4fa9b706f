"""The commands of `gaflow`, each a thin layer over the library: read, ask, print.

The convention this file owns: results go to stdout and nothing else does; with `--json` stdout is exactly one JSON
document, in ASCII, so that no text can steer a terminal. Errors are raised, and `cli` words them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer

import gaflow
from gaflow.errors import TextError, UnsupportedModelError
from gaflow.estimate import estimate, solve_seconds
from gaflow.explainer import Explainer
from gaflow.information import INFORMATION
from gaflow.loading import Loaded, outline
from gaflow.methods import DEFAULT, METHODS, Method, find_method
from gaflow.shading import visible
from gaflow.targets import Head
from gaflow.terminal import make_console, one_line, render, show, table
from gaflow.text import length_limit

__all__ = ["app", "run"]

_LARGEST = 1 << 20  # bytes read from stdin: far more than any model takes
_LENGTH = 128
_FACTS = ("signed", "class_specific", "passes", "reference")  # what a method may say about itself

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_UsageError: Any = typer.BadParameter.__base__  # typer gives it no name of its own

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
        if reason.startswith("No such option") and asked.endswith("explain"):
            reason += ", and a text that begins with '-' goes after '--'"
        raise ValueError(f"{reason}; see '{asked} --help'") from None


def _count(value: Any) -> int:
    """A whole number from the command line; the library says which ones it takes."""
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is no whole number") from None


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


@app.command()
def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The text; - reads it from stdin.")],
    pair: Annotated[str | None, typer.Option(metavar="TEXT", help="The second text, for models of pairs.")] = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="One of 'gaflow methods'.")] = DEFAULT,
    target: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Label, class index, or 'A minus B'; default: predicted.")
    ] = None,
    top: Annotated[int, typer.Option(parser=_count, metavar="K", help="How many words to list.")] = 5,
    words: Annotated[bool, typer.Option("--words", help="Shade whole words instead of tokens.")] = False,
    truncation: Annotated[bool, typer.Option("--truncation", help="Cut a text that is too long.")] = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="cpu, cuda, cuda:1, mps ...; default: a GPU if any.")
    ] = None,
    as_json: Json = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all to FILE (safetensors), for gaflow.load.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained page to FILE.")] = None,
) -> None:
    """Show what each token of TEXT contributed to the prediction.

    \b
    Examples:
      gaflow explain "this dog is not cute, but very smart." --model org/name
      gaflow explain - --target "positive minus negative" --json < review.txt
    """
    if top < 0:
        raise ValueError(f"--top must be at least 0, not {top}")
    find_method(method)  # a slip should not cost the loading of a model
    _check_file("--save", save)
    _check_file("--html", html)
    given = _read(text, pair)
    with _waiting("explaining"):
        explainer = Explainer(model, device=device)
        att = explainer(given, method, target, truncation=truncation, keep_flow=save is not None)
    if save is not None:
        _write("--save", save, att.save)
    if html is not None:
        _write("--html", html, lambda path: att.to_html(path, words=words))
    if as_json:
        _print_json(att.to_dict())
    else:
        console = make_console()
        show(console, render(att, console, top=top, words=words))


def _read(text: str, pair: str | None) -> str | tuple[str, str]:
    """The text or pair that is meant, one of which may be `-` for stdin."""
    if text == "-" and pair == "-":
        raise ValueError("TEXT and --pair are both '-', but stdin can only be read once")
    text = _stdin() if text == "-" else text
    if pair is None:
        return text
    return text, _stdin() if pair == "-" else pair


def _stdin() -> str:
    data = sys.stdin.buffer.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise TextError(f"stdin holds more than {_LARGEST:,} bytes; give one text, no longer than the model takes")
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise TextError(f"stdin is not UTF-8 (byte {error.start}: {error.reason}); convert it first") from None


def _check_file(option: str, path: Path | None) -> None:
    if path is not None and path.is_dir():
        raise OSError(f"{option} {str(path)!r} is a folder; give the name of a file")
    if path is not None and not path.parent.is_dir():
        raise OSError(f"{option} {str(path)!r}: there is no folder {str(path.parent)!r}; make it first")


def _write(option: str, path: Path, write: Callable[[Path], object]) -> None:
    try:
        write(path)
    except OSError as error:  # which names a temporary file
        raise OSError(f"{option} {str(path)!r} cannot be written: {error.strerror or error}") from error


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods, and what each takes.

    \b
    Example:
      gaflow methods --json
    """
    rows = [_describe(name, method) for name, method in METHODS.items()]
    if as_json:
        _print_json(rows)
        return
    facts = [key for key in _FACTS if any(row[key] is not None for row in rows)]
    cells = [[row["name"], row["family"], *(_cell(row[key]) for key in facts), _about(row)] for row in rows]
    show(make_console(), table(["name", "family", *(key.replace("_", " ") for key in facts), "about"], cells))


def _describe(name: str, method: Method) -> dict[str, Any]:
    """What a method's settings object says about itself; None where it says nothing."""
    about = INFORMATION.get(getattr(method, "information", ""), method)
    settings = {f.name: getattr(method, f.name) for f in fields(method)} if is_dataclass(method) else {}
    facts = {key: getattr(method, key, None) for key in _FACTS}
    family = type(method).__module__.rpartition(".")[2]
    description = (getdoc(about) or "").split("\n")[0]
    return {"name": name, "family": family, "description": description, "settings": settings, **facts}


def _about(row: dict[str, Any]) -> str:
    settings = ", ".join(f"{name}={value!r}" for name, value in row["settings"].items())
    return visible(f"{row['description']}\n{settings}")


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else one_line(str(value))


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    length: Annotated[
        int | None, typer.Option(parser=_count, metavar="T", help="Tokens of the text; default: 128, if so many fit.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what would be traced of MODEL, and what it would cost. Its weights are not loaded.

    \b
    Example:
      gaflow info org/name --length 256
    """
    with _waiting("reading"):
        found = _inspect(outline(model), model, length)
    if as_json:
        _print_json(found)
        return
    cost = found["estimate"]
    rows = {
        "model": f"{found['class']} ({found['type']}), {found['task']}",
        "parameters": f"{found['parameters']:,}, {_bytes(cost['weights'])} in {found['dtype']}",
        "labels": _listed(found["labels"]),
        "tokenizer": f"{found['tokenizer']}, {found['vocabulary']:,} tokens",
        "longest text": "no limit" if found["limit"] is None else f"{found['limit']} tokens",
        "attention": f"{found['layers']} layers, {found['heads']} heads",
        "a text of": f"{found['length']} tokens: attention {tuple(found['attention'])}",
        "trace": f"{_bytes(cost['trace'])} for attention and gradient",
        "solve": f"{_bytes(cost['solve'])}, {cost['flops']:.1e} flops, about {cost['seconds']:.2g} s on this CPU",
    }
    show(make_console(), table(["", ""], [[key, one_line(value)] for key, value in rows.items()]))


def _inspect(loaded: Loaded, name: str | None, length: int | None) -> dict[str, Any]:
    """All that `info` says, as plain values."""
    config = loaded.model.config
    layers, heads = (getattr(config, key, None) for key in ("num_hidden_layers", "num_attention_heads"))
    if getattr(config, "is_encoder_decoder", False) or not isinstance(layers, int) or not isinstance(heads, int):
        raise UnsupportedModelError(f"{type(loaded.model).__name__} has no single stack of attention layers to trace")
    limit = length_limit(loaded.model, loaded.tokenizer)
    if length is None:
        length = min(_LENGTH, limit or _LENGTH)
    elif length < 1 or (limit is not None and length > limit):
        raise ValueError(f"--length must be 1 to {limit or 'any number'} for this model, not {length}")
    parameters = sum(p.numel() for p in loaded.model.parameters())
    cost = estimate(layers=layers, heads=heads, length=length, parameters=parameters)
    return {
        "model": name,
        "class": type(loaded.model).__name__,
        "type": config.model_type,
        "task": loaded.task,
        "parameters": parameters,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "labels": list(Head.of(config).labels),
        "tokenizer": f"{type(loaded.tokenizer).__name__}, {'fast' if loaded.tokenizer.is_fast else 'slow'}",
        "vocabulary": len(loaded.tokenizer),
        "limit": limit,
        "layers": layers,
        "heads": heads,
        "length": length,
        "attention": [layers, heads, length, length],
        "estimate": {**asdict(cost), "seconds": solve_seconds(layers, length)},
    }


def _listed(labels: Sequence[str], most: int = 20) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} GiB"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, allow_nan=False, default=str))


@contextmanager
def _waiting(doing: str) -> Iterator[None]:
    """Something to look at while a model is loaded, for who watches."""
    if sys.stderr.isatty():
        with make_console(stderr=True).status(doing):
            yield
    else:
        yield
