"""What a benchmark left in its folder: evaluations by data set and replacement, and how long methods took.

The convention this file owns: data sets come in the order that is asked for, else by name; methods in the paper's
order, then whatever else there is, the control last.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaflow.attribution.attribution import Attribution
from gaflow.benchmark.run import ABOUT, ATTRIBUTIONS, PAPER, SAMPLE
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.evaluation.result import Evaluation
from gaflow.jobs.folder import TIMES
from gaflow.jobs.stored import read_attributions
from gaflow.methods import METHODS

__all__ = ["DataSetReport", "Times", "collect", "family", "ordered"]

REPLACEMENTS = ("pad", "mask", "unk", "delete")  # in the order of the tables


@dataclass(frozen=True)
class Times:
    """How long attributions took."""

    texts: int
    trace: float  # seconds, once for all methods
    methods: Mapping[str, float]  # seconds beside the trace
    peak: Mapping[str, int]  # bytes on the GPU; empty without one


@dataclass(frozen=True)
class DataSetReport:
    """One data set of a benchmark."""

    name: str
    slug: str  # its folder
    evaluations: Mapping[str, Evaluation]  # replacement -> evaluation
    left_out: Mapping[str, str]  # method -> why
    skipped: Mapping[str, int]  # reason -> texts
    example: Mapping[str, Attribution]  # method -> attribution of one and the same text
    times: Times | None


def collect(folder: Path, datasets: Sequence[str] | None = None) -> list[DataSetReport]:
    """Everything in `folder`; `datasets` chooses and orders by name."""
    if not folder.is_dir():
        raise DataError(f"no such folder: {str(folder)!r}; give one that 'gaflow bench' wrote")
    there = sorted(p.parent for p in folder.glob(f"*/{ABOUT}"))
    every = [_found(place) for place in there]
    whole = {found.name: found for found in every if found.evaluations}
    if not whole:
        begun = f"; {', '.join(f.name for f in every)} is not finished: run the benchmark again" if every else ""
        raise DataError(f"no evaluation in {str(folder)!r}: it should be a folder that 'gaflow bench' wrote{begun}")
    if datasets is None:
        return list(whole.values())
    missing = [name for name in datasets if name not in whole]
    if missing:
        raise DataError(f"no data set {', '.join(missing)} in {str(folder)!r}; there are {', '.join(whole)}")
    return [whole[name] for name in datasets]


def ordered(methods: Iterable[str]) -> list[str]:
    """Methods in the order of the tables."""
    names = list(dict.fromkeys(methods))
    return sorted(names, key=lambda name: (name == CONTROL, PAPER.index(name) if name in PAPER else len(PAPER)))


def family(method: str) -> str:
    """What kind of method it is, by its name without settings."""
    known: Any = METHODS.get(method.partition("(")[0])
    return "" if known is None else known.info.family


def _found(place: Path) -> DataSetReport:
    path = place / ABOUT
    try:
        about = json.loads(path.read_text("utf-8"))
        name, left_out = str(about["asked"]["name"]), dict(about["left_out"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error}); run the benchmark again in a new folder") from error
    evaluations, skipped = {}, {}
    for inner in sorted(place.glob("*/evaluation.json"), key=lambda p: (_rank(p.parent.name), p)):
        evaluation = Evaluation.load(inner.parent)
        evaluations[evaluation.replacement] = evaluation
        skipped |= evaluation.manifest.get("skipped", {})
        left_out |= evaluation.manifest.get("left_out", {})
    return DataSetReport(name, place.name, evaluations, left_out, skipped, _example(place), _times(place))


def _rank(replacement: str) -> int:
    return REPLACEMENTS.index(replacement) if replacement in REPLACEMENTS else len(REPLACEMENTS)


def _example(place: Path) -> dict[str, Attribution]:
    """The stored attributions of one text; none where they do not say what was explained."""
    if not (place / SAMPLE).exists():
        return {}
    stored = {item.method: item for item in read_attributions(place / SAMPLE)}
    try:
        made = {name: stored[name].attribution() for name in ordered(stored)}
    except GaflowError:  # from elsewhere, without target or label
        return {}
    alike = {(att.tokens, att.text, att.text_pair) for att in made.values()}
    return made if len(alike) == 1 else {}


def _times(place: Path) -> Times | None:
    path = place / ATTRIBUTIONS / TIMES
    if not path.exists():
        return None
    shards: dict[int, dict[str, Any]] = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            entry = json.loads(line)
            shards[entry["shard"]] = entry  # a shard that was computed again counts once
        except (ValueError, KeyError, TypeError):  # the last line of a run that was killed
            continue
    timed = [entry for entry in shards.values() if "methods" in entry]
    if not timed:
        return None
    names = dict.fromkeys(name for entry in timed for name in entry["methods"])
    return Times(
        sum(entry["texts"] for entry in timed),
        sum(entry.get("trace", 0.0) for entry in timed),
        {name: sum(entry["methods"].get(name, 0.0) for entry in timed) for name in names},
        {
            name: max(found)
            for name in names
            if (found := [e["peak"][name] for e in timed if name in e.get("peak", {})])
        },
    )
