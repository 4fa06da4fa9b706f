"""The folder of a job: one process at a time, shards that are complete and checked, no temporary files.

The convention this file owns: a shard counts once the manifest lists it, and the manifest is written after the shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gaflow.errors import DataError, JobError
from gaflow.jobs.manifest import MANIFEST, Manifest, Shard
from gaflow.provenance import refuse_other

__all__ = ["TIMINGS", "append_timing", "check_shard", "claim", "remove_temporary_files", "resume"]

TIMINGS = "timings.jsonl"
_LOCK = ".lock"


@contextmanager
def claim(folder: Path, marker: str = MANIFEST) -> Iterator[None]:
    """Keep other processes out of a folder; the operating system ends the claim with the process, however it ends.

    A folder that has files, but not the file `marker`, belongs to somebody else and is refused.
    """
    _refuse_foreign(folder, marker)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        message = f"another process is at work in {str(folder)!r}; wait for it, or give a new folder"
        raise JobError(message) from None
    try:
        remove_temporary_files(folder)
        yield
    finally:
        lock.release()


def _refuse_foreign(folder: Path, marker: str) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise JobError(f"{str(folder)!r} is a file; give a folder for the results")
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if visible and not (folder / marker).exists():
        raise JobError(f"{str(folder)!r} is not empty and holds no job; give a new folder")


def remove_temporary_files(folder: Path) -> None:
    """Remove files of a process that was killed while it wrote."""
    for path in folder.glob(".*.tmp"):
        path.unlink()


def resume(folder: Path, job: dict[str, Any]) -> Manifest:
    """The manifest to continue with: a new one, or that of the same job with the shards that are present and intact."""
    if not (folder / MANIFEST).exists():
        manifest = Manifest(json.loads(json.dumps(job)), {})
        manifest.write(folder)
        return manifest
    manifest = Manifest.read(folder)
    refuse_other(manifest.job, job, folder)
    present = {}
    for file, shard in manifest.shards.items():
        if (folder / file).exists():
            check_shard(folder, shard)
            present[file] = shard
    return Manifest(manifest.job, present, manifest.finished and len(present) == len(manifest.shards))


def check_shard(folder: Path, shard: Shard) -> None:
    """Refuse a shard whose bytes are not those that were written."""
    path = folder / shard.file
    if not path.exists():
        raise DataError(f"{str(path)!r} is missing; run the job again, and this shard alone is computed")
    with open(path, "rb") as file:
        checksum = file_digest(file, "sha256").hexdigest()
    if checksum != shard.sha256:
        raise DataError(
            f"{str(path)!r} is damaged: its checksum is not the manifest's. "
            "Delete it and run the job again: this shard alone is computed, all others are kept"
        )


def append_timing(folder: Path, entry: dict[str, Any]) -> None:
    """Add a line to the timings."""
    with open(folder / TIMINGS, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
