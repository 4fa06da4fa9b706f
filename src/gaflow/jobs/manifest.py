"""The manifest of a job: everything that decides its numbers, and the shards that are finished, in JSON.

The convention this file owns: the manifest is the same for every run of the same job.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from gaflow.explainer.provenance import Description, provenance_of
from gaflow.files import write_atomically
from gaflow.jobs.identity import ENVIRONMENT
from gaflow.schemas.check import SCHEMAS, read_json

MANIFEST = "manifest.json"
_FORMAT = SCHEMAS["formats"]["manifest"]


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

    job: Description
    shards: dict[str, Shard]  # by file name
    finished: bool = False
    environments: tuple[Description, ...] = ()  # in which the run continued, if they are not that of the job

    def add(self, shard: Shard, environment: Description) -> Manifest:
        """The manifest with one more shard, which was computed in an environment."""
        environments = self.environments
        first = {name: self.job.get(name) for name in ENVIRONMENT}
        if environment not in (first, *environments):
            environments = (*environments, environment)
        return replace(self, shards={**self.shards, shard.file: shard}, environments=environments)

    @property
    def texts(self) -> int:
        """Texts in finished shards."""
        return sum(shard.texts for shard in self.shards.values())

    @property
    def errors(self) -> int:
        """Rows without scores in finished shards."""
        return sum(shard.errors for shard in self.shards.values())

    def provenance(self, method: str) -> Description:
        """The provenance of the attributions by one of the job's methods."""
        described: Description = {"name": method}
        for candidate in self.job["methods"]:
            if candidate["name"] == method:
                described = candidate
        return provenance_of(self.job["model"], described, self.job.get("versions"))

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
        if self.environments:
            value["environments"] = self.environments
        write_atomically(folder / MANIFEST, (json.dumps(value, indent=1) + "\n").encode())

    def in_order(self) -> list[Shard]:
        """The finished shards in the order of the data set."""
        return sorted(self.shards.values(), key=lambda shard: shard.first)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a folder."""
        path = folder / MANIFEST
        value = read_json(path, "manifest", "the manifest of a job; restore it, or start again in a new folder")
        shards = {}
        for entry in value["shards"]:
            shards[entry["file"]] = Shard(**{field.name: entry[field.name] for field in fields(Shard)})
        environments = tuple(value.get("environments", ()))
        return cls(value["job"], shards, value["finished"], environments)
