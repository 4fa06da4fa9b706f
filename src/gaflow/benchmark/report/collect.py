"""The results in a benchmark's folder: evaluations by data set and replacement, and how long methods took.

The convention this file owns: data sets come in the requested order, else by name; methods in the paper's order, then
all others, the control last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaflow.attribution.attribution import Attribution
from gaflow.benchmark.folder_layout import ATTRIBUTIONS, EXAMPLE, PAPER_METHODS, SETTINGS, read_settings
from gaflow.benchmark.stored_scores import LeftOut
from gaflow.errors import Argument, DataError, GaflowError
from gaflow.evaluation.faithfulness import CONTROL
from gaflow.evaluation.result import Evaluation
from gaflow.explainer.batch import Timings
from gaflow.jobs.folder import TIMINGS
from gaflow.jobs.stored import read_attributions
from gaflow.methods import METHODS
from gaflow.methods.base import MethodInfo
from gaflow.schemas.check import SCHEMAS, check, parse_json

if TYPE_CHECKING:
    import pandas as pd

REPLACEMENTS = ("pad", "mask", "unk", "delete")  # in the order of the tables


@dataclass
class AttributionTimes(Timings):
    """How long attributions took; the trace counts once for all methods."""

    texts: int = 0


@dataclass(frozen=True)
class DataSetReport:
    """One data set of a benchmark."""

    name: str
    slug: str  # its folder
    evaluations: Mapping[str, Evaluation]  # replacement -> evaluation
    left_out: LeftOut
    skipped: Mapping[str, int]  # reason -> texts
    example: Mapping[str, Attribution]  # method -> attribution of the same text
    times: AttributionTimes | None

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """`Evaluation.table()` of every replacement."""
        return {replacement: evaluation.table() for replacement, evaluation in self.evaluations.items()}

    @property
    def methods(self) -> list[str]:
        """The methods of all evaluations."""
        return order_methods(*(evaluation.methods for evaluation in self.evaluations.values()))

    def notes(self) -> list[str]:
        """Methods and texts that were left out."""
        notes = [f"{self.name}: without {method}: {reason}" for method, reason in self.left_out.items()]
        for reason, count in self.skipped.items():
            texts = "text" if count == 1 else "texts"
            notes.append(f"{self.name}: {count:,} {texts} left out: {reason}")
        return notes


def collect(folder: Path, datasets: Sequence[str] | None = None) -> list[DataSetReport]:
    """All finished data sets in `folder`; `datasets` selects and orders them by name."""
    if not folder.is_dir():
        raise DataError(f"no such folder: {str(folder)!r}; pass one that 'gaflow bench' wrote")
    finished = {}
    unfinished = []
    for path in sorted(folder.glob(f"*/{SETTINGS}")):
        data = _read_data_set(path.parent)
        if data.evaluations:
            finished[data.name] = data
        else:
            unfinished.append(data.name)
    if not finished:
        message = f"no evaluation in {str(folder)!r}: it should be a folder that 'gaflow bench' wrote"
        if unfinished:
            message += f"; {', '.join(unfinished)} is not finished: run the benchmark again"
        raise DataError(message)
    if datasets is None:
        return list(finished.values())
    missing = [name for name in datasets if name not in finished]
    if not datasets:
        raise DataError(Argument("datasets"), " is empty; leave it out to report all data sets")
    if missing:
        message = f": no data set {', '.join(missing)} in {str(folder)!r}; there are {', '.join(finished)}"
        raise DataError(Argument("datasets"), message)
    return [finished[name] for name in datasets]


def order_methods(*methods: Iterable[str]) -> list[str]:
    """The different methods of one or several lists, in the order of the tables."""

    def rank(method: str) -> tuple[bool, int]:
        return method == CONTROL, _position(method, PAPER_METHODS)

    return sorted(dict.fromkeys(chain(*methods)), key=rank)


def ranked_first(methods: Iterable[str], ranked: Sequence[str]) -> list[str]:
    """Methods in the order of `ranked`; those that are not ranked come last, in the order of the tables."""
    return sorted(order_methods(methods), key=lambda method: _position(method, ranked))


def method_info(name: str) -> MethodInfo | None:
    """The properties of a method; None if it is not one of METHODS."""
    method: Any = METHODS.get(name)
    return None if method is None else method.info


def family(method: str) -> str:
    """The family of a method, by its name without settings."""
    name, _, _ = method.partition("(")
    info = method_info(name)
    return "" if info is None else info.family


def _read_data_set(folder: Path) -> DataSetReport:
    settings = read_settings(folder)
    left_out = dict(settings["left_out"])
    evaluations = {}
    skipped = {}
    results = sorted(path.parent for path in folder.glob("*/evaluation.json"))
    for result in sorted(results, key=lambda result: _position(result.name, REPLACEMENTS)):
        evaluation = Evaluation.load(result)
        evaluations[evaluation.replacement] = evaluation
        skipped |= evaluation.manifest.get("skipped", {})
        left_out |= evaluation.manifest.get("left_out", {})
    return DataSetReport(
        name=settings["asked"]["name"],
        slug=folder.name,
        evaluations=evaluations,
        left_out=left_out,
        skipped=skipped,
        example=_read_example(folder),
        times=_read_times(folder),
    )


def _position(name: str, names: Sequence[str]) -> int:
    """Where a name is among `names`; behind them if it is not."""
    return names.index(name) if name in names else len(names)


def _read_example(folder: Path) -> dict[str, Attribution]:
    """The stored attributions of one text; none where they do not record the explained class."""
    if not (folder / EXAMPLE).exists():
        return {}
    stored = {item.method: item for item in read_attributions(folder / EXAMPLE)}
    try:
        example = {name: stored[name].attribution() for name in order_methods(stored)}
    except GaflowError:  # from elsewhere, without target or label
        return {}
    texts = {(att.tokens, att.text, att.text_pair) for att in example.values()}
    return example if len(texts) == 1 else {}


def _read_times(folder: Path) -> AttributionTimes | None:
    path = folder / ATTRIBUTIONS / TIMINGS
    if not path.exists():
        return None
    shards: dict[int, dict[str, Any]] = {}
    for line in path.read_bytes().splitlines():
        try:
            entry = parse_json(line)
            check(entry, SCHEMAS["timing"])
        except ValueError:  # the last line of a run that was killed
            continue
        shards[entry["shard"]] = entry  # a shard that was computed again counts once
    times = AttributionTimes()
    for entry in shards.values():
        if "methods" in entry:
            times.texts += entry["texts"]
            times.add(Timings(trace=entry.get("trace", 0.0), methods=entry["methods"], peak=entry.get("peak", {})))
    return times if times.texts else None
