"""`gaflow bench`: data sets, or attributions of them -> how faithful methods are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gaflow.arguments import location
from gaflow.benchmark.folder_layout import BENCH_METHODS, PAPER_SAMPLE
from gaflow.benchmark.run import DataSetOutcome, Phases, name_of, run_benchmark
from gaflow.benchmark.settings import BenchmarkSettings
from gaflow.benchmark.stored_scores import holds_attributions
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
    TextColumn,
    Truncation,
    TrustRemoteCode,
    app,
    flag,
    is_all,
    methods_option,
    number,
    option,
    parse_label_names,
    parse_methods,
    split_names,
)
from gaflow.cli.input_output import check_folder, count_reasons, print_json
from gaflow.cli.progress import progress_bar, report_stopped, until_interrupted
from gaflow.data import DataSet, open_data
from gaflow.errors import ArgumentError
from gaflow.evaluation.aopc_bounds import Bounds as AopcBounds
from gaflow.evaluation.arguments import EvaluationSettings
from gaflow.evaluation.soft_masking import Soft
from gaflow.explainer.default_method import LEADING
from gaflow.explainer.explainer import Explainer
from gaflow.progress import Progress
from gaflow.view.text import one_line

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT|DIR...",
        help="Data sets (Parquet, CSV, TSV, JSONL, hub ids) or folders of attributions; NAME=... gives one a name.",
    ),
]
Methods = Annotated[
    list[str] | None,
    methods_option(f"Names from 'gaflow methods', or all; default: the paper's and {LEADING}, or what DIR has."),
]
Replacement = Annotated[
    list[str] | None,
    option("NAME", "What replaces masked tokens: pad (default), mask, unk, delete or an id; may be repeated."),
]
Sample = Annotated[int, number("Draw N texts: half shorter, half longer than the most frequent length; 0: all.")]
Bounds = Annotated[bool, flag("--bounds", "Compute Normalized AOPC, which needs very many forward passes.")]


@app.command()
def bench(
    inputs: Inputs,
    out: OutputFolder,
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_names: LabelNamesOption = None,
    model: Model = None,
    methods: Methods = None,
    replacement: Replacement = None,
    sample: Sample = PAPER_SAMPLE,
    limit: RowLimit = None,
    seed: Annotated[int, number("Seed of the sample and the random control.")] = 0,
    batch_size: BatchSize = 16,
    shard_size: Annotated[int, number("Texts that are masked together: what an interruption costs at most.")] = 250,
    truncation: Truncation = False,
    bounds: Bounds = False,
    soft: Annotated[bool, flag("--soft", "Compute Soft-NC and Soft-NS.")] = False,
    words: Annotated[bool, flag("--words", "Mask whole words instead of tokens.")] = False,
    max_share: Annotated[
        float | None, option("SHARE", "Mask no more than this share of a text at once (F-Fidelity).")
    ] = None,
    split: Split = "test",
    subset: Subset = None,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    device_map: DeviceMapOption = None,
    quantization_config: Quantization = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
) -> int:
    """Measure how faithful methods are, by masking the tokens with the highest and lowest scores.

    One trace of each text serves all methods; stored attributions are used as they are. If the run is interrupted,
    run the same command again to continue. 'gaflow report DIR' makes tables and figures of the
    results.

    \b
    Examples:
      gaflow bench test.parquet -o bench --label-column label --sample 1000 --truncation --model org/name
      gaflow bench imdb=a/test.csv yelp=b/test.csv -o bench --methods agf,ig --replacement pad --replacement delete
      gaflow bench attributions/ -o bench --model org/name
    """
    check_folder("--out", out)
    columns = {
        "text_column": text_column,
        "pair_column": pair_column,
        "label_column": label_column,
        "label_names": parse_label_names(label_names),
        "split": split,
        "subset": subset,
    }
    sources = _open_sources(inputs, columns)
    only_stored = all(isinstance(source, str) for source in sources.values())
    method_names = None  # the default ones, or all that are stored
    if not only_stored:
        checked_names = parse_methods(methods, BENCH_METHODS)
        if methods:
            method_names = tuple(checked_names)
    elif methods and not is_all(methods):
        method_names = tuple(split_names(methods))  # whether there are such methods or not
    replacements = [int(name) if name.isdecimal() else name for name in replacement or ["pad"]]
    settings = BenchmarkSettings(
        methods=method_names,
        replacements=tuple(dict.fromkeys(replacements)),
        sample=sample or None,
        limit=limit,
        shard_size=shard_size,
        evaluation=EvaluationSettings(
            bounds=AopcBounds() if bounds else None,
            soft=Soft(seed=seed) if soft else None,
            batch_size=batch_size,
            truncation=truncation,
            seed=seed,
            unit="word" if words else "token",
            max_share=max_share,
        ),
    )
    what_stays = f"explained texts are stored, and masked ones in groups of {shard_size:,} (--shard-size)"
    with until_interrupted(what_stays) as stop:
        explainer = Explainer(
            model,
            device=device,
            dtype=dtype,
            revision=revision,
            device_map=device_map,
            quantization_config=quantization_config,
            trust_remote_code=trust_remote_code,
        )
        outcomes = run_benchmark(explainer, sources, out, settings, _phases, stop)
    return _print_outcomes(outcomes, len(sources), out, as_json)


@contextmanager
def _phases(name: str) -> Iterator[Phases]:
    """The progress of explaining the texts of a data set and of masking them: one bar after the other.

    A text takes other times in the two phases, so each has its own rate and remaining time. Nothing is said about the
    time that masking will take before it has begun.
    """
    with ExitStack() as bars:
        reports: dict[str, Progress] = {}

        def show(phase: str, done: float, total: int) -> None:
            if phase not in reports:
                bars.close()  # of the phase before, since a terminal draws one bar at a time
                reports[phase] = bars.enter_context(progress_bar(f"{one_line(name)}, {phase}"))
            report = reports[phase]
            if callable(report):
                report(done, total)

        explaining = "1 of 2: explaining (masking follows)"

        def explain(done: float, total: int) -> None:
            show(explaining, done, total)

        def mask(done: float, total: int) -> None:
            show("2 of 2: masking" if explaining in reports else "masking", done, total)

        yield Phases(explain, mask)


def _open_sources(inputs: Sequence[str], columns: dict[str, Any]) -> dict[str, DataSet | str]:
    """Data sets and folders by name (NAME=SOURCE); a wrong one should not cost the loading of a model."""
    sources: dict[str, DataSet | str] = {}
    for item in inputs:
        name, sign, source = item.partition("=")
        name = name.strip()
        if not sign or not name or Path(item).exists():  # the source suggests the name
            name = name_of(item)
            source = item
        if name in sources:
            raise ArgumentError(f"two inputs are called {name!r}; tell them apart by NAME={source}")
        if holds_attributions(location("inputs", source)):
            sources[name] = source
            continue
        data = open_data(source, **columns)
        next(data.read(), None)
        sources[name] = data
    return sources


def _print_outcomes(outcomes: Sequence[DataSetOutcome], total: int, out: Path, as_json: bool) -> int:
    """Print the outcome of every data set and return the exit code."""
    for outcome in outcomes:
        for method, reason in outcome.left_out.items():
            sys.stderr.write(one_line(f"gaflow: {outcome.name}: without {method}: {reason}") + "\n")
    if as_json:
        print_json([vars(outcome) for outcome in outcomes])
    if len(outcomes) < total or not outcomes[-1].finished:
        return report_stopped("what is finished is stored")
    if not as_json:
        for outcome in outcomes:
            parts = [f"{outcome.texts:,} texts ({outcome.explained:,} explained, {outcome.masked:,} masked now)"]
            if outcome.skipped:
                parts.append(f"{sum(outcome.skipped.values()):,} skipped ({count_reasons(outcome.skipped)})")
            if outcome.left_out:
                parts.append(f"{len(outcome.left_out)} methods left out")
            folders = ", ".join(map(str, outcome.evaluations.values()))
            typer.echo(one_line(f"{outcome.name}: {', '.join(parts)}: {folders}"))
        typer.echo(one_line(f"tables and figures: gaflow report {out}"))
    return 0
