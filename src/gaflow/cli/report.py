"""`gaflow report`: tables, curves and a page from the folder of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gaflow.cli.app import Json, app, as_path, number, option, path_option
from gaflow.cli.input_output import check_folder, print_json
from gaflow.cli.progress import spinner
from gaflow.explainer.default_method import DEFAULT, LEADING
from gaflow.view.text import one_line


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(parser=as_path, metavar="DIR", help="What 'gaflow bench' wrote.")],
    out: Annotated[Path | None, path_option("DIR", "Folder of the report; default: the same.", "--out", "-o")] = None,
    datasets: Annotated[str | None, option("A,B,...", "Which data sets, in this order; default: all, by name.")] = None,
    method: Annotated[
        str | None, option("NAME", f"Compared with the best of the others; default: {LEADING} or {DEFAULT}.")
    ] = None,
    resamples: Annotated[int, number("Of texts, for intervals and tests.")] = 500,
    seed: Annotated[int, number("Of the resamples.")] = 0,
    as_json: Json = False,
) -> None:
    """Write tables (md, tex, csv), curves (svg) and one page (html) of a benchmark's results.

    \b
    Examples:
      gaflow report bench
      gaflow report bench -o paper --datasets sst2,imdb,yelp --method agf
    """
    import gaflow.plots  # noqa: F401  # raises an error that says what to install
    from gaflow.benchmark.report import report as write_report

    check_folder("DIR" if out is None else "--out", out or folder)
    names = None if datasets is None else [name.strip() for name in datasets.split(",")]
    with spinner("comparing"):
        files = write_report(folder, out, datasets=names, method=method, resamples=resamples, seed=seed)
    if as_json:
        print_json([str(path) for path in files])
    else:
        for path in files:
            typer.echo(one_line(str(path)))
