"""Store the results of `benchmarks.reproduce` in results/comparison, data set by data set.

    python -m benchmarks.comparison OUT --commit COMMIT

A data set that OUT has not finished is left out, and what is stored of data sets that OUT does not have stays. So the
comparison can be run in several calls, on a machine that is there for a while: the same seed trains the same weights
again. In results/comparison:

    summary.md          the mean of every method over the replacements, and paired differences of these means
    tables.csv          every measure of every data set, replacement and method
    ranking.csv         worst ranks over the replacements, with intervals and tests
    significance.csv    flow methods and attnlrp against every other method: intervals, tests, Almost Stochastic Order
    pairs.csv           Almost Stochastic Order of all pairs of methods
    means.csv           AOPC of each method: the mean over the replacements
    differences.csv     paired differences of these means, with standard errors
    flows.csv           how many flows converged; see benchmarks.flows
    runs.json           commit, machine, versions, seed, texts, training and hashes of each data set
    <set>.md, figures/  the report of each data set: its ranking, all its tables, its curves
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.report import RESULTS, standard_error
from benchmarks.reproduce import REPLACEMENTS, SETS
from gaflow.benchmark import report
from gaflow.benchmark.folder_layout import slug
from gaflow.evaluation import Evaluation
from gaflow.evaluation.files import DESCRIPTION
from gaflow.methods import METHODS

STORED = RESULTS / "comparison"
TESTED = ("af", "gf", "agf", "relevance_flow", "peeled_flow", "attnlrp")  # against all other methods
COMPARED = (
    ("peeled_flow", "lime"),
    ("peeled_flow", "attnlrp"),
    ("relevance_flow", "ig"),
    ("relevance_flow", "attnlrp"),
    ("attnlrp", "ig"),
)
REPORTED = ("tables.csv", "ranking.csv", "pairs.csv")  # files of a report that are kept for all data sets together

Evaluations = Mapping[str, Evaluation]  # by replacement


def main() -> None:
    """Add the finished data sets of OUT to what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="OUT of benchmarks.reproduce")
    parser.add_argument("--commit", required=True, help="of the run")
    parser.add_argument("--stored", type=Path, default=STORED, help="folder of the results")
    options = parser.parse_args()
    names = finished_sets(options.out)
    if not names:
        raise SystemExit(f"{options.out} has no data set with all of {', '.join(REPLACEMENTS)}")
    for name in names:
        store(name, options.out, options.commit, options.stored)
    write_summary(options.stored)
    print(f"stored in {options.stored}: {', '.join(SETS[name].title for name in names)}")


def finished_sets(out: Path) -> list[str]:
    """The data sets whose texts are masked with every replacement."""
    names = []
    for name, data_set in SETS.items():
        folder = out / "bench" / slug(data_set.title)
        if all((folder / replacement / DESCRIPTION).exists() for replacement in REPLACEMENTS):
            names.append(name)
    return names


def store(name: str, out: Path, commit: str, stored: Path) -> None:
    """Add one data set to all files but the summary."""
    title = SETS[name].title
    folder = out / "bench" / slug(title)
    evaluations = {replacement: Evaluation.load(folder / replacement) for replacement in REPLACEMENTS}
    (stored / "figures").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        report_folder = Path(temporary)
        report(out / "bench", report_folder, datasets=[title])
        for file_name in REPORTED:
            add_rows(stored / file_name, title, pd.read_csv(report_folder / file_name))
        shutil.copy(report_folder / "tables.md", stored / f"{slug(title)}.md")
        for figure in (report_folder / "figures").glob("*.svg"):
            shutil.copy(figure, stored / "figures")
    add_rows(stored / "significance.csv", title, significance(title, evaluations))
    add_rows(stored / "means.csv", title, means(title, evaluations))
    add_rows(stored / "differences.csv", title, differences(title, evaluations))
    add_rows(stored / "flows.csv", title, pd.read_csv(out / "flows" / f"{slug(title)}.csv"))
    training = json.loads((out / "models" / name / "training.json").read_text())
    add_run(stored / "runs.json", title, describe_run(evaluations, training, commit))


def add_rows(path: Path, title: str, rows: pd.DataFrame) -> None:
    """Put the rows of a data set into a CSV file, instead of those that it has of it; in the order of `SETS`."""
    tables = [rows]
    if path.exists():
        tables.append(pd.read_csv(path).query("data_set != @title"))
    order = {data_set.title: number for number, data_set in enumerate(SETS.values())}
    joined = pd.concat(tables).sort_values("data_set", key=lambda titles: titles.map(order), kind="stable")
    joined.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def significance(title: str, evaluations: Evaluations) -> pd.DataFrame:
    """Every comparison of the methods of `TESTED` with the others."""
    tables = []
    for replacement, evaluation in evaluations.items():
        for method in TESTED:
            table = evaluation.significance(method, seed=evaluation.manifest["seed"])
            table.insert(0, "replacement", replacement)
            table.insert(0, "data_set", title)
            tables.append(table)
    return pd.concat(tables)


def mean_aopc(evaluations: Evaluations, order: str) -> np.ndarray:
    """AOPC of every method and text, averaged over the replacements, (methods, texts)."""
    return np.mean([evaluation.per_text("aopc", order) for evaluation in evaluations.values()], 0)


def means(title: str, evaluations: Evaluations) -> pd.DataFrame:
    """The mean of every method over replacements and texts, with its standard error."""
    methods = next(iter(evaluations.values())).methods
    rows: dict[str, Any] = {"data_set": title, "method": methods}
    for order in ("top", "bottom"):
        values = mean_aopc(evaluations, order)
        rows[order] = values.mean(1)
        rows[f"{order}_error"] = standard_error(values)
    return pd.DataFrame(rows)


