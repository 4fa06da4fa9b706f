"""The tables of the pages about faithfulness hold the numbers of benchmarks/results."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from gaflow.benchmark import PAPER_METHODS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FAITHFULNESS = RESULTS / "faithfulness"
PAGE_NAMES = ("benchmark", "relevance_flow", "options", "evaluation", "maxflow", "solver", "nodes", "figures", "paper")
PAGES = {name: ROOT / "docs" / f"{name}.md" for name in PAGE_NAMES}
ALL_METHODS = (*PAPER_METHODS, "path_flow", "signed_flow")  # of the run, whether gaflow still has them or not
DATA_SETS = {
    "SST-2": "sst2",
    "IMDB": "imdb",
    "Yelp": "yelp_polarity",
    "Amazon": "amazon_polarity",
    "AG News": "ag_news",
}
COLUMNS = {
    "AOPC, top": "aopc_top",
    "LOdds, top": "lodds_top",
    "AOPC, bottom": "aopc_bottom",
    "LOdds, bottom": "lodds_bottom",
    "F1, top": "f1_top",
    "Accuracy, top": "accuracy_top",
    "Precision, top": "precision_top",
    "Recall, top": "recall_top",
}
HIGHER_IS_BETTER = {"aopc_top", "lodds_bottom"}
TWO_DIGITS = {"f1_top", "accuracy_top", "precision_top", "recall_top"}  # as the paper has them


def read_rows(name, *keys):
    """The rows of a CSV file of the results, by the values of some of its columns."""
    with (FAITHFULNESS / name).open(newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


OURS = read_rows("tables.csv", "data_set", "method")
PAPERS = read_rows("paper.csv", "data_set", "method")
TESTS = read_rows("significance.csv", "data_set", "method", "other", "metric", "order")
PAIRS = read_rows("pairs.csv", "data_set", "metric", "order", "method", "other")
COSTS = read_rows("costs.csv", "data_set", "method")


def read_table(start, text):
    """The first table after a line that begins with `start`: its header and its rows."""
    after = text[text.index("\n" + start) :]
    match = re.search(r"\n(\|.*\|\n)+", after)
    assert match, start
    lines = match[0].strip().splitlines()
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return header, rows


def page_table(start, page="benchmark"):
    return read_table(start, PAGES[page].read_text(encoding="utf-8"))


def aopc(data_set, method):
    """AOPC with the top tokens masked, as the pages print it."""
    return f"{float(OURS[data_set, method]['aopc_top']):.3f}"


def extent(numbers):
    """The least and the most of some numbers, or the one number that they all are."""
    ends = dict.fromkeys([f"{min(numbers):.0f}", f"{max(numbers):.0f}"])
    return " to ".join(ends)


def costs(method, column):
    """A column of the costs of a method, on every data set."""
    return [float(COSTS[data_set, method][column]) for data_set in DATA_SETS]


def cell_beside_the_paper(results, data_set, method, column):
    """A cell of a table that shows our numbers beside the paper's; the best method is bold."""
    if (data_set, method) not in results:
        return "–"
    compared = [name for name in ALL_METHODS if (data_set, name) in results]
    numbers = [float(results[data_set, name][column]) for name in compared]
    best = max(numbers) if column in HIGHER_IS_BETTER else min(numbers)
    value = float(results[data_set, method][column])
    digits = 2 if column in TWO_DIGITS else 3
    text = f"{value:.{digits}f}"
    return f"**{text}**" if method != "random" and value == best else text


@pytest.mark.parametrize(("heading", "column"), COLUMNS.items())
def test_tables_beside_the_paper(heading, column):
    header, rows = page_table(f"### {heading} (")
    assert header == ["method", *(f"{name} {source}" for name in DATA_SETS for source in ("paper", "ours"))]
    assert [row[0] for row in rows] == [*ALL_METHODS, "random"]
    for method, *cells in rows:
        expected = []
        for data_set in DATA_SETS:
            expected.append(cell_beside_the_paper(PAPERS, data_set, method, column))
            expected.append(cell_beside_the_paper(OURS, data_set, method, column))
        assert cells == expected, method


def comparison(data_set, method, other, metric, order):
    """Interval, p and epsilon of a test, as the page prints them."""
    row = TESTS[data_set, method, other, metric, order]
    interval = f"{float(row['difference']):+.3f} [{float(row['low']):.3f}, {float(row['high']):.3f}]"
    return [interval, f"{float(row['p_holm']):.3f}", f"{float(row['epsilon']):.3f}"]


