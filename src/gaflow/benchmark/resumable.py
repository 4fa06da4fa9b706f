"""Evaluations computed part by part, each kept once it is there.

A part is a shard of the attributions: its texts are masked together, for all methods at once, and its numbers are
written before the next part is begun, as an Evaluation of its own. Those of all parts are joined in the end.

The convention this file owns: a part depends on its own texts and on what is asked for, on nothing else; when
it was computed does not matter.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.benchmark.stored_scores import Shelf
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.arguments import EvaluationSettings
from gaflow.evaluation.faithfulness import judge_texts
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.soft_masking import Soft
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.progress import Progress, Report, reporting, within
from gaflow.provenance import describe_model, refuse_other, versions

__all__ = ["BenchmarkSettings", "mask_all", "slug"]

_PARTS = ".parts"
_BY_METHOD = ("masked", "prediction", "soft")  # fields whose first axis is methods, the second texts


@dataclass(frozen=True)
class BenchmarkSettings:
    """What is asked of a benchmark, whatever the data set."""

    methods: tuple[AnyMethod, ...] | None  # as given; None: those of the paper, or all that are stored
    replacements: tuple[str | int, ...]
    sample: int | None
    limit: int | None
    seed: int
    batch_size: int
    shard_size: int
    truncation: bool
    levels: tuple[int, ...]
    bounds: Bounds | None
    soft: Soft | None
    tokens_per_pass: int | None


class _Stopped(Exception):
    """The caller asked the run to end; the argument is how many texts were masked before."""


def slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")[:80] or "data"


def mask_all(
    explainer: Explainer,
    shelf: Shelf,
    folder: Path,
    plan: BenchmarkSettings,
    about: dict[str, Any],
    progress: Progress,
    stop: Callable[[], bool],
) -> tuple[dict[str, Path], int]:
    """Every replacement's evaluation, and how many texts were masked for them."""
    asked, job = _asked(explainer, shelf, plan), shelf.job or {}
    done, masked, count = {}, 0, sum(shelf.sizes)
    about = about | {"sample": job.get("sample"), "data": job.get("data"), "texts": count}
    with reporting(progress, count * len(plan.replacements), "text") as report:
        for k, replacement in enumerate(plan.replacements):
            place, mine = folder / slug(str(replacement)), {"replacement": replacement, **asked}
            if not _there(place, mine):
                tell = within(report, k * count, count)
                try:
                    masked += _mask(explainer, shelf, place, plan, mine, about, tell, stop)
                except _Stopped as stopped:
                    return done, masked + stopped.args[0]
            _clear(place)
            done[str(replacement)] = place
            report((k + 1) * count)
    return done, masked


def _clear(place: Path) -> None:
    """Remove parts that are no longer needed, and what a process left that was killed while it wrote."""
    shutil.rmtree(place / _PARTS, ignore_errors=True)
    for left in place.glob(".*.tmp"):
        left.unlink()


def _asked(explainer: Explainer, shelf: Shelf, plan: BenchmarkSettings) -> dict[str, Any]:
    """All that decides the numbers, whatever the replacement, in JSON."""
    known = {method["name"]: method for method in (shelf.job or {}).get("methods", [])}
    asked = {
        "attributions": shelf.digest,
        "model": describe_model(explainer),
        "methods": [known.get(name, {"name": name}) for name in shelf.methods],
        "levels": plan.levels,
        "bounds": None if plan.bounds is None else {f.name: getattr(plan.bounds, f.name) for f in fields(plan.bounds)},
        "soft": None if plan.soft is None else plan.soft.describe(),
        "seed": plan.seed,
        "tokens_per_pass": plan.tokens_per_pass,
        "versions": versions(),
    }
    return json.loads(json.dumps(asked))


def _mask(
    explainer: Explainer,
    shelf: Shelf,
    place: Path,
    plan: BenchmarkSettings,
    asked: dict[str, Any],
    about: dict[str, Any],
    report: Report,
    stop: Callable[[], bool],
) -> int:
    """One evaluation, part by part; gives the number of texts that were masked for it."""
    found, masked, total = [], 0, sum(shelf.sizes)
    for number, size in enumerate(shelf.sizes):
        begun = sum(shelf.sizes[:number])
        part, mine = place / _PARTS / f"{number:05d}", {"asked": asked, "first": begun, "texts": size}

        def told(share: float, begun: int = begun, size: int = size, masked: int = masked) -> None:
            if stop():
                raise _Stopped(masked)
            report((begun + share * size) / total)

        made = _kept(part, mine)
        if made is None:
            told(0.0)
            made = _judge(explainer, shelf, number, asked["replacement"], plan, told)
            made = replace(made, manifest={**mine, **made.manifest})
            made.save(part)
            masked += size
        found.append(made)
    whole = _joined(found)
    counts = {name: sum(e.manifest[name] for e in found) for name in ("inputs", "truncated")}
    replace(whole, manifest={**about, **asked, **counts}).save(place)
    return masked


def _judge(
    explainer: Explainer, shelf: Shelf, number: int, replacement: str | int, plan: BenchmarkSettings, report: Report
) -> Evaluation:
    """One part of the texts, judged."""
    part = shelf.read(number)
    settings = EvaluationSettings(
        replacement=replacement,
        levels=plan.levels,
        bounds=plan.bounds,
        soft=plan.soft,
        tokens_per_pass=plan.tokens_per_pass,
        truncation=plan.truncation or part.truncated,
        seed=plan.seed,
    )
    return judge_texts(
        explainer,
        part.texts,
        settings,
        scores=part.scores,
        labels=part.gold if shelf.gold else None,
        target=part.target,
        progress=lambda done, total: report(done / total),
    )


def _there(place: Path, asked: Mapping[str, Any]) -> bool:
    """Whether an evaluation is there; another one than what is asked for is refused."""
    try:
        found = Evaluation.load(place).manifest
        there = {name: found[name] for name in asked}
    except FileNotFoundError:
        return False
    except (GaflowError, KeyError, TypeError) as error:
        raise DataError(f"{place} is damaged ({error}); delete this folder and run again") from error
    refuse_other(there, asked, place)
    return True


def _kept(part: Path, asked: Mapping[str, Any]) -> Evaluation | None:
    """A part that was computed before, if it is whole and what is asked for; nobody but us looks at parts."""
    try:
        found = Evaluation.load(part)
    except (FileNotFoundError, GaflowError):
        return None
    return found if all(found.manifest.get(name) == value for name, value in asked.items()) else None


def _joined(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the texts of all parts."""
    arrays: dict[str, Any] = {}
    for name in [f.name for f in fields(Evaluation) if isinstance(getattr(parts[0], f.name), np.ndarray)]:
        arrays[name] = np.concatenate([getattr(part, name) for part in parts], 1 if name in _BY_METHOD else 0)
    timings = {name: sum(part.timings.get(name, 0.0) for part in parts) for name in ("total", "masking", "forward")}
    timings["forward_share"] = timings["forward"] / timings["masking"] if timings["masking"] else 0.0
    return replace(parts[0], timings=timings, **arrays)
