"""Stored attributions on the shelf: which of them can be compared, and a part of them at a time.

A job's folder is read by columns, a shard after the other, and scores never become Python objects; files from
elsewhere, which may hold the methods of a text in different places, are read as a whole and cut into parts.

The conventions this file owns: methods are compared **on the same texts**. A method without scores for more than half
of the texts is left out; then a text that one of the others has no scores for is left out for all, and counted with the
reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gaflow.benchmark.stored import Key, by_text
from gaflow.data.readers import check_columns, parquet_files, pyarrow_module
from gaflow.errors import DataError
from gaflow.inputs.encoding import Text
from gaflow.jobs.folder import check_shard
from gaflow.jobs.manifest import MANIFEST, Manifest
from gaflow.jobs.stored import Stored
from gaflow.tasks.targets import ResolvedTarget

__all__ = ["Part", "Shelf", "holds_attributions", "open_shelf"]

_MARKS = ("text", "scores", "method")  # columns by which stored attributions are known
_READABLE = 18  # tokens of a text that fits on a line


@dataclass(frozen=True)
class Part:
    """Some texts with all their scores."""

    texts: list[Text]  # (n,)
    scores: dict[str, list[Any]]  # method -> (n,) arrays over all tokens, or Stored where tokens may differ
    target: list[ResolvedTarget | None]  # (n,) class that was explained
    gold: list[int | None]  # (n,)
    truncated: bool  # some text was read only in part


@dataclass(frozen=True)
class Shelf:
    """Attributions on disk, those that can be compared."""

    methods: tuple[str, ...]
    left_out: Mapping[str, str]  # method -> why
    skipped: Mapping[str, int]  # reason -> texts
    sizes: tuple[int, ...]  # texts of each part
    gold: bool  # every text has a label
    digest: str  # of all files
    job: Mapping[str, Any] | None  # that computed them, if it was one of ours
    read: Callable[[int], Part]
    example: Any  # table of one text's rows, one that fits on a line


def holds_attributions(place: Path) -> bool:
    """Whether a file or folder holds attributions rather than texts."""
    if (place / MANIFEST).is_file():
        return True
    pa, pq = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    files = sorted(place.glob("*.parquet")) if place.is_dir() else [place] * (place.suffix.lower() == ".parquet")
    if not files:
        return False
    try:
        return set(_MARKS) <= set(pq.read_schema(files[0]).names)
    except (pa.ArrowException, OSError):  # whoever reads it as texts says what is wrong
        return False


def open_shelf(place: Path, methods: Sequence[str] | None = None, part_size: int = 250) -> Shelf:
    """What is stored at `place`; `methods` chooses by name. Parts of files from elsewhere have `part_size` texts."""
    if not (place / MANIFEST).is_file():
        return _elsewhere(place, methods, part_size)
    manifest = Manifest.read(place)
    done = sum(shard.texts for shard in manifest.shards.values())
    if not manifest.finished:
        total = manifest.job.get("texts", "?")
        raise DataError(f"the job in {str(place)!r} is not finished ({done} of {total} texts); run it again first")
    if manifest.job.get("windows"):
        raise DataError(
            f"the texts in {str(place)!r} were read in windows, but faithfulness is measured on what a model reads at "
            "once; attribute them anew with truncation"
        )
    shards = [manifest.shards[k] for k in sorted(manifest.shards)]
    surveys = []
    for shard in shards:
        check_shard(place, shard)
        surveys.append(_survey(_table(place / shard.file, ("row", "text_hash", "method", "gold", "error", "segments"))))
    chosen = _choose([entry for survey in surveys for entry in survey.items()], methods, place)
    kept = [[key for key in survey if key in chosen.kept] for survey in surveys]
    full = [k for k, keys in enumerate(kept) if keys]
    best = min(chosen.kept, key=lambda key: abs(chosen.kept[key][0] - _READABLE))
    where = next(k for k in full if best in kept[k])

    def read(number: int) -> Part:
        shard = full[number]
        return _part(_table(place / shards[shard].file, _COLUMNS), kept[shard], chosen.methods)

    return Shelf(
        methods=chosen.methods,
        left_out=chosen.left_out,
        skipped=chosen.skipped,
        sizes=tuple(len(kept[k]) for k in full),
        gold=all(gold is not None for _, gold in chosen.kept.values()),
        digest=_digest([(shard.file, shard.sha256) for shard in shards]),
        job=manifest.job,
        read=read,
        example=_rows(pyarrow_module("pyarrow.parquet").read_table(place / shards[where].file), best, chosen.methods),
    )


def _elsewhere(place: Path, methods: Sequence[str] | None, part_size: int) -> Shelf:
    found = by_text(place)
    surveyed = [
        (key, {name: _Entry(0 if s.scores is None else len(s.scores), _error(s), s.gold) for name, s in mine.items()})
        for key, mine in found.items()
    ]
    chosen = _choose(surveyed, methods, place)
    keys = list(chosen.kept)
    parts = [keys[k : k + part_size] for k in range(0, len(keys), part_size)]
    best = min(keys, key=lambda key: abs(chosen.kept[key][0] - _READABLE))

    def read(number: int) -> Part:
        each = [found[key] for key in parts[number]]
        firsts = [mine[chosen.methods[0]] for mine in each]
        return Part(
            [s.text if s.text_pair is None else (s.text, s.text_pair) for s in firsts],
            {name: [mine[name] for mine in each] for name in chosen.methods},
            [s.target for s in firsts],
            [s.gold for s in firsts],
            any(s.truncated for mine in each for s in mine.values()),
        )

    files = parquet_files(place) if place.is_dir() else [place]
    pa, pq = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    tables = [_rows(pq.read_table(file), best, chosen.methods, found[best][chosen.methods[0]].text) for file in files]
    return Shelf(
        methods=chosen.methods,
        left_out=chosen.left_out,
        skipped=chosen.skipped,
        sizes=tuple(len(part) for part in parts),
        gold=all(gold is not None for _, gold in chosen.kept.values()),
        digest=_digest([(file.name, sha256(file.read_bytes()).hexdigest()) for file in files]),
        job=None,
        read=read,
        example=pa.concat_tables([t for t in tables if t.num_rows], promote_options="default"),
    )


def _error(item: Stored) -> str | None:
    """Why scores cannot be used, from a file that no job vouches for."""
    return "read in windows, not at once" if "windows" in item.diagnostics else item.error


@dataclass(frozen=True)
class _Entry:
    """What there is of a text and method."""

    tokens: int
    error: str | None
    gold: int | None


@dataclass(frozen=True)
class _Choice:
    """What can be compared."""

    methods: tuple[str, ...]
    left_out: dict[str, str]
    kept: dict[Key, tuple[int, int | None]]  # text -> tokens, gold class
    skipped: dict[str, int]


def _choose(texts: Sequence[tuple[Key, dict[str, _Entry]]], wanted: Sequence[str] | None, place: Path) -> _Choice:
    """The methods that have scores, and the texts that all of them have."""
    there = dict.fromkeys(name for _, mine in texts for name in mine)
    wanted = None if wanted is None else [_spelled(name, list(there)) for name in wanted]
    missing = [name for name in wanted or () if name not in there]
    if missing or not there:
        have = f"it has {', '.join(there)}" if there else "it has none"
        raise DataError(f"no attributions by {', '.join(missing) or 'any method'} in {str(place)!r}; {have}")
    names = list(there) if wanted is None else list(wanted)
    left_out = {}
    for name in names:
        reasons = Counter(_reason(mine.get(name)) for _, mine in texts)
        failed = len(texts) - reasons.pop(None, 0)
        if 2 * failed > len(texts):
            why = reasons.most_common(1)[0][0]
            left_out[name] = f"no scores for {failed} of {len(texts)} texts: {why}"
    methods = tuple(name for name in names if name not in left_out)
    kept: dict[Key, tuple[int, int | None]] = {}
    skipped: Counter[str] = Counter()
    for key, mine in texts:
        reasons = {name: why for name in methods or names if (why := _reason(mine.get(name))) is not None}
        if not reasons:
            first = mine[methods[0]]
            kept[key] = (first.tokens, first.gold)
        elif len(set(reasons.values())) == 1 and len(reasons) == len(methods or names):
            skipped[next(iter(reasons.values()))] += 1
        else:
            skipped[", ".join(f"{name}: {why}" for name, why in reasons.items())] += 1
    if not kept or not methods:
        told = "; ".join(f"{n} {why}" for why, n in skipped.most_common(3)) or "; ".join(left_out.values())
        raise DataError(f"no text in {str(place)!r} has scores by every method: {told}")
    return _Choice(methods, left_out, kept, dict(sorted(skipped.items())))


def _spelled(name: str, there: Sequence[str]) -> str:
    """The name as it is stored: exactly, or else the only one that differs in case alone."""
    close = [each for each in there if each.casefold() == name.casefold()]
    return close[0] if name not in there and len(close) == 1 else name


def _reason(entry: _Entry | None) -> str | None:
    """Why there are no scores, the same words for the same cause: without numbers and advice."""
    if entry is None:
        return "no scores"
    if entry.error is None:
        return None
    cause = re.sub(r"^\w*Error: ", "", entry.error.partition(";")[0])
    return re.sub(r"\d[\d,.]*", "N", cause).strip()


_COLUMNS = ("row", "text", "pair", "text_hash", "method", "scores", "target", "contrast", "gold", "truncated")


def _table(file: Path, columns: Sequence[str]) -> Any:
    pa, pq = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.parquet")
    try:
        table = pq.read_table(file, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{str(file)!r} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    check_columns(columns, table.column_names, repr(file.name))
    return table


def _survey(table: Any) -> dict[Key, dict[str, _Entry]]:
    """Every text of a shard: what there is by each method."""
    counts = pyarrow_module("pyarrow.compute").list_value_length(table["segments"]).to_pylist()
    columns = [table[name].to_pylist() for name in ("row", "text_hash", "method", "error", "gold")]
    found: dict[Key, dict[str, _Entry]] = {}
    for count, row, text, method, error, gold in zip(counts, *columns, strict=True):
        found.setdefault((row, text), {})[method] = _Entry(count or 0, error, gold)
    return found


def _part(table: Any, kept: Sequence[Key], methods: Sequence[str]) -> Part:
    """Texts and scores of a shard, the scores as views of one array."""
    column = table["scores"].combine_chunks()
    flat, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
    columns = {name: table[name].to_pylist() for name in _COLUMNS if name != "scores"}
    where: dict[tuple[Key, str], int] = {}
    for k, (row, text, method) in enumerate(zip(columns["row"], columns["text_hash"], columns["method"], strict=True)):
        where[(row, text), method] = k
    firsts = [where[key, methods[0]] for key in kept]
    texts, pairs, targets = columns["text"], columns["pair"], columns["target"]
    contrasts = columns["contrast"]
    return Part(
        [texts[k] if pairs[k] is None else (texts[k], pairs[k]) for k in firsts],
        {name: [flat[ends[k] : ends[k + 1]] for k in (where[key, name] for key in kept)] for name in methods},
        [targets[k] if contrasts[k] is None else (targets[k], contrasts[k]) for k in firsts],
        [columns["gold"][k] for k in firsts],
        any(columns["truncated"][k] for k in firsts),
    )


def _rows(table: Any, key: Key, methods: Iterable[str], text: str | None = None) -> Any:
    """The rows of one text by `methods`."""
    pc, pa = pyarrow_module("pyarrow.compute"), pyarrow_module("pyarrow")
    mine = pc.is_in(table["method"], value_set=pa.array(list(methods)))
    if key[0] is not None and "row" in table.column_names:
        mine = pc.and_(mine, pc.equal(table["row"], key[0]))
    if text is not None:
        mine = pc.and_(mine, pc.equal(table["text"], text))
    return table.filter(mine)


def _digest(files: Sequence[tuple[str, str]]) -> str:
    return sha256("\n".join(f"{name} {digest}" for name, digest in files).encode()).hexdigest()
