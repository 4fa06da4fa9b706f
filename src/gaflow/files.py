"""Files that are whole or not there at all, and disks that are full."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaflow.errors import DiskFullError

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}  # of the disk, a limit, a user's share


def is_disk_full(error: OSError) -> bool:
    """Whether there was no room left to write."""
    return error.errno in _FULL


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file for which the disk has no room."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        message = f"the disk is full: {str(path)!r} cannot be written; make room, and run this again"
        raise DiskFullError(message) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file by way of a temporary one next to it: whatever happens, `path` is whole or not there."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} into; create it first")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file to write")
    with writing(path):
        _replace(path, data)


def _replace(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
