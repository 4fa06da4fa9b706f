"""What is done of a shard when its run is stopped: a hidden file, from which the next run goes on.

    DIR/.part-00003.unfinished   a SHA-256, then the rows as in a shard

The convention this file owns: the checksum is that of the job, its environment and the rows. So only the same run takes
up these rows, and the shard gets the bytes that it would have had; all others explain its texts again. A process that
is killed writes no such file.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from gaflow.data.readers import need_pyarrow
from gaflow.data.rows import Row
from gaflow.explainer.provenance import Description
from gaflow.files import write_atomically
from gaflow.jobs.engine import ShardRows
from gaflow.jobs.manifest import Manifest, shard_name
from gaflow.jobs.schema import Record, conform, shard_bytes, text_hash

_SUFFIX = ".unfinished"
_NAME = re.compile(rf"\.part-\d{{5,}}{re.escape(_SUFFIX)}")
_DIGEST_BYTES = 32

RecordsByRow = dict[int, list[Record]]  # number of the row -> its records, one for each method


class UnfinishedShards:
    """The shards that a run has begun and not finished, and what earlier runs have stored of such shards."""

    def __init__(self, folder: Path, job: Description, manifest: Manifest, methods: Sequence[str]):
        self._folder = folder
        self._methods = list(methods)
        self._identity = json.dumps(job, sort_keys=True).encode()
        self._underway: dict[int, ShardRows] = {}
        self._stored: dict[str, RecordsByRow] = {}  # by file; what a shard underway has taken up is empty
        self._texts: dict[str, int] = {}  # in each file
        self.rejected = 0  # texts in files that turned out to be of another run
        for path in folder.glob(f".*{_SUFFIX}"):
            if not _NAME.fullmatch(path.name) or not path.is_file():
                continue
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
            name = self._path(shard.number).name
            stored = self._stored.pop(name, {})
            for position, row in enumerate(shard.rows):
                if self._are_of(row, stored.get(row.number, [])):
                    shard.done[position] = stored[row.number]
            if name in self._texts:
                self.rejected += self._texts[name] - len(shard.done)
                self._texts[name] = len(shard.done)
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

    def _are_of(self, row: Row, records: Sequence[Record]) -> bool:
        """Whether these are the records of a text, one for each method of the run."""
        if [record.get("method") for record in records] != self._methods:
            return False
        text = (row.text, row.text_pair, text_hash(row.text, row.text_pair))
        return all((record.get("text"), record.get("pair"), record.get("text_hash")) == text for record in records)

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
        import pyarrow as pa
        import pyarrow.parquet as pq

        by_row: RecordsByRow = {}
        try:
            for record in conform(pq.read_table(io.BytesIO(data))).to_pylist():
                by_row.setdefault(record["row"], []).append(record)
        except (pa.ArrowException, KeyError, ValueError, OSError):  # a stranger can compute the checksum
            return {}
        return by_row
