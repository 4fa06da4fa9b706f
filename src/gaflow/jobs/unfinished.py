"""What is done of a shard when its run is stopped: a hidden file, from which the next run goes on.

    DIR/.part-00003.unfinished   a SHA-256, then the rows as in a shard

The convention this file owns: the checksum is that of the job, its environment and the rows. So only the same run takes
up these rows, and the shard gets the bytes that it would have had; all others explain its texts again. A process that
is killed writes no such file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from gaflow.data.readers import need_pyarrow
from gaflow.explainer.provenance import Description
from gaflow.files import write_atomically
from gaflow.jobs.engine import ShardRows
from gaflow.jobs.manifest import Manifest, shard_name
from gaflow.jobs.schema import Record, shard_bytes

_SUFFIX = ".unfinished"
_DIGEST_BYTES = 32

RecordsByRow = dict[int, list[Record]]  # number of the row -> its records, one for each method


class UnfinishedShards:
    """The shards that a run has begun and not finished, and what earlier runs have stored of such shards."""

    def __init__(self, folder: Path, job: Description, manifest: Manifest):
        self._folder = folder
        self._identity = json.dumps(job, sort_keys=True).encode()
        self._underway: dict[int, ShardRows] = {}
        self._stored: dict[str, RecordsByRow] = {}  # by file; what a shard underway has taken up is empty
        self._texts: dict[str, int] = {}  # in each file
        for path in folder.glob(f".*{_SUFFIX}"):
            if path.name[1:].removesuffix(_SUFFIX) + ".parquet" in manifest.shards:
                path.unlink()
            else:
                self._stored[path.name] = self._read(path)
                self._texts[path.name] = len(self._stored[path.name])

    @property
    def texts(self) -> int:
        """Texts that are stored."""
        return sum(self._texts.values())

    def resume(self, shards: Iterable[ShardRows]) -> Iterator[ShardRows]:
        """The shards, with what is stored of them."""
        for shard in shards:
            stored = self._stored.pop(self._path(shard.number).name, {})
            for position, row in enumerate(shard.rows):
                if row.number in stored:
                    shard.done[position] = stored[row.number]
            self._underway[shard.number] = shard
            yield shard

    def finish(self, number: int) -> None:
        """Forget a shard that is written."""
        del self._underway[number]
        path = self._path(number)
        path.unlink(missing_ok=True)
        self._texts.pop(path.name, None)

    def store(self) -> None:
        """Write what is done of the shards underway."""
        for number, shard in self._underway.items():
            path = self._path(number)
            if len(shard.done) <= self._texts.get(path.name, 0):
                continue
            rows: list[Record] = []
            for _, records in sorted(shard.done.items()):
                rows += records
            data = shard_bytes(rows)
            write_atomically(path, self._digest(path, data) + data)
            self._texts[path.name] = len(shard.done)

    def _path(self, number: int) -> Path:
        return self._folder / f".{Path(shard_name(number)).stem}{_SUFFIX}"

    def _digest(self, path: Path, data: bytes) -> bytes:
        digest = sha256(path.name.encode())
        digest.update(self._identity)
        digest.update(data)
        return digest.digest()

    def _read(self, path: Path) -> RecordsByRow:
        """The records in a file; none if it is damaged or belongs to another run."""
        content = path.read_bytes()
        data = content[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] != self._digest(path, data):
            return {}
        need_pyarrow()
        import pyarrow.parquet as pq

        by_row: RecordsByRow = {}
        for record in pq.read_table(io.BytesIO(data)).to_pylist():
            by_row.setdefault(record["row"], []).append(record)
        return by_row
