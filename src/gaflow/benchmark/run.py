"""The faithfulness benchmark: data sets in, evaluations on disk out; killed at any moment it goes on.

    OUT/<data set>/attributions/         a job of `gaflow.jobs`, unless attributions were given
    OUT/<data set>/bench.json            what was asked for, and the methods that the model cannot be explained by
    OUT/<data set>/sample.parquet        the attributions of one text, to look at
    OUT/<data set>/<replacement>/        an Evaluation: values.parquet, texts.parquet, evaluation.json, timings.json

Attributions are computed once, all methods from one trace for each text, and masked texts of all methods are asked
about together. Masking goes shard by shard: what a kill costs does not grow with the data set, and of memory only what
the numbers take that are kept.

The convention this file owns: **what is there and is what was asked for is kept**, and anything else in its place is
refused; but for timings (`timings.json`, `timings.jsonl`) all files end byte for byte as those of a run left alone.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gaflow.benchmark.resumable import BenchmarkSettings, mask_all, slug
from gaflow.benchmark.stored_scores import Shelf, holds_attributions, open_shelf
from gaflow.data import Classes, DataSet, open_data, rows_of
from gaflow.data.readers import pyarrow_module
from gaflow.errors import DataError, GaflowError, JobError, TextError, UnsupportedModelError
from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.arguments import DEFAULT_LEVELS, parse_conditions, softmax_head
from gaflow.evaluation.masking import find_replacement
from gaflow.evaluation.soft_masking import Soft
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.files import write_atomically
from gaflow.jobs import attribute
from gaflow.jobs.folder import claim
from gaflow.methods import Method, Random, find_method
from gaflow.models.limits import padding_of
from gaflow.progress import Progress
from gaflow.provenance import describe_method, describe_model, refuse_other

__all__ = ["ABOUT", "ATTRIBUTIONS", "LARGEST", "PAPER", "SAMPLE", "DataSetOutcome", "bench", "name_of"]

PAPER = (  # the methods of the paper's Table 1, in its order; the control is always added
    "rawatt", "rollout", "grads", "attgrads", "cat", "attcat", "partial_lrp", "transatt", "lime", "kernel_shap", "ig",
    "af", "gf", "agf",
)  # fmt: skip
LARGEST = 5000  # texts, appendix F.1
ABOUT, ATTRIBUTIONS, SAMPLE = "bench.json", "attributions", "sample.parquet"
_TRIED = 64  # texts among which a short one is looked for to try methods on


@dataclass(frozen=True)
class DataSetOutcome:
    """What has become of one data set."""

    name: str
    folder: Path
    finished: bool
    texts: int  # that methods are compared on
    explained: int  # texts explained by this run
    masked: int  # texts masked by this run, once for every replacement
    skipped: Mapping[str, int]  # reason -> texts
    left_out: Mapping[str, str]  # method -> why
    evaluations: Mapping[str, Path]  # replacement -> folder of the Evaluation


def bench(
    explainer: Explainer,
    inputs: Any,
    out: str | Path,
    *,
    methods: Sequence[AnyMethod] | None = None,
    replacements: Sequence[str | int] = ("pad",),
    sample: int | None = LARGEST,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 16,
    shard_size: int = 250,
    truncation: bool = False,
    levels: Sequence[int] = DEFAULT_LEVELS,
    bounds: Bounds | bool = False,
    soft: Soft | bool = False,
    tokens_per_pass: int | None = None,
    progress: Progress = False,
    stop: Callable[[], bool] = lambda: False,
) -> list[DataSetOutcome]:
    """Judge methods on every data set of `inputs`, into folders of `out` that `gaflow.benchmark.report` reads.

    `inputs` is what `gaflow.data.open_data` takes, or stored attributions (a job's folder, a folder of Parquet files or
    one file), or a list of these, or a dict with their names. Models differ from data set to data set: call it for each
    with the same `out`. `methods` are the paper's fourteen unless told, or all that are stored, under whatever name; a
    control of random scores is always there. A method that the model cannot be explained by is left out, and said so.

    Called again with the same arguments it goes on where it was, however it ended. `sample` draws the paper's sample by
    `seed` (None: all texts), which is the control's seed too; `shard_size` texts are the most that a kill costs.
    `progress` counts texts, once for being explained and once for each replacement; `stop` is asked between batches.
    """
    chosen = None if methods is None else tuple(_listed(methods, "methods"))
    asked = tuple(dict.fromkeys(_listed(replacements, "replacements")))
    search, softly = Bounds() if bounds is True else bounds or None, Soft(seed=seed) if soft is True else soft or None
    plan = BenchmarkSettings(
        chosen,
        asked,
        sample,
        limit,
        seed,
        batch_size,
        shard_size,
        truncation,
        tuple(levels),
        search,
        softly,
        tokens_per_pass,
    )
    _check(explainer, plan)
    sources = _named(inputs)
    if not all(_is_stored(source) for source in sources.values()):
        _asked(plan)
    done = []
    for name, source in sources.items():
        done.append(_bench(explainer, name, source, Path(out) / slug(name), plan, progress, stop))
        if not done[-1].finished:
            break
    return done


def name_of(source: Any) -> str:
    """What a data set is called unless told: the name of its file or folder, or its id on the hub."""
    text = str(source.name if isinstance(source, DataSet) else source) if not callable(source) else source.__name__
    if isinstance(source, str | Path) and Path(source).exists():
        path = Path(source).resolve()
        text = path.parent.name if path.name == ATTRIBUTIONS else path.name
    text = text.rstrip("/").rpartition("/")[2]
    return re.sub(r"(\.(parquet|csv|tsv|jsonl|ndjson))?(\.gz)?$", "", text, flags=re.IGNORECASE) or "data"


def _bench(
    explainer: Explainer,
    name: str,
    source: Any,
    folder: Path,
    plan: BenchmarkSettings,
    progress: Progress,
    stop: Callable[[], bool],
) -> DataSetOutcome:
    """One data set, from texts or attributions to evaluations."""
    stored = _is_stored(source)
    first, second = _stages(progress, len(plan.replacements), stored)
    data = None if stored else open_data(source)
    with claim(folder, ABOUT):
        left_out, explained = _begin(explainer, name, data, folder, plan), 0
        if data is None:
            place, names = Path(source), _names(plan)
        else:
            place = folder / ATTRIBUTIONS
            kept = [m for m in _asked(plan) if m.name not in left_out]
            outcome = attribute(
                explainer, data, place, kept, batch_size=plan.batch_size, shard_size=plan.shard_size, seed=plan.seed,
                truncation=plan.truncation, sample=plan.sample, limit=plan.limit, progress=first, stop=stop,
            )  # fmt: skip
            explained, names = outcome.computed, [m.name for m in kept]
            if not outcome.finished:
                return DataSetOutcome(name, folder, False, outcome.texts, explained, 0, outcome.skipped, left_out, {})
        shelf = open_shelf(place, names, plan.shard_size)
        if stored:
            _check_model(explainer, shelf, place)
        _write_example(folder, shelf)
        empty = {} if shelf.job is None else shelf.job["skipped"]  # rows that the job found no text in
        left_out, skipped = {**left_out, **shelf.left_out}, dict(Counter(empty) + Counter(shelf.skipped))
        about = {"data_set": name, "skipped": skipped, "left_out": left_out}
        done, masked = mask_all(explainer, shelf, folder, plan, about, second, stop)
    finished = len(done) == len(plan.replacements)
    return DataSetOutcome(name, folder, finished, sum(shelf.sizes), explained, masked, skipped, left_out, done)


def _begin(
    explainer: Explainer, name: str, data: DataSet | None, folder: Path, plan: BenchmarkSettings
) -> dict[str, str]:
    """The methods to leave out, from bench.json if the folder was begun before; written there if not."""
    path = folder / ABOUT
    chosen = _names(plan) if data is None else [describe_method(m) for m in _asked(plan)]
    asked = {"name": name, "stored": data is None, "methods": chosen}
    if path.exists():
        try:
            found = json.loads(path.read_text("utf-8"))
            there, left_out = dict(found["asked"]), {str(k): str(v) for k, v in found["left_out"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({error}); restore it, or start again in a new folder") from error
        refuse_other(there, asked, folder)
        return left_out
    left_out = {} if data is None else _unsupported(explainer, data, _asked(plan), plan.limit)
    write_atomically(path, (json.dumps({"asked": asked, "left_out": left_out}, indent=2) + "\n").encode())
    return left_out


def _unsupported(explainer: Explainer, data: DataSet, methods: Sequence[Method], limit: int | None) -> dict[str, str]:
    """Methods that the model cannot be explained by, tried on a short text, and why not."""
    rows = rows_of(data, Classes.of(data, explainer.head), limit)
    some = islice((row.given for row in rows if not row.skipped), _TRIED)
    for text in sorted(some, key=lambda given: len("".join(given))):
        try:
            explainer.compare(text, [Random()], truncation=True)
        except TextError:
            continue
        found = {}
        for method in methods:
            try:
                explainer.compare(text, [method], truncation=True)
            except UnsupportedModelError as error:
                found[method.name] = str(error)
            except (GaflowError, ValueError, ArithmeticError, RuntimeError):
                continue  # this text's own trouble, if it is no other's
        if len(found) == len(methods):
            raise UnsupportedModelError(f"no method can explain this model: {next(iter(found.values()))}")
        return found
    return {}


def _check_model(explainer: Explainer, shelf: Shelf, place: Path) -> None:
    """Refuse to judge one model's explanations by another model."""
    if shelf.job is None:
        return
    here, there = describe_model(explainer), shelf.job["model"]
    if (there["weights"], there["tokenizer"]) != (here["weights"], here["tokenizer"]):
        raise JobError(
            f"the attributions in {str(place)!r} explain the model {there['name']!r}, not {here['name']!r}: weights or "
            "tokenizer differ; give that model"
        )


