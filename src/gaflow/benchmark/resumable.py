"""Evaluations that are computed part by part, each of which is stored as soon as it is computed.

A part is a shard of the attributions. Its texts are masked together, for all methods at once, and its numbers are
written as an Evaluation of its own before the next part begins. All parts are joined in the end.

The convention this file owns: a part depends on its own texts and the settings alone, not on when it was computed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from gaflow.benchmark.folder_layout import slug
from gaflow.benchmark.settings import BenchmarkSettings
from gaflow.benchmark.stored_scores import StoredScores
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.faithfulness import judge_texts
from gaflow.evaluation.result import Evaluation
from gaflow.explainer.explainer import Explainer
from gaflow.jobs.engine import Stop
from gaflow.jobs.folder import remove_temporary_files
from gaflow.progress import Progress, Report, reporting, within
from gaflow.provenance import refuse_other, versions

__all__ = ["StoredEvaluations", "evaluate_stored_scores"]

_PARTS = ".parts"
_BY_METHOD = ("masked", "prediction", "soft")  # fields whose first axis is methods, the second texts


@dataclass(frozen=True)
class StoredEvaluations:
    """The evaluations of a data set that are finished."""

    folders: dict[str, Path]  # replacement -> folder
    masked: int  # texts masked by this run


def evaluate_stored_scores(
    explainer: Explainer,
    scores: StoredScores,
    folder: Path,
    settings: BenchmarkSettings,
    model: dict[str, Any],
    facts: dict[str, Any],
    progress: Progress,
    stop: Stop,
) -> StoredEvaluations:
    """Evaluate stored scores for every replacement, each into a folder of its own.

    `model` is `describe_model(explainer)`; `facts` go into the manifests.
    """
    job = scores.job or {}
    texts = sum(scores.sizes)
    facts = facts | {"sample": job.get("sample"), "data": job.get("data"), "texts": texts}
    decisive = _describe(scores, settings, model)
    evaluator = _PartwiseEvaluator(explainer, scores, settings, stop)
    folders = {}
    with reporting(progress, texts * len(settings.replacements), "text") as report:
        for k, replacement in enumerate(settings.replacements):
            target = folder / slug(str(replacement))
            description = {"replacement": replacement, **decisive}
            if not _is_finished(target, description):
                try:
                    evaluation = evaluator.evaluate(target, description, report, k * texts)
                except _Stopped:
                    break
                replace(evaluation, manifest={**facts, **description, **evaluation.manifest}).save(target)
            shutil.rmtree(target / _PARTS, ignore_errors=True)
            remove_temporary_files(target)
            folders[str(replacement)] = target
            report((k + 1) * texts)
    return StoredEvaluations(folders, evaluator.masked)


def _describe(scores: StoredScores, settings: BenchmarkSettings, model: dict[str, Any]) -> dict[str, Any]:
    """Everything that decides the numbers, except for the replacement, in JSON."""
    described_methods = {}
    if scores.job is not None:
        described_methods = {method["name"]: method for method in scores.job["methods"]}
    evaluation = settings.evaluation
    description = {
        "attributions": scores.digest,
        "model": model,
        "methods": [described_methods.get(name, {"name": name}) for name in scores.methods],
        "levels": evaluation.levels,
        "bounds": None if evaluation.bounds is None else asdict(evaluation.bounds),
        "soft": None if evaluation.soft is None else evaluation.soft.describe(),
        "seed": evaluation.seed,
        "tokens_per_pass": evaluation.tokens_per_pass,
        "versions": versions(),
    }
    return json.loads(json.dumps(description))


class _Stopped(Exception):
    """The caller asked the run to end."""


@dataclass
class _PartwiseEvaluator:
    """Evaluates the same scores for one replacement after the other."""

    explainer: Explainer
    scores: StoredScores
    settings: BenchmarkSettings
    stop: Stop
    masked: int = 0  # texts, so far

    def evaluate(self, folder: Path, description: dict[str, Any], report: Report, texts_before: int) -> Evaluation:
        """Load or compute all parts and join them; `_Stopped` is raised between two batches."""
        parts = []
        first = 0
        for number, size in enumerate(self.scores.sizes):
            part_folder = folder / _PARTS / f"{number:05d}"
            manifest = {"asked": description, "first": first, "texts": size}
            part = _load_part(part_folder, manifest)
            if part is None:
                part_report = within(report, texts_before + first, size)
                part = self._judge(number, description["replacement"], part_report)
                part = replace(part, manifest={**manifest, **part.manifest})
                part.save(part_folder)
                self.masked += size
            parts.append(part)
            first += size
        return _join(parts)

    def _judge(self, number: int, replacement: str | int, report: Report) -> Evaluation:
        def report_or_stop(done: float, total: int) -> None:
            if self.stop():
                raise _Stopped
            report(done / total)

        report_or_stop(0, 1)
        part = self.scores.read(number)
        evaluation = self.settings.evaluation
        return judge_texts(
            self.explainer,
            part.texts,
            replace(evaluation, replacement=replacement, truncation=evaluation.truncation or part.truncated),
            scores=part.scores,
            labels=part.gold if self.scores.gold else None,
            target=part.target,
            progress=report_or_stop,
        )


def _is_finished(folder: Path, description: Mapping[str, Any]) -> bool:
    """Whether the evaluation is stored; one with other settings is refused."""
    try:
        manifest = Evaluation.load(folder).manifest
        stored = {name: manifest[name] for name in description}
    except FileNotFoundError:
        return False
    except (GaflowError, KeyError, TypeError) as error:
        raise DataError(f"{folder} is damaged ({error}); delete this folder and run again") from error
    refuse_other(stored, description, folder)
    return True


def _load_part(folder: Path, manifest: Mapping[str, Any]) -> Evaluation | None:
    """A part that was computed before; None if it is missing, damaged or has other settings."""
    try:
        part = Evaluation.load(folder)
    except (FileNotFoundError, GaflowError):
        return None
    is_current = {**part.manifest, **manifest} == part.manifest
    return part if is_current else None


def _join(parts: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of the texts of all parts, with counts of inputs and truncated texts as its manifest."""
    first = parts[0]
    arrays: dict[str, Any] = {}
    for field in fields(Evaluation):
        if isinstance(getattr(first, field.name), np.ndarray):
            axis = 1 if field.name in _BY_METHOD else 0
            arrays[field.name] = np.concatenate([getattr(part, field.name) for part in parts], axis)
    timings = {}
    for name in ("total", "masking", "forward"):
        timings[name] = sum(part.timings.get(name, 0.0) for part in parts)
    timings["forward_share"] = timings["forward"] / timings["masking"] if timings["masking"] else 0.0
    counts = {}
    for name in ("inputs", "truncated"):
        counts[name] = sum(part.manifest[name] for part in parts)
    return replace(first, timings=timings, manifest=counts, **arrays)
