"""Evaluations that are computed part by part, each of which is stored as soon as it is computed.

A part is a shard of the attributions. Its texts are masked together, for all methods at once, and its numbers are
written as an Evaluation of its own before the next part begins. All parts are joined in the end.

The convention this file owns: a part depends on its own texts and the settings alone, not on when it was computed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from gaflow.benchmark.folder_layout import slug
from gaflow.benchmark.settings import BenchmarkSettings
from gaflow.benchmark.stored_scores import StoredScores
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.faithfulness import judge_texts
from gaflow.evaluation.result import Evaluation
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.many import Stop
from gaflow.explainer.provenance import Description, describe_environment
from gaflow.jobs.folder import remove_temporary_files
from gaflow.jobs.identity import ENVIRONMENT, compare
from gaflow.progress import Progress, Report, interruptible, reporting, within

_PARTS = ".parts"
_BY_METHOD = ("masked", "prediction", "soft")  # fields whose first axis is methods, the second texts


class BenchmarkStopped(Exception):
    """The caller asked the run to end."""


def raise_stopped(stop: Stop) -> None:
    """Raise `BenchmarkStopped` if the caller asked the run to end."""
    if stop():
        raise BenchmarkStopped


@dataclass
class StoredEvaluations:
    """Evaluations of the same scores, for each replacement into a folder of its own."""

    explainer: Explainer
    scores: StoredScores
    folder: Path
    settings: BenchmarkSettings
    stop: Stop
    finished: dict[str, Path] = field(default_factory=dict)  # replacement -> folder
    masked: int = 0  # texts masked by this run

    def compute(self, model: Description, facts: Description, progress: Progress) -> None:
        """Evaluate for one replacement after the other until `stop`.

        `model` is `describe_model(explainer)`; `facts` go into the manifests.
        """
        job = self.scores.source.job
        texts = len(self.scores.texts)
        facts = facts | {"sample": job.get("sample"), "data": job.get("data"), "texts": texts}
        decisive = self._describe(model)
        replacements = self.settings.replacements
        with reporting(progress, texts * len(replacements), "text") as report:
            for k, replacement in enumerate(replacements):
                target = self.folder / slug(str(replacement))
                description = {"replacement": replacement, **decisive}
                if not _is_finished(target, description):
                    try:
                        evaluation = self._evaluate(target, description, report, k * texts)
                    except BenchmarkStopped:
                        return
                    replace(evaluation, manifest={**facts, **description, **evaluation.manifest}).save(target)
                shutil.rmtree(target / _PARTS, ignore_errors=True)
                remove_temporary_files(target)
                self.finished[str(replacement)] = target
                report((k + 1) * texts)

    def _describe(self, model: Description) -> Description:
        """Everything that decides the numbers, except for the replacement, in JSON."""
        source = self.scores.source
        described_methods = {method["name"]: method for method in source.job.get("methods", ())}
        settings = self.settings.evaluation
        description = {
            "attributions": source.digest,
            "model": model,
            "methods": [described_methods.get(name, {"name": name}) for name in self.scores.methods],
            "levels": settings.levels,
            "bounds": None if settings.bounds is None else asdict(settings.bounds),
            "soft": None if settings.soft is None else settings.soft.describe(),
            "seed": settings.seed,
            "unit": None if settings.unit == "token" else settings.unit,
            "max_share": settings.max_share,
            "draws": None if settings.max_share is None else settings.draws,
            "tokens_per_pass": settings.tokens_per_pass,
            **describe_environment(model["device"]),
        }
        return json.loads(json.dumps(description))

    def _evaluate(self, folder: Path, description: Description, report: Report, texts_before: int) -> Evaluation:
        """Load or compute all parts and join them; `BenchmarkStopped` is raised between two batches."""
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
        return _join(parts, {name: description[name] for name in ENVIRONMENT})

    def _judge(self, number: int, replacement: str | int, report: Report) -> Evaluation:
        def report_or_stop(done: float, total: int) -> None:
            raise_stopped(self.stop)
            report(done / total)

        report_or_stop(0, 1)
        part = self.scores.read(number)
        evaluation = self.settings.evaluation
        with interruptible(partial(raise_stopped, self.stop)):
            return judge_texts(
                self.explainer,
                part.texts,
                replace(evaluation, replacement=replacement, truncation=evaluation.truncation or part.truncated),
                scores=part.scores,
                labels=part.gold if self.scores.has_gold else None,
                target=part.target,
                progress=report_or_stop,
            )


def _is_finished(folder: Path, description: Description) -> bool:
    """Whether the evaluation is stored; one with other settings is refused."""
    try:
        manifest = Evaluation.load(folder).manifest
    except FileNotFoundError:
        return False
    except GaflowError as error:
        raise DataError(f"{folder} is damaged ({error}); delete this folder and run again") from error
    stored = {name: manifest[name] for name in description if name in manifest}
    compare(stored, description).refuse(folder)
    return True


def _load_part(folder: Path, manifest: Description) -> Evaluation | None:
    """A part that was computed before; None if it is missing, damaged or has other settings."""
    try:
        part = Evaluation.load(folder)
    except (FileNotFoundError, GaflowError):
        return None
    comparison = compare(part.manifest.get("asked", {}), manifest["asked"])
    position = (part.manifest.get("first"), part.manifest.get("texts"))
    if comparison.decisive or position != (manifest["first"], manifest["texts"]):
        return None
    comparison.warn(folder.parents[1])
    return part


def _join(parts: Sequence[Evaluation], environment: Description) -> Evaluation:
    """One evaluation of the texts of all parts.

    Its manifest counts inputs and truncated texts, and lists environments of parts that are not the current one.
    """
    first = parts[0]
    arrays: dict[str, np.ndarray] = {}
    for name in vars(first):
        if isinstance(getattr(first, name), np.ndarray):
            axis = 1 if name in _BY_METHOD else 0
            arrays[name] = np.concatenate([getattr(part, name) for part in parts], axis)
    timings = {}
    for name in ("total", "masking", "forward"):
        timings[name] = sum(part.timings.get(name, 0.0) for part in parts)
    timings["forward_share"] = timings["forward"] / timings["masking"] if timings["masking"] else 0.0
    manifest: Description = {}
    for name in ("inputs", "truncated"):
        manifest[name] = sum(part.manifest[name] for part in parts)
    for part in parts:
        part_environment = {name: part.manifest["asked"].get(name) for name in ENVIRONMENT}
        others = manifest.get("environments", [])
        if part_environment not in (environment, *others):
            manifest["environments"] = [*others, part_environment]
    return replace(first, timings=timings, manifest=manifest, **arrays)