def _write_example(folder: Path, shelf: Shelf) -> None:
    """The attributions of one text, for the report."""
    path = folder / SAMPLE
    if not path.exists():
        data = io.BytesIO()
        pyarrow_module("pyarrow.parquet").write_table(shelf.example, data, compression="zstd")
        write_atomically(path, data.getvalue())


def _is_stored(source: Any) -> bool:
    return isinstance(source, str | Path) and Path(source).exists() and holds_attributions(Path(source))


def _asked(plan: BenchmarkSettings) -> tuple[Method, ...]:
    """The methods to explain texts by."""
    return tuple(find_method(method) for method in (PAPER if plan.methods is None else plan.methods))


def _names(plan: BenchmarkSettings) -> list[str] | None:
    """What the methods of stored scores may be called: other libraries have names of their own."""
    if plan.methods is None:
        return None
    return [method.strip() if isinstance(method, str) else find_method(method).name for method in plan.methods]


def _check(explainer: Explainer, plan: BenchmarkSettings) -> None:
    """Refuse what cannot be done before anything is written."""
    softmax_head(explainer)
    parse_conditions("both", plan.levels, True)
    Random(plan.seed)
    padding = padding_of(explainer.model, explainer.tokenizer)
    for replacement in plan.replacements:
        find_replacement(explainer.model, explainer.tokenizer, padding, replacement)
    for name in ("sample", "limit", "batch_size", "shard_size"):
        value = getattr(plan, name)
        if value is None and name in ("sample", "limit"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}")


