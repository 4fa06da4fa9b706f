"""What goes in and out: texts from stdin, files, JSON, and something to look at while waiting."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from gaflow.errors import TextError
from gaflow.files import write_atomically
from gaflow.methods import DEFAULT, find_method
from gaflow.progress import Progress
from gaflow.terminal.console import make_console

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "check_file",
    "check_flow",
    "check_folder",
    "check_picture",
    "check_saved",
    "print_json",
    "read_text",
    "waiting",
    "write_file",
    "write_picture",
]

PICTURES = (".svg", ".pdf", ".png")
SAVED = (".safetensors", ".json")

_LARGEST = 1 << 20  # bytes read from stdin: far more than any model takes


def read_text(text: str, pair: str | None) -> str | tuple[str, str]:
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


def check_file(option: str, path: Path | None) -> None:
    """Refuse a path that cannot be written, before the work is done."""
    if path is None:
        return
    if path.is_dir():
        raise OSError(f"{option} {str(path)!r} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise OSError(f"{option} {str(path)!r}: there is no folder {str(path.parent)!r}; make it first")
    _try(option, path, path.parent)


def check_folder(option: str, path: Path) -> None:
    """Refuse a folder that cannot be made or written to, before the work is done."""
    there = next((place for place in (path, *path.absolute().parents) if place.exists()), path)
    if not there.is_dir():
        raise OSError(f"{option} {str(path)!r}: {str(there)!r} is a file; give a folder")
    _try(option, path, there)


def _try(option: str, path: Path, folder: Path) -> None:
    """Only by making something does it show that it can be made."""
    try:
        with TemporaryDirectory(dir=folder, prefix=".gaflow-"):
            pass
    except OSError as error:
        why = f"nothing can be made in {str(folder)!r} ({error.strerror or error})"
        raise OSError(f"{option} {str(path)!r} cannot be written: {why}") from error


def write_file(option: str, path: Path, write: Callable[[Path], object]) -> None:
    """Write, or say which option's file it was that could not be."""
    try:
        write(path)
    except OSError as error:  # which names a temporary file
        raise OSError(f"{option} {str(path)!r} cannot be written: {error.strerror or error}") from error


def check_saved(option: str, path: Path | None) -> None:
    """Refuse a name that says nothing of what is written there, or something else."""
    check_file(option, path)
    if path is not None and path.suffix and path.suffix.lower() not in SAVED:
        others = "pages and pictures are written by --html and --svg"
        raise ValueError(f"{option} {str(path)!r} must end in {' or '.join(SAVED)}; {others}")


def check_picture(option: str, path: Path | None) -> None:
    """Refuse a picture that cannot be drawn or written, before the work is done."""
    check_file(option, path)
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"{option} {str(path)!r} must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    import gaflow.plots  # noqa: F401  # which says what to install


def check_flow(option: str, path: Path | None, methods: Sequence[str]) -> None:
    """Refuse a page about flows where there will be none, before the work is done."""
    check_file(option, path)
    families = {getattr(getattr(find_method(name), "info", None), "family", "flow") for name in methods}
    if path is not None and "flow" not in families:
        raise ValueError(f"{option} needs a method with a flow, such as {DEFAULT}, but {', '.join(methods)} has none")


def write_picture(option: str, path: Path, figure: Figure) -> None:
    """Write a figure as what the name of its file says, whole or not at all."""
    held = io.BytesIO()
    figure.savefig(held, format=path.suffix[1:].lower())
    write_file(option, path, lambda place: write_atomically(place, held.getvalue()))


def print_json(value: Any) -> None:
    """One document in ASCII."""
    typer.echo(json.dumps(value, allow_nan=False, default=str))


@contextmanager
def waiting(doing: str) -> Iterator[Progress]:
    """Something to look at while a model is loaded or works, for who watches; what is given can be told how far."""
    if sys.stderr.isatty():
        with make_console(stderr=True).status(doing) as status:
            yield lambda done, total: status.update(f"{doing}, {done / total:.0%}")
    else:
        yield False
