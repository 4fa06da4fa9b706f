"""`gaflow bench`: data sets, or attributions of them -> how faithful methods are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gaflow.benchmark.run import LARGEST, PAPER, DataSetOutcome, name_of
from gaflow.benchmark.run import bench as run_bench
from gaflow.benchmark.stored_scores import holds_attributions
from gaflow.cli.app import (
    Device,
    Json,
    LabelColumn,
    LabelNamesOption,
    Model,
    PairColumn,
    Split,
    Subset,
    TextColumn,
    Truncation,
    app,
    count,
    label_names_of,
    method_names,
    split_names,
)
from gaflow.cli.input_output import check_folder, print_json
from gaflow.cli.progress import INTERRUPTED, stoppable, watched
from gaflow.data import open_data
from gaflow.explainer.explainer import Explainer
from gaflow.view.text import one_line

__all__ = ["bench"]


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT|DIR...",
        help="Data sets (Parquet, CSV, TSV, JSONL, hub ids) or folders of attributions; NAME=... gives one a name.",
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...", help="Of 'gaflow methods', or all; default: the paper's fourteen, or what DIR holds."
    ),
]
Replacement = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Of masked tokens: pad (default), mask, unk, delete or an id; may be repeated."),
]
Sample = Annotated[
    int, typer.Option(parser=count, metavar="N", help="N texts, half shorter, half longer than the mode; 0: all.")
]
Bounds = Annotated[bool, typer.Option("--bounds", help="Normalized AOPC too, which asks the model very often.")]


@app.command()
def bench(
    inputs: Inputs,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the results; goes on in it.")],
    text_column: TextColumn = "text",
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    label_names: LabelNamesOption = None,
    model: Model = None,
    methods: Methods = None,
    replacement: Replacement = None,
    sample: Sample = LARGEST,
    limit: Annotated[int | None, typer.Option(parser=count, metavar="N", help="Only the first N rows.")] = None,
    seed: Annotated[int, typer.Option(parser=count, metavar="N", help="Of the sample and the random control.")] = 0,
    batch_size: Annotated[int, typer.Option(parser=count, metavar="N", help="Texts explained together.")] = 16,
    shard_size: Annotated[int, typer.Option(parser=count, metavar="N", help="Texts that a kill costs at most.")] = 250,
    truncation: Truncation = False,
    bounds: Bounds = False,
    soft: Annotated[bool, typer.Option("--soft", help="Soft-NC and Soft-NS too.")] = False,
    split: Split = "test",
    subset: Subset = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Judge how faithful methods are, by masking the tokens that they score highest and lowest.

    Texts are explained by all methods from one trace each, attributions are taken as they are. Killed at any moment and
    started again, it goes on where it was. 'gaflow report DIR' makes tables and figures of the results.

    \b
    Examples:
      gaflow bench test.parquet -o bench --label-column label --sample 1000 --truncation --model org/name
      gaflow bench imdb=a/test.csv yelp=b/test.csv -o bench --methods agf,ig --replacement pad --replacement delete
      gaflow bench attributions/ -o bench --model org/name
    """
    check_folder("--out", out)
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    columns |= {"label_names": label_names_of(label_names), "split": split, "subset": subset}
    sources = _sources(inputs, lambda given: open_data(given, **columns))
    chosen = _methods(methods, all(isinstance(source, str) for source in sources.values()))
    done: list[DataSetOutcome] = []
    with stoppable() as stop:
        explainer = Explainer(model, device=device)
        for name, source in sources.items():
            with watched(f"benchmark of {one_line(name)}") as progress:
                done += run_bench(
                    explainer, {name: source}, out, methods=chosen, replacements=_replacements(replacement),
                    sample=sample or None, limit=limit, seed=seed, batch_size=batch_size, shard_size=shard_size,
                    truncation=truncation, bounds=bounds, soft=soft, progress=progress, stop=stop,
                )  # fmt: skip
            if not done[-1].finished:
                break
    return _tell(done, len(sources), out, as_json)


def _methods(given: str | None, stored: bool) -> list[str] | None:
    """The methods meant: to explain by, ours; of stored attributions alone, any that are there."""
    if stored:
        return None if given is None or given.strip().lower() == "all" else split_names(given)
    names = method_names(given, PAPER)
    return None if given is None else names


def _replacements(given: Sequence[str] | None) -> list[str | int]:
    return [int(name) if name.isdecimal() else name for name in given or ["pad"]]


def _sources(given: Sequence[str], opened: Callable[[str], Any]) -> dict[str, Any]:
    """Data sets and folders by name; a wrong file or column should not cost the loading of a model."""
    found: dict[str, Any] = {}
    for item in given:
        name, sign, place = item.partition("=")
        if not sign or not name.strip() or Path(item).exists():
            name, place = "", item
        if Path(place).exists() and holds_attributions(Path(place)):
            source: Any = place
        else:
            source = opened(place)
            next(source.read(), None)
        name = name.strip() or name_of(place)
        if name in found:
            raise ValueError(f"two inputs are called {name!r}; tell them apart by NAME={place}")
        found[name] = source
    return found


def _tell(done: Sequence[DataSetOutcome], total: int, out: Path, as_json: bool) -> int:
    """Say what has become of every data set, and give the exit code."""
    for each in done:
        for method, why in each.left_out.items():
            sys.stderr.write(one_line(f"gaflow: {each.name}: without {method}: {why}") + "\n")
    finished = len(done) == total and done[-1].finished
    if as_json:
        print_json([_plain(each) for each in done])
    if not finished:
        sys.stderr.write("gaflow: stopped: what is finished is stored; run the same command again to go on\n")
        return INTERRUPTED
    if not as_json:
        for each in done:
            skipped = ", ".join(f"{n:,} {why}" for why, n in each.skipped.items())
            parts = [f"{each.texts:,} texts ({each.explained:,} explained, {each.masked:,} masked now)"]
            parts += [f"{sum(each.skipped.values()):,} skipped ({skipped})"] * bool(skipped)
            parts += [f"{len(each.left_out)} methods left out"] * bool(each.left_out)
            where = ", ".join(str(place) for place in each.evaluations.values())
            typer.echo(one_line(f"{each.name}: {', '.join(parts)}: {where}"))
        typer.echo(one_line(f"tables and figures: gaflow report {out}"))
    return 0


def _plain(each: DataSetOutcome) -> dict[str, Any]:
    return {
        "name": each.name,
        "folder": str(each.folder),
        "finished": each.finished,
        "texts": each.texts,
        "explained": each.explained,
        "masked": each.masked,
        "skipped": dict(each.skipped),
        "left_out": dict(each.left_out),
        "evaluations": {name: str(place) for name, place in each.evaluations.items()},
    }
