"""The manifest of a job: everything that decides its numbers, and the shards that are finished, in JSON.

The convention this file owns: the manifest is the same for every run of the same job.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gaflow.errors import DataError
from gaflow.files import write_atomically

__all__ = ["MANIFEST", "Manifest", "Shard", "shard_name"]

MANIFEST = "manifest.json"
_FORMAT = 1


def shard_name(number: int) -> str:
    """The file name of a shard."""
    return f"part-{number:05d}.parquet"


@dataclass(frozen=True)
class Shard:
    """A finished file."""

    file: str
    sha256: str
    texts: int
    rows: int
    errors: int  # rows without scores
    first: int  # row number of the first text
    last: int


@dataclass(frozen=True)
class Manifest:
    """A job, and its finished shards."""

    job: dict[str, Any]
    shards: dict[str, Shard]  # by file name
    finished: bool = False

    @property
    def texts(self) -> int:
        """Texts in finished shards."""
        return sum(shard.texts for shard in self.shards.values())

    @property
    def errors(self) -> int:
        """Rows without scores in finished shards."""
        return sum(shard.errors for shard in self.shards.values())

    def write(self, folder: Path) -> None:
        """Replace the manifest of a folder atomically."""
        shards = self.in_order()
        value = {
            "format": _FORMAT,
            "job": self.job,
            "finished": self.finished,
            "texts": self.texts,
            "rows": sum(shard.rows for shard in shards),
            "errors": self.errors,
            "shards": [asdict(shard) for shard in shards],
        }
        write_atomically(folder / MANIFEST, (json.dumps(value, indent=1) + "\n").encode())

    def in_order(self) -> list[Shard]:
        """The finished shards in the order of the data set."""
        return sorted(self.shards.values(), key=lambda shard: shard.first)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder."""
        path = folder / MANIFEST
        try:
            return cls._parse(json.loads(path.read_text(encoding="utf-8")), path)
        except DataError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({error}); restore it, or start again in a new folder") from error

    @classmethod
    def _parse(cls, value: Any, path: Path) -> Manifest:
        if value["format"] != _FORMAT:
            raise DataError(f"{path} has format {value['format']!r}, but this version reads {_FORMAT}; update gaflow")
        shards = {}
        for record in value["shards"]:
            shard = Shard(**record)
            if Path(shard.file).name != shard.file:
                raise ValueError("a shard lies outside the folder")
            shards[shard.file] = shard
        return cls(value["job"], shards, bool(value["finished"]))
