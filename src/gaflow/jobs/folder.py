"""The folder of a job: one process at a time, shards that are complete and checked, no temporary files.

The convention this file owns: a shard counts once the manifest lists it, and the manifest is written after the shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path

from filelock import FileLock, Timeout

from gaflow.errors import DataError, JobError
from gaflow.explainer.provenance import Description
from gaflow.files import writing
from gaflow.jobs.identity import compare
from gaflow.jobs.manifest import MANIFEST, Manifest, Shard

TIMINGS = "timings.jsonl"
_LOCK = ".lock"


@contextmanager
def claim(folder: Path, marker: str = MANIFEST) -> Iterator[None]:
    """Keep other processes out of a folder; the operating system ends the claim with the process, however it ends.

    A folder that has files, but not the file `marker`, belongs to somebody else and is refused.
    """
    _refuse_foreign(folder, marker)
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _lock(folder / _LOCK):
            remove_temporary_files(folder)
            yield
    finally:
        with suppress(OSError):  # a folder that holds something stays
            for path in absent:
                path.rmdir()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock file. It stays, as two processes could otherwise hold different files; a refused run leaves none."""
    existed = path.exists()
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        message = f"another process is at work in {str(path.parent)!r}; wait for it, or give a new folder"
        raise JobError(message) from None
    try:
        yield
    except BaseException:
        if not existed:
            path.unlink(missing_ok=True)
        raise
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


def resume(folder: Path, job: Description) -> Manifest:
    """The manifest to continue with: a new one, or that of the same job with the shards that are present and intact."""
    if not (folder / MANIFEST).exists():
        manifest = Manifest(json.loads(json.dumps(job)), {})
        manifest.write(folder)
        return manifest
    manifest = Manifest.read(folder)
    comparison = compare(manifest.job, job)
    comparison.refuse(folder)
    present = {}
    for file, shard in manifest.shards.items():
        if (folder / file).exists():
            check_shard(folder, shard)
            present[file] = shard
    finished = manifest.finished and len(present) == len(manifest.shards)
    if not finished:
        comparison.warn(folder)
    return replace(manifest, shards=present, finished=finished)


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


def append_timing(folder: Path, entry: Description) -> None:
    """Add a line to the timings."""
    path = folder / TIMINGS
    with writing(path), open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