def _named(inputs: Any) -> dict[str, Any]:
    """Data sets by name."""
    if isinstance(inputs, Mapping):
        found = {str(name): source for name, source in inputs.items()}
    else:
        each = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        names = [name_of(source) for source in each]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"inputs: several data sets are called {', '.join(twice)}; give them names of their own")
        found = dict(zip(names, each, strict=True))
    if not found:
        raise ValueError("inputs is empty; give at least one data set or folder of attributions")
    slugs = [slug(name) for name in found]
    if len(set(slugs)) < len(slugs):
        raise ValueError(f"inputs: names must differ by more than signs and case, not {', '.join(found)}")
    return found


def _listed(given: Any, name: str) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ValueError(f"{name} must be a list with at least one entry, not {given!r}")
    return given


def _stages(progress: Progress, replacements: int, stored: bool) -> tuple[Progress, Progress]:
    """Who is told of explaining and of masking: one count for a function, a bar each otherwise."""
    if not callable(progress) or stored:
        return progress, progress
    texts = 0

    def explaining(done: float, total: int) -> None:
        nonlocal texts
        texts = total
        progress(done, total * (1 + replacements))

    def masking(done: float, total: int) -> None:
        progress(texts * (1 + replacements * done / total), texts * (1 + replacements))

    return explaining, masking