def test_the_table_of_intervals():
    header, rows = page_table("### Intervals, top")
    pairs = [tuple(cell.split(" − ")) for cell in header[2::2]]
    assert pairs == [("agf", "random"), ("gf", "random"), ("agf", "attgrads"), ("signed_flow", "attgrads")]
    assert [row[:2] for row in rows] == [[name, metric] for name in DATA_SETS for metric in ("AOPC", "LOdds")]
    for data_set, metric, *cells in rows:
        expected = []
        for method, other in pairs:
            expected += comparison(data_set, method, other, metric.lower(), "top")[:2]
        assert cells == expected


def test_the_table_of_path_flow_and_its_rivals():
    header, rows = page_table("### path_flow against LIME and IG")
    assert header[2::3] == ["path_flow − lime", "path_flow − ig"]
    metrics = {
        "AOPC, top": ("aopc", "top"),
        "LOdds, top": ("lodds", "top"),
        "AOPC, bottom": ("aopc", "bottom"),
        "LOdds, bottom": ("lodds", "bottom"),
        "SRG": ("srg", "both"),
    }
    assert [row[:2] for row in rows] == [[name, metric] for name in DATA_SETS for metric in metrics]
    for data_set, name, *cells in rows:
        metric, order = metrics[name]
        lime = comparison(data_set, "path_flow", "lime", metric, order)
        ig = comparison(data_set, "path_flow", "ig", metric, order)
        assert cells == lime + ig


def test_differences_are_those_of_the_means():
    for (data_set, method, other, metric, order), row in TESTS.items():
        if metric in ("aopc", "lodds"):
            column = f"{metric}_{order}"
            difference = float(OURS[data_set, method][column]) - float(OURS[data_set, other][column])
            assert float(row["difference"]) == pytest.approx(difference, rel=1e-4, abs=1e-6)


def test_the_first_table_has_scores_and_costs_of_all_methods():
    header, rows = page_table("### At a glance")
    assert header == ["method", "forward", "backward", "ms", *DATA_SETS, "mean rank"]
    ranks = {method: [] for method in ALL_METHODS}
    for data_set in DATA_SETS:
        best_first = sorted(ALL_METHODS, key=lambda method, name=data_set: -float(OURS[name, method]["aopc_top"]))
        for rank, method in enumerate(best_first, 1):
            ranks[method].append(rank)
    mean_rank = {method: np.mean(ranks[method]) for method in ALL_METHODS}
    assert [row[0] for row in rows] == sorted(ALL_METHODS, key=lambda method: mean_rank[method])
    for method, *cells in rows:
        milliseconds = [1000 * seconds for seconds in costs(method, "seconds")]
        passes = [extent(costs(method, "forward")), extent(costs(method, "backward"))]
        scores = [aopc(data_set, method) for data_set in DATA_SETS]
        assert cells == [*passes, extent(milliseconds), *scores, f"{mean_rank[method]:.1f}"]


@pytest.mark.parametrize(
    ("heading", "bound"), [("Almost Stochastic Order, AOPC, top", 0.5), ("The same below 0.2", 0.2)]
)
def test_the_tables_of_almost_stochastic_order(heading, bound):
    _, rows = page_table(f"### {heading}")
    assert [row[0] for row in rows] == list(DATA_SETS)
    others = {*ALL_METHODS, "random"} - {"agf"}
    for data_set, *cells in rows:
        listed = [set(filter(None, cell.split(", "))) for cell in cells]
        better = {name for name in others if float(PAIRS[data_set, "aopc", "top", name, "agf"]["epsilon"]) < bound}
        worse = {name for name in others if float(PAIRS[data_set, "aopc", "top", "agf", name]["epsilon"]) < bound}
        assert listed == [better, others - better - worse, worse]


def test_the_table_of_costs():
    header, rows = page_table("### Costs by method")
    assert header[3:] == [f"{name} {unit}" for name in DATA_SETS for unit in ("ms", "MiB")]
    assert [row[0] for row in rows] == list(ALL_METHODS)
    for method, forward, backward, *cells in rows:
        assert forward == extent(costs(method, "forward"))
        assert backward == extent(costs(method, "backward"))
        assert cells[::2] == [f"{1000 * seconds:.0f}" for seconds in costs(method, "seconds")]
        assert cells[1::2] == [f"{mib:,.0f}" for mib in costs(method, "peak_mib")]


