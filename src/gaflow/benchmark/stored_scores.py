"""Stored attributions for evaluation: which of them can be compared, and one part of them at a time.

A job's folder is read by columns, one shard after the other, and scores never become Python objects. Files from
elsewhere, which may hold the methods of a text in different files, are read completely and cut into parts.

The convention this file owns: methods are compared **on the same texts**. A method without scores for more than half
of the texts is left out. Then a text for which one of the other methods has no scores is left out for all of them, and
counted with the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from gaflow.data.readers import check_columns, need_pyarrow, parquet_files, reading
from gaflow.errors import DataError
from gaflow.inputs.encoding import Text
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.stored import REQUIRED_COLUMNS, Stored, read_attributions
from gaflow.tasks.targets import ResolvedTarget

__all__ = ["ScoredTexts", "StoredScores", "holds_attributions", "open_stored_scores"]

_EXAMPLE_TOKENS = 18  # of a text that fits on a line
_IN_WINDOWS = "read in windows, not at once"
_SURVEY_COLUMNS = ["row", "text_hash", "method", "gold", "error", "segments"]
_COLUMNS = ["row", "text", "pair", "text_hash", "method", "scores", "target", "contrast", "gold", "truncated"]

Table = Any  # a pyarrow.Table
Key = tuple[int | None, str]  # of a text: its row in the data set, and its hash
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
class StoredScores:
    """The stored attributions that can be compared."""

    methods: tuple[str, ...]
    left_out: Mapping[str, str]  # method -> reason
    skipped: Mapping[str, int]  # reason -> texts
    sizes: tuple[int, ...]  # texts of each part
    gold: bool  # every text has a label
    digest: str  # of all files
    job: Mapping[str, Any] | None  # that computed them, if it was one of ours
    read: Callable[[int], ScoredTexts]  # number of a part -> its texts
    example: Table  # the rows of one text that fits on a line


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
    if (path / MANIFEST).is_file():
        return _open_job(path, methods)
    return _open_files(path, methods, part_size)


def _open_job(path: Path, methods: Sequence[str] | None) -> StoredScores:
    manifest = _finished_manifest(path)
    shards = manifest.in_order()
    texts: _Entries = {}
    file_of: dict[Key, Path] = {}
    for shard in shards:
        check_shard(path, shard)
        file = path / shard.file
        survey = _survey(file)
        texts |= survey
        file_of |= dict.fromkeys(survey, file)
    comparable = _select(texts, methods, path)
    parts = [list(keys) for _, keys in groupby(comparable.texts, key=file_of.__getitem__)]
    example = comparable.example()

    def read(number: int) -> ScoredTexts:
        keys = parts[number]
        return _scored_texts(_read_shard(file_of[keys[0]]), keys, comparable.methods)

    return comparable.stored_scores(
        parts=parts,
        checksums={shard.file: shard.sha256 for shard in shards},
        job=manifest.job,
        read=read,
        example=_read_rows([file_of[example]], example, comparable.methods),
    )


def _finished_manifest(path: Path) -> Manifest:
    manifest = Manifest.read(path)
    if not manifest.finished:
        total = manifest.job.get("texts", "?")
        raise DataError(
            f"the job in {str(path)!r} is not finished ({manifest.texts} of {total} texts); run it again first"
        )
    if manifest.job.get("windows"):
        raise DataError(
            f"the texts in {str(path)!r} were read in windows, but faithfulness is measured on what a model reads at "
            "once; attribute them anew with truncation"
        )
    return manifest


def _open_files(path: Path, methods: Sequence[str] | None, part_size: int) -> StoredScores:
    stored: _ByText = {}
    texts: _Entries = {}
    for item in read_attributions(path):
        key = (item.row, item.text_hash)
        by_method = stored.setdefault(key, {})
        if item.method not in by_method:
            by_method[item.method] = item
            texts.setdefault(key, {})[item.method] = _entry(item)
        elif item.row is not None:
            raise DataError(f"{str(path)!r} holds row {item.row} twice for method {item.method!r}; keep one of them")
    comparable = _select(texts, methods, path)
    keys = list(comparable.texts)
    parts = [keys[start : start + part_size] for start in range(0, len(keys), part_size)]
    example = comparable.example()
    example_text = stored[example][comparable.methods[0]].text
    files = parquet_files(path)

    def read(number: int) -> ScoredTexts:
        return _scored_texts(stored, parts[number], comparable.methods)

    return comparable.stored_scores(
        parts=parts,
        checksums={file.name: sha256(file.read_bytes()).hexdigest() for file in files},
        job=None,
        read=read,
        example=_read_rows(files, example, comparable.methods, example_text),
    )


@dataclass(frozen=True)
class _Entry:
    """A text under a method."""

    tokens: int
    reason: str | None  # why there are no scores
    gold: int | None


_MISSING = _Entry(0, "no scores", None)
_Entries = dict[Key, dict[str, _Entry]]  # text -> method -> entry


def _entry(item: Stored) -> _Entry:
    """The entry of a file without a job."""
    if "windows" in item.diagnostics:
        return _Entry(0, _IN_WINDOWS, item.gold)
    if item.scores is None:
        return _Entry(0, _reason(item.error), item.gold)
    return _Entry(len(item.scores), None, item.gold)


def _reason(error: str | None) -> str | None:
    """Why there are no scores, in the same words for the same cause: without numbers and advice."""
    if error is None:
        return None
    cause = re.sub(r"^\w*Error: ", "", error.partition(";")[0])
    return re.sub(r"\d[\d,.]*", "N", cause).strip()


@dataclass(frozen=True)
class _Comparable:
    """The methods and texts that can be compared."""

    methods: tuple[str, ...]
    left_out: dict[str, str]  # method -> reason
    texts: dict[Key, _Entry]  # under the first method
    skipped: dict[str, int]  # reason -> texts

    def example(self) -> Key:
        """The text whose length is nearest to that of a line."""
        return min(self.texts, key=lambda key: abs(self.texts[key].tokens - _EXAMPLE_TOKENS))

    def stored_scores(
        self,
        parts: Sequence[Sequence[Key]],
        checksums: Mapping[str, str],
        job: Mapping[str, Any] | None,
        read: Callable[[int], ScoredTexts],
        example: Table,
    ) -> StoredScores:
        """The result, with what is the same for jobs and other files."""
        listed = "\n".join(f"{name} {checksum}" for name, checksum in checksums.items())
        return StoredScores(
            methods=self.methods,
            left_out=self.left_out,
            skipped=self.skipped,
            sizes=tuple(map(len, parts)),
            gold=all(entry.gold is not None for entry in self.texts.values()),
            digest=sha256(listed.encode()).hexdigest(),
            job=job,
            read=read,
            example=example,
        )


def _select(texts: _Entries, requested: Sequence[str] | None, path: Path) -> _Comparable:
    """The methods that have scores, and the texts for which all of them have."""
    names = _requested_methods(texts, requested, path)
    left_out = _methods_without_scores(texts, names)
    methods = tuple(name for name in names if name not in left_out)
    compared = methods or names
    selected: dict[Key, _Entry] = {}
    skipped: Counter[str] = Counter()
    for key, entries in texts.items():
        reasons = {name: entries.get(name, _MISSING).reason for name in compared}
        if any(reasons.values()):
            skipped[_summary(reasons)] += 1
        else:
            selected[key] = entries[compared[0]]
    if not methods or not selected:
        causes = [f"{count} {reason}" for reason, count in skipped.most_common(3)] or ["it holds no rows"]
        raise DataError(f"no text in {str(path)!r} has scores by every method: {'; '.join(causes)}")
    return _Comparable(methods, left_out, selected, dict(sorted(skipped.items())))


def _requested_methods(texts: _Entries, requested: Sequence[str] | None, path: Path) -> tuple[str, ...]:
    """The methods to compare, as they are stored; a name may differ in case if that leaves no doubt."""
    stored = dict.fromkeys(chain.from_iterable(texts.values()))
    names = []
    missing = []
    for name in stored if requested is None else requested:
        similar = [other for other in stored if other.casefold() == name.casefold()]
        if name in stored:
            names.append(name)
        elif len(similar) == 1:
            names += similar
        else:
            missing.append(name)
    if missing:
        raise DataError(f"no attributions by {', '.join(missing)} in {str(path)!r}; it has {', '.join(stored)}")
    return tuple(names)


def _methods_without_scores(texts: _Entries, names: Sequence[str]) -> dict[str, str]:
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


def _read_table(file: Path, columns: list[str]) -> Table:
    """Some columns of a shard."""
    with reading(file):
        import pyarrow.parquet as pq

        table = pq.read_table(file, columns=columns)
    check_columns(columns, table.column_names, repr(file.name))
    return table


def _survey(file: Path) -> _Entries:
    """The entries of all texts of a shard by method."""
    import pyarrow.compute

    pc: Any = pyarrow.compute  # has no types
    table = _read_table(file, _SURVEY_COLUMNS)
    counts = pc.list_value_length(table["segments"]).to_pylist()
    texts: _Entries = {}
    for count, row in zip(counts, table.drop_columns("segments").to_pylist(), strict=True):
        entries = texts.setdefault((row["row"], row["text_hash"]), {})
        entries[row["method"]] = _Entry(count or 0, _reason(row["error"]), row["gold"])
    return texts


def _read_shard(file: Path) -> _ByText:
    """The attributions of a shard, without tokens and offsets; the scores are views of one array."""
    table = _read_table(file, _COLUMNS)
    lists = table["scores"].combine_chunks()
    values = lists.values.to_numpy(zero_copy_only=False)
    ends = lists.offsets.to_numpy()
    texts: _ByText = {}
    for k, row in enumerate(table.drop_columns("scores").to_pylist()):
        by_method = texts.setdefault((row["row"], row["text_hash"]), {})
        by_method[row["method"]] = Stored(
            text=row["text"],
            text_pair=row["pair"],
            method=row["method"],
            scores=values[ends[k] : ends[k + 1]],
            target=row["target"] if row["contrast"] is None else (row["target"], row["contrast"]),
            gold=row["gold"],
            truncated=bool(row["truncated"]),
        )
    return texts


def _scored_texts(stored: _ByText, keys: Sequence[Key], methods: Sequence[str]) -> ScoredTexts:
    texts = ScoredTexts([], {method: [] for method in methods}, [], [], truncated=False)
    for key in keys:
        by_method = stored[key]
        first = by_method[methods[0]]
        texts.texts.append(first.input)
        texts.target.append(first.target)
        texts.gold.append(first.gold)
        for method in methods:
            item = by_method[method]
            # scores of our own jobs belong to the tokens of the model, and need no offsets
            texts.scores[method].append(item.scores if item.offsets is None else item)
            texts.truncated = texts.truncated or item.truncated
    return texts


def _read_rows(files: Sequence[Path], key: Key, methods: Sequence[str], text: str | None = None) -> Table:
    """The rows of one text by `methods`; files from elsewhere may have no row numbers, but they have `text`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    conditions: list[tuple[str, str, Any]] = [("method", "in", list(methods))]
    row, _ = key
    if row is not None:
        conditions.append(("row", "==", row))
    if text is not None:
        conditions.append(("text", "==", text))
    tables = []
    for file in files:
        with reading(file):
            table = pq.read_table(file, filters=conditions)
        if table.num_rows:
            tables.append(table)
    return pa.concat_tables(tables, promote_options="default")