def differences(title: str, evaluations: Evaluations) -> pd.DataFrame:
    """Paired differences of the pairs in `COMPARED`, with their standard errors."""
    methods = next(iter(evaluations.values())).methods
    rows = []
    for method, other in COMPARED:
        if method not in methods or other not in methods:
            continue
        row: dict[str, Any] = {"data_set": title, "method": method, "other": other}
        for order in ("top", "bottom"):
            values = mean_aopc(evaluations, order)
            difference = values[methods.index(method)] - values[methods.index(other)]
            row[order] = difference.mean()
            row[f"{order}_error"] = standard_error(difference)
        rows.append(row)
    return pd.DataFrame(rows)


def describe_run(evaluations: Evaluations, training: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """Where the numbers of a data set come from."""
    manifest = next(iter(evaluations.values())).manifest
    model = manifest["model"]
    kept = ("data", "sample", "texts", "skipped", "left_out", "seed", "processor")
    run = {"commit": commit} | {key: manifest[key] for key in kept}
    run["truncated"] = manifest["truncated"]
    run["weights"] = model["weights"]
    run["tokenizer"] = model["tokenizer"]
    parts = [manifest, *manifest.get("beside", ())]  # methods may have run in several processes
    run["versions"] = {}
    for part in parts:  # each names the libraries of its own methods
        run["versions"].update(part["versions"])
    run["attributions"] = [part["attributions"] for part in parts]
    run["methods"] = unique_methods(parts)
    run["masked_inputs"] = {}
    for replacement, evaluation in evaluations.items():
        beside = evaluation.manifest.get("beside", ())
        run["masked_inputs"][replacement] = sum(part["inputs"] for part in (evaluation.manifest, *beside))
    run["training"] = dict(training)
    return run


def unique_methods(manifests: list[Mapping[str, Any]]) -> list[Any]:
    """The methods of several manifests; the control is in each of them."""
    methods: list[Any] = []
    for manifest in manifests:
        methods.extend(method for method in manifest["methods"] if method not in methods)
    return methods


def add_run(path: Path, title: str, run: dict[str, Any]) -> None:
    """Put the description of a data set into runs.json."""
    runs = json.loads(path.read_text()) if path.exists() else {}
    runs[title] = run
    ordered = {data_set.title: runs[data_set.title] for data_set in SETS.values() if data_set.title in runs}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def write_summary(stored: Path) -> None:
    """The tables that a reader wants first."""
    runs = json.loads((stored / "runs.json").read_text())
    lines = [
        "# All methods, three replacements",
        "",
        "Test texts. benchmarks/reproduce.py says what is measured, benchmarks/comparison.py what the other files are.",
        "",
        *(describe(title, run) for title, run in runs.items()),
    ]
    missing = [data_set.title for data_set in SETS.values() if data_set.title not in runs]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    table = pd.read_csv(stored / "means.csv")
    lines += mean_table("AOPC of the highest-scored tokens (higher is better)", table, "top", list(runs))
    lines += mean_table("AOPC of the lowest-scored tokens (lower is better)", table, "bottom", list(runs))
    lines += difference_table(pd.read_csv(stored / "differences.csv"), list(runs))
    (stored / "summary.md").write_text("\n".join(lines) + "\n")


def describe(title: str, run: Mapping[str, Any]) -> str:
    """One line about the run of a data set."""
    software = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    accuracy = run["training"]["accuracy"]["test"]
    texts = f"{run['texts']:,} texts, accuracy {accuracy:.3f} on the test file, seed {run['seed']}"
    return f"- {title}: {texts}; {run['processor']}; commit {run['commit']}; {software}"


def mean_table(heading: str, table: pd.DataFrame, order: str, titles: list[str]) -> list[str]:
    """Means over pad, mask and delete with standard errors, best mean rank first."""
    values = table.pivot_table(index="method", columns="data_set", values=order)[titles]
    errors = table.pivot_table(index="method", columns="data_set", values=f"{order}_error")[titles]
    ranks = values.drop(index="random").rank(ascending=order == "bottom")
    mean_rank = ranks.mean(axis=1).sort_values(kind="stable")
    lines = [
        "",
        f"## {heading}",
        "",
        f"Means over {', '.join(REPLACEMENTS)} ± standard errors over texts.",
        "",
        f"| method | passes | {' | '.join(titles)} | mean rank |",
        "|---|---" + "|---:" * (len(titles) + 1) + "|",
    ]
    for method in [*mean_rank.index, "random"]:
        cells = [f"{values.loc[method, title]:.3f} ± {errors.loc[method, title]:.3f}" for title in titles]
        rank = "" if method == "random" else f"{mean_rank[method]:.1f}"
        passes = METHODS[method].info.passes if method in METHODS else ""
        lines.append(f"| `{method}` | {passes} | {' | '.join(cells)} | {rank} |")
    return lines


def difference_table(table: pd.DataFrame, titles: list[str]) -> list[str]:
    """Paired differences, a row for each pair."""
    lines = [
        "",
        "## Differences, highest-scored tokens",
        "",
        "Means over the replacements, paired by text, ± standard errors.",
        "",
        f"| | {' | '.join(titles)} |",
        "|---" + "|---:" * len(titles) + "|",
    ]
    by_pair = table.set_index(["method", "other", "data_set"])
    for method, other in COMPARED:
        cells = []
        for title in titles:
            row = by_pair.loc[(method, other, title)]
            cells.append(f"{row['top']:+.3f} ± {row['top_error']:.3f}")
        lines.append(f"| `{method}` less `{other}` | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
