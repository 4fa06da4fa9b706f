"""The folder of a job: one process at a time, shards that are whole and checked, nothing left over.

The convention this file owns: a shard counts once the manifest lists it, and the manifest is written after the shard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from gaflow.errors import DataError, JobError
from gaflow.files import write_atomically
from gaflow.jobs.manifest import MANIFEST, Manifest, Shard, shard_name
from gaflow.provenance import refuse_other

__all__ = ["TIMES", "check_shard", "claim", "note_time", "resume", "write_shard"]

TIMES = "timings.jsonl"
_LOCK = ".lock"


@contextmanager
def claim(folder: Path, mark: str = MANIFEST) -> Iterator[None]:
    """Make the folder this process's own; the claim ends with the process, however it ends.

    A folder that holds anything, but not the file `mark`, is somebody else's.
    """
    if folder.exists() and not folder.is_dir():
        raise JobError(f"{str(folder)!r} is a file; give a folder for the results")
    if folder.is_dir() and not (folder / mark).exists() and any(p.name[0] != "." for p in folder.iterdir()):
        raise JobError(f"{str(folder)!r} is not empty and holds no job; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "ab") as held:
        if not _lock(held):
            raise JobError(f"another process is at work in {str(folder)!r}; wait for it, or give a new folder")
        for left in folder.glob(".*.tmp"):  # by a process that was killed while it wrote
            left.unlink()
        yield


def _lock(held: Any) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(held.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def resume(folder: Path, job: dict[str, Any]) -> Manifest:
    """The manifest to go on with: a new one, or that of this very job with the shards that are there and whole."""
    if not (folder / MANIFEST).exists():
        fresh = Manifest(json.loads(json.dumps(job)), {})
        fresh.write(folder)
        return fresh
    found = Manifest.read(folder)
    refuse_other(found.job, job, folder)
    there = {k: s for k, s in found.shards.items() if (folder / s.file).exists()}
    for shard in there.values():
        check_shard(folder, shard)
    return Manifest(found.job, there, found.finished and len(there) == len(found.shards))


def check_shard(folder: Path, shard: Shard) -> None:
    """Refuse a shard whose bytes are not those that were written."""
    path = folder / shard.file
    if not path.exists():
        raise DataError(f"{str(path)!r} is missing; run the job again, and this shard alone is computed")
    digest = sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != shard.sha256:
        raise DataError(
            f"{str(path)!r} is damaged: its checksum is not the manifest's. "
            "Delete it and run the job again: this shard alone is computed, all others are kept"
        )


def write_shard(folder: Path, number: int, data: bytes) -> str:
    """Write a shard as a whole and give its checksum."""
    write_atomically(folder / shard_name(number), data)
    return sha256(data).hexdigest()


def note_time(folder: Path, entry: dict[str, Any]) -> None:
    """Add a line to the timings."""
    with open(folder / TIMES, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
