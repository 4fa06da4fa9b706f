"""Stored attributions, ready to be evaluated: by text instead of by row.

    given = stored_scores("attributions/")
    evaluate(explainer, given.texts, given.labels, scores=given.scores)

The convention this file owns: **methods are compared on the same texts**. A text that one of the methods has no scores
for is left out for all of them, and counted with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gaflow.errors import DataError
from gaflow.inputs.encoding import Text
from gaflow.jobs.stored import Stored, read_attributions

__all__ = ["Key", "StoredScores", "by_text", "stored_scores"]


Key = tuple[int | None, str]  # row of the data set and hash: by these a text is told


@dataclass(frozen=True)
class StoredScores:
    """What several methods say about the same texts."""

    texts: list[Text]  # (n,)
    labels: list[int] | None  # (n,) gold classes, if every text has one
    scores: dict[str, list[Stored]]  # method -> (n,)
    skipped: Mapping[str, int]  # reason -> texts left out
    truncated: bool  # some text was read only in part


def stored_scores(place: str | Path, methods: Sequence[str] | None = None) -> StoredScores:
    """All attributions in a job's folder, a folder of Parquet files or one file; `methods` chooses by name."""
    found = by_text(place, methods)
    names = dict.fromkeys(name for mine in found.values() for name in mine)
    missing = [name for name in methods or () if name not in names]
    if missing or not names:
        have = f"it has {', '.join(names)}" if names else "it has none"
        raise DataError(f"no attributions by {', '.join(missing) or 'any method'} in {str(place)!r}; {have}")
    kept: list[dict[str, Stored]] = []
    skipped: dict[str, int] = {}
    for mine in found.values():
        reason = _reason(mine, list(names))
        if reason is None:
            kept.append(mine)
        else:
            skipped[reason] = skipped.get(reason, 0) + 1
    if not kept:
        raise DataError(f"no text in {str(place)!r} has scores by every method: {skipped}")
    firsts = [next(iter(mine.values())) for mine in kept]
    gold = [item.gold for item in firsts if item.gold is not None]
    return StoredScores(
        texts=[item.text if item.text_pair is None else (item.text, item.text_pair) for item in firsts],
        labels=gold if len(gold) == len(kept) else None,
        scores={name: [mine[name] for mine in kept] for name in names},
        skipped=skipped,
        truncated=any(item.truncated for mine in kept for item in mine.values()),
    )


def by_text(place: str | Path, methods: Sequence[str] | None = None) -> dict[Key, dict[str, Stored]]:
    """Every text's attributions by method, in the order in which texts are met."""
    found: dict[Key, dict[str, Stored]] = {}
    for item in read_attributions(place, methods=methods):
        mine = found.setdefault((item.row, item.text_hash), {})
        if item.method in mine and item.row is not None:
            raise DataError(f"{str(place)!r} holds row {item.row} twice for method {item.method!r}; keep one of them")
        mine.setdefault(item.method, item)
    return found


def _reason(mine: Mapping[str, Stored], names: Sequence[str]) -> str | None:
    """Why a text cannot be used, or None."""
    for name in names:
        if name not in mine:
            return f"no scores by {name}"
        if mine[name].scores is None:
            return f"{name}: {mine[name].error}"
        if "windows" in mine[name].diagnostics:
            return "read in windows, not at once"
    return None