def test_the_table_of_rank_correlations():
    stats = pytest.importorskip("scipy.stats")
    header, rows = page_table("### Rank correlations")
    assert header[1:] == list(DATA_SETS)
    assert len(rows) == 8
    for name, *cells in rows:
        heading, _, which = name.rpartition(", ")
        methods = PAPER_METHODS if which == "all 14" else PAPER_METHODS[:-3]
        for data_set, cell in zip(DATA_SETS, cells, strict=True):
            theirs = [float(PAPERS[data_set, method][COLUMNS[heading]]) for method in methods]
            ours = [float(OURS[data_set, method][COLUMNS[heading]]) for method in methods]
            assert cell == f"{stats.spearmanr(theirs, ours).statistic:.2f}"


def test_the_table_of_classifiers():
    _, rows = page_table("| data set | trained on")
    report = (FAITHFULNESS / "tables.md").read_text(encoding="utf-8")
    accuracy_on_sample = dict(re.findall(r"^\| ([\w -]+) \| models/.*\| (0\.\d+) \| pad \|", report, re.M))
    assert [row[0] for row in rows] == list(DATA_SETS)
    for data_set, *cells in rows:
        record = json.loads((FAITHFULNESS / "models" / f"{DATA_SETS[data_set]}.json").read_text())
        assert cells == [
            f"{record['texts']['train']:,}",
            f"{record['accuracy']['heldout']:.3f}",
            f"{record['accuracy']['test']:.3f}",
            accuracy_on_sample[data_set],
            f"{record['seconds']:.0f}",
        ]


def test_the_table_of_lengths():
    header, rows = page_table("### Lengths in characters")
    lengths = read_rows("lengths.csv", "data_set")
    assert header[1:] == [
        f"{name} {source}" for name in ("texts", "mode", "least", "most", "mean") for source in ("paper", "ours")
    ]
    assert [row[0] for row in rows] == list(DATA_SETS)
    for data_set, *cells in rows:
        row = lengths[(data_set,)]
        sample = manifest(data_set)["sample"]
        assert sample is None or sample["mode"] == int(row["mode"])
        assert manifest(data_set)["texts"] == int(row["texts"])
        ours = [f"{int(row[name]):,}" for name in ("texts", "mode", "least", "most")]
        assert cells[1::2] == [*ours, f"{float(row['mean']):,.1f}"]


def manifest(data_set):
    """The manifest of the first run, which has that of the second beside it."""
    path = FAITHFULNESS / "manifests" / f"{data_set.lower().replace(' ', '-')}.json"
    return json.loads(path.read_text())["manifest"]


def test_both_runs_of_all_evaluations_have_the_same_settings():
    runs = json.loads((FAITHFULNESS / "manifests" / "runs.json").read_text())
    assert [set(run["methods"]) for run in runs] == [{*PAPER_METHODS, "random"}, {"path_flow", "signed_flow"}]
    for data_set in DATA_SETS:
        first = manifest(data_set)
        (second,) = first["beside"]
        for key in ("data", "sample", "truncated", "levels"):
            assert first[key] == second[key]
        assert first["model"]["weights"] == second["model"]["weights"]
        settings = {}
        for record, run in zip((first, second), runs, strict=True):
            assert record["data_set"] == data_set
            assert record["replacement"] == "pad"
            assert record["seed"] == 0
            assert record["skipped"] == {}
            assert record["texts"] == (1821 if data_set == "SST-2" else 1000)
            assert record["attributions"] == run["attributions"][data_set]
            methods = {method["name"]: method["settings"] for method in record["methods"]}
            assert set(methods) == set(run["methods"]) - {"random"}
            settings |= methods
        assert settings["ig"]["steps"] == 50
        assert settings["lime"]["samples"] == settings["kernel_shap"]["samples"] == 500
        assert settings["path_flow"]["steps"] == settings["path_flow"]["groups"] == 4
        assert settings["signed_flow"]["layer"] == "all"


