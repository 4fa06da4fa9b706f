"""Stored attributions for evaluation: which of them can be compared, and one part of them at a time.

A job's folder is read one shard after the other. Files from elsewhere, which may hold the methods of a text in
different files, are read completely and cut into parts.

The convention this file owns: methods are compared **on the same texts**. A method without scores for more than half
of the texts is left out. Then a text for which one of the other methods has no scores is left out for all of them, and
counted with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from gaflow.data.readers import need_pyarrow, parquet_files, reading
from gaflow.errors import DataError
from gaflow.inputs.encoding import Text
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.stored import REQUIRED_COLUMNS, Stored, read_attributions, read_file
from gaflow.tasks.targets import ResolvedTarget

_EXAMPLE_TOKENS = 18  # of a text that fits on a line
_IN_WINDOWS = "read in windows, not at once"
# of a job: its scores belong to the tokens of the model
_COLUMNS = ("row", "text", "pair", "method", "scores", "target", "contrast", "gold", "truncated", "error")

Table = Any  # a pyarrow.Table
Key = tuple[int | None, str]  # of a text: its row in the data set, and its hash
LeftOut = dict[str, str]  # method -> reason
_Parts = list[list[Key]]  # the texts of each part
_ByText = dict[Key, dict[str, Stored]]  # text -> method -> attribution


@dataclass
class ScoredTexts:
    """A part of the texts with all their scores."""

    texts: list[Text]  # (n,)
    scores: dict[str, list[Any]]  # method -> (n,) arrays over all tokens, or Stored where tokens may differ
    target: list[ResolvedTarget | None]  # (n,) class that was explained
    gold: list[int | None]  # (n,)
    truncated: bool  # one of the texts was read only in part


@dataclass(frozen=True)
class _Entry:
    """A text under a method."""

    tokens: int
    reason: str | None  # why there are no scores
    gold: int | None


_MISSING = _Entry(0, "no scores", None)
_Entries = dict[Key, dict[str, _Entry]]  # text -> method -> entry


@dataclass(frozen=True)
class _Source:
    """A folder or file of attributions, and how it is read."""

    entries: _Entries
    checksums: dict[Path, str]  # of all files
    cut: Callable[[list[Key]], _Parts]
    load: Callable[[Key], _ByText]  # a text -> the attributions of all texts of its part
    job: Mapping[str, Any] = field(default_factory=dict)  # that computed them; empty if it was none of ours

    @property
    def digest(self) -> str:
        """A hash of all files."""
        listed = "\n".join(f"{file.name} {checksum}" for file, checksum in self.checksums.items())
        return sha256(listed.encode()).hexdigest()


@dataclass(frozen=True)
class StoredScores:
    """The stored attributions that can be compared."""

    source: _Source
    methods: tuple[str, ...]
    left_out: LeftOut
    skipped: dict[str, int]  # reason -> texts
    texts: dict[Key, _Entry]  # under the first method

    @cached_property
    def parts(self) -> _Parts:
        """The texts of each part."""
        return self.source.cut(list(self.texts))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of texts of each part."""
        return tuple(map(len, self.parts))

    @property
    def has_gold(self) -> bool:
        """Whether every text has a label."""
        return all(entry.gold is not None for entry in self.texts.values())

    def read(self, number: int) -> ScoredTexts:
        """The texts of a part."""
        keys = self.parts[number]
        stored = self.source.load(keys[0])
        texts = ScoredTexts([], {method: [] for method in self.methods}, [], [], truncated=False)
        for key in keys:
            by_method = stored[key]
            first = by_method[self.methods[0]]
            texts.texts.append(first.input)
            texts.target.append(first.target)
            texts.gold.append(first.gold)
            for method in self.methods:
                item = by_method[method]
                # scores of our own jobs belong to the tokens of the model, and need no offsets
                texts.scores[method].append(item.scores if item.offsets is None else item)
                texts.truncated = texts.truncated or item.truncated
        return texts

    def example(self) -> Table:
        """The rows of the text whose length is nearest to that of a line."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        key = min(self.texts, key=lambda key: abs(self.texts[key].tokens - _EXAMPLE_TOKENS))
        row, _ = key
        text = self.source.load(key)[key][self.methods[0]].text
        conditions: list[tuple[str, str, Any]] = [("method", "in", list(self.methods)), ("text", "==", text)]
        if row is not None:  # files from elsewhere may have no row numbers
            conditions.append(("row", "==", row))
        tables = []
        for file in self.source.checksums:
            with reading(file):
                table = pq.read_table(file, filters=conditions)
            if table.num_rows:
                tables.append(table)
        return pa.concat_tables(tables, promote_options="default")


def holds_attributions(path: Path) -> bool:
    """Whether a file or folder holds attributions rather than texts."""
    if (path / MANIFEST).is_file():
        return True
    need_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.read_schema(parquet_files(path)[0]).names
    except (DataError, pa.ArrowException, OSError):  # not Parquet; the reader of texts says what is wrong
        return False
    return set(REQUIRED_COLUMNS).issubset(columns)


def open_stored_scores(path: Path, methods: Sequence[str] | None = None, part_size: int = 250) -> StoredScores:
    """The attributions stored at `path`, of all methods or those named.

    The parts of a job are its shards; those of files from elsewhere have `part_size` texts.
    """
    source = _open_job(path) if (path / MANIFEST).is_file() else _open_files(path, part_size)
    texts = source.entries
    names = _requested_methods(texts, methods, path)
    left_out = _methods_without_scores(texts, names)
    compared = tuple(name for name in names if name not in left_out)
    judged = compared or names  # if all are left out, their reasons tell why
    selected: dict[Key, _Entry] = {}
    skipped: Counter[str] = Counter()
    for key, entries in texts.items():
        reasons = {name: entries.get(name, _MISSING).reason for name in judged}
        if any(reasons.values()):
            skipped[_summary(reasons)] += 1
        else:
            selected[key] = entries[judged[0]]
    if not compared or not selected:
        causes = [f"{count} {reason}" for reason, count in skipped.most_common(3)] or ["it holds no rows"]
        raise DataError(f"no text in {str(path)!r} has scores by every method: {'; '.join(causes)}")
    return StoredScores(
        source=source,
        methods=compared,
        left_out=left_out,
        skipped=dict(sorted(skipped.items())),
        texts=selected,
    )


def _open_job(path: Path) -> _Source:
    manifest = Manifest.read(path)
    if not manifest.finished:
        total = manifest.job.get("texts", "?")
        raise DataError(
            f"the job in {str(path)!r} is not finished ({manifest.texts} of {total} texts); run it again first"
        )
    if manifest.job.get("windows"):
        raise DataError(
            f"the texts in {str(path)!r} were read in windows, but faithfulness is measured on what a model reads at "
            "once; attribute them again with truncation"
        )
    entries: _Entries = {}
    checksums = {}
    file_of: dict[Key, Path] = {}
    for shard in manifest.in_order():
        check_shard(path, shard)
        file = path / shard.file
        checksums[file] = shard.sha256
        for key, by_method in _read_shard(file).items():
            entries[key] = {method: _entry(item) for method, item in by_method.items()}
            file_of[key] = file

    def cut(keys: list[Key]) -> _Parts:
        return [list(part) for _, part in groupby(keys, key=file_of.__getitem__)]

    return _Source(entries, checksums, cut, load=lambda key: _read_shard(file_of[key]), job=manifest.job)


def _read_shard(file: Path) -> _ByText:
    """The attributions of a shard, without tokens and offsets."""
    texts: _ByText = {}
    for item in read_file(file, columns=_COLUMNS):
        texts.setdefault((item.row, item.text_hash), {})[item.method] = item
    return texts


def _open_files(path: Path, part_size: int) -> _Source:
    stored: _ByText = {}
    entries: _Entries = {}
    for item in read_attributions(path):
        key = (item.row, item.text_hash)
        by_method = stored.setdefault(key, {})
        if item.method not in by_method:
            by_method[item.method] = item
            entries.setdefault(key, {})[item.method] = _entry(item)
        elif item.row is not None:
            raise DataError(f"{str(path)!r} holds row {item.row} twice for method {item.method!r}; keep one of them")
    checksums = {file: sha256(file.read_bytes()).hexdigest() for file in parquet_files(path)}

    def cut(keys: list[Key]) -> _Parts:
        return [keys[start : start + part_size] for start in range(0, len(keys), part_size)]

    return _Source(entries, checksums, cut, lambda key: stored)


def _entry(item: Stored) -> _Entry:
    if "windows" in item.diagnostics:
        return _Entry(0, _IN_WINDOWS, item.gold)
    if item.scores is not None:
        return _Entry(len(item.scores), None, item.gold)
    without_advice = str(item.error).partition(";")[0]
    cause = re.sub(r"^\w*Error: ", "", without_advice)
    reason = re.sub(r"\d[\d,.]*", "N", cause).strip()  # the same words for the same cause
    return _Entry(0, reason, item.gold)


def _requested_methods(texts: _Entries, requested: Sequence[str] | None, path: Path) -> tuple[str, ...]:
    """The methods to compare, as they are stored; a name may differ in case if that leaves no doubt."""
    stored = dict.fromkeys(chain.from_iterable(texts.values()))
    names = []
    missing = []
    for name in stored if requested is None else requested:
        matches = [name]
        if name not in stored:
            matches = [other for other in stored if other.casefold() == name.casefold()]
        if len(matches) == 1:
            names += matches
        else:
            missing.append(name)
    if missing:
        raise DataError(f"no attributions by {', '.join(missing)} in {str(path)!r}; it has {', '.join(stored)}")
    return tuple(names)


def _methods_without_scores(texts: _Entries, names: Sequence[str]) -> LeftOut:
    """Methods without scores for more than half of the texts, with the most frequent reason."""
    left_out = {}
    for name in names:
        reasons = Counter(entries.get(name, _MISSING).reason for entries in texts.values())
        del reasons[None]  # texts with scores
        failures = reasons.total()
        if 2 * failures > len(texts):
            ((most_frequent, _),) = reasons.most_common(1)
            left_out[name] = f"no scores for {failures} of {len(texts)} texts: {most_frequent}"
    return left_out


def _summary(reasons: Mapping[str, str | None]) -> str:
    """One reason if it is that of all methods, or else every method's own."""
    different = set(reasons.values())
    if len(different) == 1:
        return str(different.pop())
    return ", ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)
