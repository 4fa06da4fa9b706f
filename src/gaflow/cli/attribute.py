"""`gaflow attribute`: a data set -> Parquet shards and a manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gaflow.cli.app import (
    Device,
    Json,
    LabelColumn,
    LabelNamesOption,
    Model,
    PairColumn,
    Split,
    Subset,
    TargetLabel,
    TextColumn,
    Truncation,
    WindowsFlag,
    app,
    count,
    label_names_of,
)
from gaflow.cli.input_output import check_folder, print_json
from gaflow.cli.progress import INTERRUPTED, stoppable, watched
from gaflow.data import open_data
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.windows import find_windows
from gaflow.jobs import Outcome, Ray
from gaflow.jobs import attribute as run_job
from gaflow.jobs.engine import Engine
from gaflow.jobs.run import find_engine
from gaflow.methods import DEFAULT, METHODS, find_method
from gaflow.view.text import one_line

__all__ = ["attribute"]


@app.command()
def attribute(
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Parquet, CSV, TSV or JSONL file, or a hub id.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the results; goes on in it.")],
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_names: LabelNamesOption = None,
    model: Model = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"One of 'gaflow methods', several, or all; {DEFAULT} if left out."),
    ] = None,
    target: TargetLabel = None,
    batch_size: Annotated[int, typer.Option(parser=count, metavar="N", help="Texts that run together.")] = 16,
    shard_size: Annotated[int, typer.Option(parser=count, metavar="N", help="Texts of one file.")] = 1000,
    truncation: Truncation = False,
    windows: WindowsFlag = False,
    limit: Annotated[int | None, typer.Option(parser=count, metavar="N", help="Only the first N rows.")] = None,
    sample: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="N texts, half shorter, half longer than the mode.")
    ] = None,
    seed: Annotated[int, typer.Option(parser=count, metavar="N", help="Of the sample.")] = 0,
    split: Split = "test",
    subset: Subset = None,
    device: Device = None,
    engine: Annotated[str, typer.Option(metavar="NAME", help="local, or ray: many machines.")] = "local",
    workers: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Of a Ray cluster; default: all it has room for.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Explain every text of INPUT, by any number of methods, into Parquet files and a manifest.

    Killed at any moment and started again, it goes on with the first unfinished file and ends with the same bytes.

    \b
    Examples:
      gaflow attribute reviews.csv -o why --text-column body --method agf --method attcat
      gaflow attribute test.parquet -o why --label-column label --sample 5000 --truncation --model org/name
      gaflow attribute reviews.parquet -o why --engine ray --workers 8
    """
    find_windows(windows, truncation)
    check_folder("--out", out)
    methods, chosen = _methods(method), _engine(engine, workers, device)
    opened = open_data(
        data, text_column=text_column, pair_column=pair_column, label_column=label_column,
        label_names=label_names_of(label_names), split=split, subset=subset,
    )  # fmt: skip
    next(opened.read(), None)  # a wrong column should not cost the loading of a model
    with stoppable() as stop, watched("explaining") as progress:
        explainer = Explainer(model, device="cpu" if engine == "ray" else device)  # Ray's workers have the devices
        outcome = run_job(
            explainer, opened, out, methods, target=target, batch_size=batch_size, shard_size=shard_size,
            truncation=truncation, windows=windows, sample=sample, limit=limit, seed=seed, engine=chosen,
            progress=progress, stop=stop,
        )  # fmt: skip
    return _tell(outcome, len(methods), as_json)


def _engine(name: str, workers: int | None, device: str | None) -> Engine:
    if name == "ray":
        return Ray(workers, device)
    if workers is not None:
        raise ValueError(f"--workers {workers} is for --engine ray; the engine {name!r} has one")
    return find_engine(name)


def _methods(given: list[str] | None) -> list[str]:
    """The methods meant, checked before a model is loaded."""
    names = [name.strip().lower() for each in given or [DEFAULT] for name in each.split(",")]
    names = list(METHODS) if names == ["all"] else names
    for name in names:
        find_method(name)
    return names


def _tell(outcome: Outcome, methods: int, as_json: bool) -> int:
    """Say what has become of the job, and give the exit code."""
    skipped = sum(outcome.skipped.values())
    if as_json:
        print_json(
            {
                "folder": str(outcome.folder),
                "finished": outcome.finished,
                "total": outcome.total,
                "texts": outcome.texts,
                "computed": outcome.computed,
                "errors": outcome.errors,
                "skipped": outcome.skipped,
                "shards": outcome.shards,
            }
        )
    if not outcome.finished:
        line = f"stopped: {outcome.texts:,} of {outcome.total:,} texts are stored; run the same command again to go on"
        sys.stderr.write(f"gaflow: {line}\n")
        return INTERRUPTED
    if not as_json:
        reasons = ", ".join(f"{n:,} {why}" for why, n in outcome.skipped.items())
        parts = [f"{_count(outcome.texts, 'text')} by {_count(methods, 'method')} ({outcome.computed:,} new)"]
        parts += [f"{_count(skipped, 'row')} skipped ({reasons})"] * bool(skipped)
        parts += [f"{_count(outcome.errors, 'error')} (column 'error')"] * bool(outcome.errors)
        typer.echo(one_line(f"{', '.join(parts)}: {_count(outcome.shards, 'file')} in {outcome.folder}"))
    return 1 if outcome.errors == outcome.texts * methods else 0


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'s' * (n != 1)}"
