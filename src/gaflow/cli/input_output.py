"""What commands read and write: texts from stdin, files, JSON."""

from __future__ import annotations

import io
import json
import mimetypes
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from gaflow.errors import Argument, ArgumentError, DiskFullError, TextError
from gaflow.files import write_atomically, writing
from gaflow.methods import find_method
from gaflow.view.text import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURE_SUFFIXES = (".svg", ".pdf", ".png")
SAVED_SUFFIXES = (".safetensors", ".json", "")  # without a suffix: safetensors

_MAX_STDIN_BYTES = 1 << 20  # far more than any model takes


def read_text(text: str, pair: str | None) -> str | tuple[str, str]:
    """The text or the pair of texts; one of them may be `-` for stdin."""
    if text == "-" and pair == "-":
        raise ArgumentError("TEXT and ", Argument("pair"), " are both '-', but stdin can only be read once")
    if text == "-":
        text = _read_stdin()
    elif pair is None and _is_file(text):
        sys.stderr.write(
            f"gaflow: explaining the words {one_line(text)!r}, which are also the name of a file; "
            "to explain its texts: gaflow attribute FILE -o DIR, or, for one text: gaflow explain - < FILE\n"
        )
    if pair is None:
        return text
    if pair == "-":
        pair = _read_stdin()
    return text, pair


def _is_file(text: str) -> bool:
    """Whether this is the name of a file that may hold texts: pictures and sounds are given by their names."""
    kind = mimetypes.guess_type(text)[0] or ""
    if kind.startswith(("image/", "audio/")):
        return False
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with characters that names cannot have
        return False


def _read_stdin() -> str:
    data = sys.stdin.buffer.read(_MAX_STDIN_BYTES + 1)
    if len(data) > _MAX_STDIN_BYTES:
        raise TextError(
            f"stdin holds more than {_MAX_STDIN_BYTES:,} bytes; give one text, no longer than the model takes"
        )
    try:
        return data.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise TextError(f"stdin is not UTF-8 (byte {error.start}: {error.reason}); convert it first") from None


def check_file(option: str, path: Path | None, suffixes: Sequence[str] = ()) -> None:
    """Refuse a path that cannot be written or does not end in one of `suffixes`, before the work is done."""
    if path is None:
        return
    if path.is_dir():
        raise OSError(f"{option} {str(path)!r} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise OSError(f"{option} {str(path)!r}: there is no folder {str(path.parent)!r}; make it first")
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(path)!r} must end in {' or '.join(filter(None, suffixes))}")
    _check_writable(option, path, path.parent)


def check_folder(option: str, path: Path) -> None:
    """Refuse a folder that cannot be made or written to, before the work is done."""
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise OSError(f"{option} {str(path)!r}: {str(existing)!r} is a file; give a folder")
    _check_writable(option, path, existing)


def _check_writable(option: str, path: Path, folder: Path) -> None:
    """Make something in the folder: nothing else shows that it can be done."""
    try:
        with writing(path), TemporaryDirectory(dir=folder, prefix=".gaflow-"):
            pass
    except DiskFullError:
        raise
    except OSError as error:
        reason = f"nothing can be made in {str(folder)!r} ({error.strerror or error})"
        raise OSError(f"{option} {str(path)!r} cannot be written: {reason}") from error


def write_file(option: str, path: Path | None, write: Callable[[Path], object]) -> None:
    """Write a file, if there is a path; an error names the option that it was written for."""
    if path is None:
        return
    try:
        write(path)
    except DiskFullError:
        raise
    except OSError as error:  # which names a temporary file
        raise OSError(f"{option} {str(path)!r} cannot be written: {error.strerror or error}") from error


def check_picture(option: str, path: Path | None) -> None:
    """Refuse a picture that cannot be drawn or written, before the work is done."""
    check_file(option, path, _PICTURE_SUFFIXES)
    if path is not None:
        import gaflow.plots  # noqa: F401  # raises an error that says what to install


def check_flow_page(option: str, path: Path | None, methods: Sequence[str]) -> None:
    """Refuse a page about flows when none of the methods has one, before the work is done."""
    check_file(option, path)
    if path is None:
        return
    for name in methods:
        method_info = getattr(find_method(name), "info", None)
        if getattr(method_info, "family", "flow") == "flow":
            return
    raise ValueError(f"{option} needs a method with a flow, such as agf, but {', '.join(methods)} has none")


def write_picture(option: str, path: Path | None, draw: Callable[[], Figure]) -> None:
    """Write a figure, if there is a path, in the format that the name of its file says, whole or not at all."""

    def write(path: Path) -> None:
        buffer = io.BytesIO()
        draw().savefig(buffer, format=path.suffix[1:].lower())
        write_atomically(path, buffer.getvalue())

    write_file(option, path, write)


def print_json(value: object) -> None:
    """Print one JSON document in ASCII."""
    typer.echo(json.dumps(value, allow_nan=False, default=str))


def print_written(*paths: Path | None) -> None:
    """Say which files were written besides what is printed, if any."""
    names = [str(path) for path in paths if path is not None]
    if names:
        typer.echo(one_line(f"written to {', '.join(names)}"))


def count_reasons(counts: Mapping[str, int]) -> str:
    """How often each reason was the one, in words."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
