"""`gaflow report`: tables, curves and a page from the folder of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gaflow.cli.app import Json, app, as_path, method_option, number, option, path_option
from gaflow.cli.input_output import check_folder, print_json
from gaflow.cli.progress import spinner
from gaflow.view.text import one_line

if TYPE_CHECKING:
    from gaflow.benchmark.report.verdict import Verdict


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(parser=as_path, metavar="DIR", help="What 'gaflow bench' wrote.")],
    out: Annotated[Path | None, path_option("DIR", "Folder of the report; default: the same.", "--out", "-o")] = None,
    datasets: Annotated[str | None, option("A,B,...", "Which data sets, in this order; default: all, by name.")] = None,
    method: Annotated[
        str | None, method_option("Compare it with the best of the others; default: the best one.")
    ] = None,
    resamples: Annotated[int, number("Resamples of the texts, for intervals and tests.")] = 500,
    seed: Annotated[int, number("Seed of the resamples.")] = 0,
    as_json: Json = False,
) -> None:
    """Say which method is best, and write tables (md, tex, csv), curves (svg) and one page (html) of a benchmark.

    \b
    Examples:
      gaflow report bench
      gaflow report bench -o paper --datasets sst2,imdb,yelp --method agf
    """
    import gaflow.plots  # noqa: F401  # raises an error that says what to install
    from gaflow.benchmark.report.tables import ReportSettings
    from gaflow.benchmark.report.write import make_report

    check_folder("DIR" if out is None else "--out", out or folder)
    names = None if datasets is None else [name.strip() for name in datasets.split(",")]
    settings = ReportSettings(method=method, resamples=resamples, seed=seed)
    with spinner("comparing"):
        written = make_report(folder, names, settings)
        files = written.write(out or folder)
    if as_json:
        print_json([str(path) for path in files])
        return
    for verdict in written.verdicts:
        _print_verdict(verdict)
    for path in files:
        typer.echo(one_line(str(path)))


def _print_verdict(verdict: Verdict) -> None:
    """The ranking as a table, and what it means in words."""
    ranking = verdict.ranking
    rows = [("rank", "method", *(f"AOPC {name}" for name in ranking.replacements), "against random", "against first")]
    for column, method in enumerate(ranking.methods):
        numbers = [f"{mean:.3f}" for mean in ranking.means[:, column]]
        words = (ranking.against_control(method) or "", ranking.against_best(method) or "")
        rows.append((str(ranking.worst[column]), one_line(method), *numbers, *words))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for sentence in verdict.sentences:
        typer.echo(one_line(sentence))
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(f"  {line.rstrip()}")
    typer.echo("")
