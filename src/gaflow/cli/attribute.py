"""`gaflow attribute`: a data set -> Parquet shards and a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gaflow.cli.app import (
    BatchSize,
    Device,
    DeviceMapOption,
    Dtype,
    Json,
    LabelColumn,
    LabelNamesOption,
    Model,
    OutputFolder,
    PairColumn,
    Quantization,
    Revision,
    RowLimit,
    Split,
    Subset,
    TargetLabel,
    TextColumn,
    Truncation,
    TrustRemoteCode,
    WindowsFlag,
    app,
    number,
    option,
    parse_label_names,
    parse_methods,
)
from gaflow.cli.input_output import check_folder, count_reasons, print_json
from gaflow.cli.progress import advising, progress_bar, report_stopped, until_interrupted
from gaflow.data import open_data
from gaflow.explainer.cheaper_method import cheaper_advice, pass_cost
from gaflow.explainer.default_method import DEFAULT_WORDS
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.windows import find_windows
from gaflow.jobs import Local, Ray
from gaflow.jobs import attribute as run_job
from gaflow.jobs.run import Outcome, find_engine
from gaflow.methods import find_method
from gaflow.progress import Advice
from gaflow.view.text import one_line


@app.command()
def attribute(
    data: Annotated[str, typer.Argument(metavar="INPUT", help="Parquet, CSV, TSV or JSONL file, or a hub id.")],
    out: OutputFolder,
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_names: LabelNamesOption = None,
    model: Model = None,
    method: Annotated[
        list[str] | None,
        option("A,B,...", f"Names from 'gaflow methods', or all; default: {DEFAULT_WORDS}.", "--method", "--methods"),
    ] = None,
    target: TargetLabel = None,
    batch_size: BatchSize = 16,
    shard_size: Annotated[int, number("Texts per file; what a killed run repeats at most.")] = 1000,
    truncation: Truncation = False,
    windows: WindowsFlag = False,
    limit: RowLimit = None,
    sample: Annotated[
        int | None, number("Draw N texts: half shorter, half longer than the most frequent length.")
    ] = None,
    seed: Annotated[int, number("Seed of the sample.")] = 0,
    split: Split = "test",
    subset: Subset = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMapOption = None,
    quantization_config: Quantization = None,
    trust_remote_code: TrustRemoteCode = False,
    engine: Annotated[str, option("NAME", "local, or ray: many machines.")] = "local",
    workers: Annotated[
        int | None, number("Processes that share the work; default: one, or as many as fit a Ray cluster.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Explain every text of INPUT, by any number of methods, into Parquet files and a manifest.

    Ctrl-C ends it within seconds, and texts that are done are stored. Run the same command again to go on. A run that
    is killed explains the texts of its unfinished file again.

    \b
    Examples:
      gaflow attribute reviews.csv -o why --text-column body --method agf --method attcat
      gaflow attribute test.parquet -o why --label-column label --sample 5000 --truncation --model org/name
      gaflow attribute reviews.parquet -o why --workers 4
      gaflow attribute reviews.parquet -o why --engine ray --workers 8
    """
    find_windows(windows, truncation)
    check_folder("--out", out)
    methods = parse_methods(method) if method else None
    if engine == "ray":
        engine_settings = Ray(workers, device)
    elif engine == "local":
        engine_settings = Local(workers)
    else:
        engine_settings = find_engine(engine)
    data_set = open_data(
        data,
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        label_names=parse_label_names(label_names),
        split=split,
        subset=subset,
    )
    next(data_set.read(), None)  # a wrong column should not cost the loading of a model
    what_stays = "texts that are done are stored"
    if engine == "ray":
        what_stays = "finished files are stored, and a smaller --shard-size makes them finish sooner"
    with until_interrupted(what_stays) as stop, progress_bar("explaining") as progress:
        model_device = "cpu" if engine == "ray" else device  # Ray's workers have the devices
        explainer = Explainer(
            model,
            device=model_device,
            dtype=dtype,
            revision=revision,
            device_map=device_map,
            quantization_config=quantization_config,
            trust_remote_code=trust_remote_code,
        )
        outcome = run_job(
            explainer,
            data_set,
            out,
            methods,
            target=target,
            batch_size=batch_size,
            shard_size=shard_size,
            truncation=truncation,
            windows=windows,
            sample=sample,
            limit=limit,
            seed=seed,
            engine=engine_settings,
            progress=advising(progress, _advice(methods or [], explainer)),
            stop=stop,
        )
    if as_json:
        print_json(vars(outcome))
    if not outcome.finished:
        return report_stopped(f"{outcome.texts:,} of {outcome.total:,} texts are stored")
    if not as_json:
        typer.echo(_summary(outcome))
    if outcome.errors == outcome.texts * len(outcome.methods):
        return 1
    return 0


def _summary(outcome: Outcome) -> str:
    """One line about a finished run."""
    names = outcome.methods
    methods_used = names[0] if len(names) == 1 else _plural(len(names), "method")
    explained = f"{_plural(outcome.texts, 'text')} by {methods_used}"
    parts = [f"{explained} ({outcome.computed:,} new)"]
    skipped = sum(outcome.skipped.values())
    if skipped:
        parts.append(f"{_plural(skipped, 'row')} skipped ({count_reasons(outcome.skipped)})")
    if outcome.errors:
        parts.append(f"{_plural(outcome.errors, 'error')} (column 'error')")
    return one_line(f"{', '.join(parts)}: {_plural(outcome.shards, 'file')} in {outcome.folder}")


def _advice(methods: Sequence[str], explainer: Explainer) -> Advice | None:
    """One line about the default method, if one of the methods takes much longer."""
    most_expensive = max(map(find_method, methods), key=lambda method: pass_cost(method) or 0, default=None)
    if most_expensive is None:
        return None
    return cheaper_advice(most_expensive, lambda: explainer.default, "--method {}")


def _plural(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}s"