def test_all_flows_converged():
    flows = read_rows("flows.csv", "data_set", "method")
    methods = ("af", "gf", "agf", "path_flow", "signed_flow")
    assert set(flows) == {(data_set, method) for data_set in DATA_SETS for method in methods}
    for row in flows.values():
        assert row["texts"] == row["converged"]


COMPARISON = RESULTS / "comparison"


def read_comparison(name, *keys):
    with (COMPARISON / name).open(newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(file)}


def test_the_tables_on_test_texts():
    means = read_comparison("means.csv", "data_set", "method")
    header, rows = page_table("### On test texts", "relevance_flow")
    for data_set in header[2:]:
        top = {method: float(row["top"]) for (title, method), row in means.items() if title == data_set}
        best_first = sorted(top, key=lambda method, top=top: -top[method])
        named = [row[0].strip("`") for row in rows]
        assert set(best_first[:5]) <= set(named)
        for method, row in zip(named, rows, strict=True):
            error = float(means[data_set, method]["top_error"])
            cell = row[header.index(data_set)]
            assert cell.strip("*") == f"{top[method]:.3f} ± {error:.3f}"
            assert cell.startswith("**") == (method == best_first[0])
    differences = read_comparison("differences.csv", "data_set", "method", "other")
    header, rows = page_table("| paired difference", "relevance_flow")
    for pair, *cells in rows:
        method, other = re.findall(r"`(\w+)`", pair)
        for data_set, cell in zip(header[1:], cells, strict=True):
            row = differences[data_set, method, other]
            assert cell == f"{float(row['top']):+.3f} ± {float(row['top_error']):.3f}"


def test_the_table_of_costs_over_the_passes_of_the_model():
    measured = read_table("| tokens | attention", (RESULTS / "method_cost.md").read_text(encoding="utf-8"))
    columns = {name.removesuffix(", ratio"): number for number, name in enumerate(measured[0])}
    fused = {row[0]: row for row in measured[1] if row[1] == "fused"}
    header, rows = page_table("## Cost", "relevance_flow")
    assert [row[0] for row in rows] == list(fused)
    for tokens, *cells in rows:
        for method, cell in zip(header[1:], cells, strict=True):
            assert cell == f"{float(fused[tokens][columns[method.strip('`')]]):.1f}"


def test_the_comparison_repeats_the_older_run():
    again = read_comparison("tables.csv", "data_set", "replacement", "method")
    compared = 0
    for (data_set, replacement, method), row in again.items():
        if replacement == "pad" and (data_set, method) in OURS:
            compared += 1
            assert float(row["aopc_top"]) == pytest.approx(float(OURS[data_set, method]["aopc_top"]), abs=1e-5)
            assert float(row["aopc_bottom"]) == pytest.approx(float(OURS[data_set, method]["aopc_bottom"]), abs=1e-5)
    assert compared >= 15


def test_all_flows_of_the_comparison_converged():
    flows = read_comparison("flows.csv", "data_set", "method")
    assert {method for _, method in flows} == {"af", "gf", "agf", "relevance_flow", "peeled_flow"}
    for row in flows.values():
        assert row["texts"] == row["converged"]


def read_sanity(start):
    """A table of the sanity checks: method -> column -> cell."""
    header, rows = read_table(start, (RESULTS / "sanity.md").read_text(encoding="utf-8"))
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_the_table_of_sanity_checks():
    header, rows = page_table("### Sanity", "evaluation")
    assert header[1:] == ["another class", "head drawn anew", "all but layer 1 drawn anew", "planted word first"]
    other_class = read_sanity("## Another class")
    weights = read_sanity("Rank correlation with the")
    planted = read_sanity("## Planted words")
    assert [row[0] for row in rows] == list(other_class)
    for method, *cells in rows:
        precision = float(planted[method]["precision@k"].split()[0])
        assert cells == [
            other_class[method]["rank correlation"],
            weights[method]["head"],
            weights[method]["layer 2"],
            f"{100 * precision:.0f} %",
        ]


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name):
    text = PAGES[name].read_text(encoding="utf-8")
    for target, _, anchor in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", text):
        path = PAGES[name].parent / target if target else PAGES[name]
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.M)
            anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors


def test_no_result_names_a_folder_of_a_machine():
    for path in FAITHFULNESS.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            match = re.search(r"(?<![\w.:/])/(home|root|work|tmp|mnt|Users|opt|var)/", text)
            assert match is None, (path, match)
