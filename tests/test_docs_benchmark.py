"""Every number that docs/benchmark.md calls ours or the paper's is the one in benchmarks/results/faithfulness."""

import csv
import json
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from gaflow.evaluation.bench import PAPER

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmark.md"
RESULTS = ROOT / "benchmarks" / "results" / "faithfulness"
TEXT = PAGE.read_text(encoding="utf-8")
SETS = {"SST-2": "sst2", "IMDB": "imdb", "Yelp": "yelp_polarity", "Amazon": "amazon_polarity", "AG News": "ag_news"}
BESIDE = {"AOPC, top": "aopc_top", "LOdds, top": "lodds_top", "AOPC, bottom": "aopc_bottom", "F1, top": "f1_top"}
HIGHER = {"aopc_top"}  # is better


def rows(name, *key):
    """A CSV file of the results, by the values of some of its columns."""
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return {tuple(row[k] for k in key): row for row in csv.DictReader(file)}


OURS, PAPERS = rows("tables.csv", "data_set", "method"), rows("paper.csv", "data_set", "method")
TESTED = rows("significance.csv", "data_set", "method", "other", "metric", "order")
PAIRS = rows("pairs.csv", "data_set", "metric", "order", "method", "other")
COSTS = rows("costs.csv", "data_set", "method")


def table(start):
    """The first table after a line that begins so: its header, and its rows by the first cell."""
    after = TEXT[TEXT.index("\n" + start) :]
    lines = re.search(r"\n(\|.*\|\n)+", after)
    assert lines, start
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].strip().splitlines()]
    return cells[0], cells[2:]


def values(of, name, column, methods=PAPER):
    return np.array([float(of[name, method][column]) for method in methods])


@pytest.mark.parametrize(("heading", "column"), BESIDE.items())
def test_a_table_beside_the_paper_s_says_what_the_results_say(heading, column):
    header, found = table(f"### {heading} (")
    assert header == ["method", *(f"{name} {whose}" for name in SETS for whose in ("paper", "ours"))]
    assert [row[0] for row in found] == [*PAPER, "random"]
    digits = 2 if column == "f1_top" else 3  # as the paper has them
    for method, *cells in found:
        for k, name in enumerate(SETS):
            for of, cell in ((PAPERS, cells[2 * k]), (OURS, cells[2 * k + 1])):
                if (name, method) not in of:
                    assert (method, cell) == ("random", "–")
                    continue
                value, every = float(of[name, method][column]), values(of, name, column)
                shown = f"{value:.{digits}f}"
                best = method != "random" and value == (every.max() if column in HIGHER else every.min())
                assert cell == (f"**{shown}**" if best else shown), (method, name)


def test_intervals_and_tests_are_those_of_the_results():
    header, found = table("### Intervals, top")
    pairs = [tuple(cell.split(" − ")) for cell in header[2::2]]
    assert pairs == [("agf", "random"), ("gf", "random"), ("agf", "attgrads")]
    assert [row[:2] for row in found] == [[name, metric] for name in SETS for metric in ("AOPC", "LOdds")]
    for name, metric, *cells in found:
        for (method, other), interval, p in zip(pairs, cells[::2], cells[1::2], strict=True):
            row = TESTED[name, method, other, metric.lower(), "top"]
            low, high, difference = (float(row[k]) for k in ("low", "high", "difference"))
            assert (interval, p) == (f"{difference:+.3f} [{low:.3f}, {high:.3f}]", f"{float(row['p_holm']):.3f}")


def test_the_intervals_are_of_the_differences_in_the_table():
    for (name, method, other, metric, order), row in TESTED.items():
        if metric in ("aopc", "lodds"):
            column = f"{metric}_{order}"
            gap = float(OURS[name, method][column]) - float(OURS[name, other][column])
            assert float(row["difference"]) == pytest.approx(gap, rel=1e-4, abs=1e-6)


def test_who_is_better_than_whom_is_what_the_order_says():
    _, found = table("### Almost Stochastic Order, AOPC, top")
    assert [row[0] for row in found] == list(SETS)
    for name, *cells in found:
        better, neither, worse = (set(filter(None, cell.split(", "))) for cell in cells)
        others = {*PAPER, "random"} - {"agf"}
        assert better == {m for m in others if float(PAIRS[name, "aopc", "top", m, "agf"]["epsilon"]) < 0.5}
        assert worse == {m for m in others if float(PAIRS[name, "aopc", "top", "agf", m]["epsilon"]) < 0.5}
        assert neither == others - better - worse


def test_costs_are_those_that_were_measured():
    header, found = table("### Costs by method")
    assert header[3:] == [f"{name} {unit}" for name in SETS for unit in ("ms", "MiB")]
    assert [row[0] for row in found] == list(PAPER)
    for method, forward, backward, *cells in found:
        mine = [COSTS[name, method] for name in SETS]
        for cell, column in ((forward, "forward"), (backward, "backward")):
            ends = sorted({f"{f([float(row[column]) for row in mine]):.0f}" for f in (min, max)}, key=int)
            assert cell == " to ".join(ends)
        assert cells[::2] == [f"{float(row['seconds']) * 1000:.0f}" for row in mine]
        assert cells[1::2] == [f"{int(row['peak_mib']):,}" for row in mine]


def test_rank_correlations_are_those_of_the_two_tables():
    stats = pytest.importorskip("scipy.stats")
    header, found = table("### Rank correlations")
    assert header[1:] == list(SETS)
    assert len(found) == 8
    for what, *cells in found:
        heading, _, which = what.rpartition(", ")
        methods = PAPER if which == "all 14" else PAPER[:-3]
        for name, cell in zip(SETS, cells, strict=True):
            pair = [values(of, name, BESIDE[heading], methods) for of in (PAPERS, OURS)]
            assert cell == f"{stats.spearmanr(*pair).statistic:.2f}"


def test_the_classifiers_are_those_of_the_training_records():
    _, found = table("| data set | trained on")
    used = dict(re.findall(r"^\| ([\w -]+) \| models/.*\| (0\.\d+) \| pad \|", _tables_md(), re.M))
    assert [row[0] for row in found] == list(SETS)
    for name, *cells in found:
        record = json.loads((RESULTS / "models" / f"{SETS[name]}.json").read_text())
        accuracy = [f"{record['accuracy'][part]:.3f}" for part in ("heldout", "test")]
        assert cells == [f"{record['texts']['train']:,}", *accuracy, used[name], f"{record['seconds']:.0f}"]


def _tables_md():
    return (RESULTS / "tables.md").read_text(encoding="utf-8")


def test_all_evaluations_were_run_as_the_page_says():
    inputs = []
    for name in SETS:
        about = json.loads((RESULTS / "manifests" / f"{name.lower().replace(' ', '-')}.json").read_text())["manifest"]
        assert (about["data_set"], about["replacement"], about["seed"], about["skipped"]) == (name, "pad", 0, {})
        assert about["texts"] == (1821 if name == "SST-2" else 1000)
        for package in ("torch", "transformers", "tokenizers", "numpy"):
            assert f"{package} {about['versions'][package]}" in TEXT
        settings = {method["name"]: method["settings"] for method in about["methods"]}
        assert tuple(settings) == PAPER
        assert settings["ig"]["steps"] == 50
        assert settings["lime"]["samples"] == settings["kernel_shap"]["samples"] == 500
        inputs.append(about["inputs"])
    assert f"{min(inputs):,} to {max(inputs):,}" in TEXT
    shares = [float(row["forward_share"]) for row in rows("timings.csv", "data_set").values()]
    assert f"{min(shares):.2f} to {max(shares):.2f} of the time that masking took" in " ".join(TEXT.split())


def test_what_the_page_says_in_words_holds():
    top = {name: dict(zip(PAPER, values(OURS, name, "aopc_top"), strict=True)) for name in SETS}
    order = {name: sorted(top[name], key=lambda m: -top[name][m]) for name in SETS}
    assert {order[name][0] for name in SETS} == {"lime"}
    assert [order[name][1] for name in SETS] == ["kernel_shap", "ig", "ig", "ig", "ig"]
    assert [order[name].index("agf") + 1 for name in SETS] == [12, 13, 12, 13, 10]
    cheap = [[m for m in order[name] if m not in ("lime", "kernel_shap", "ig")] for name in SETS]
    assert [names[0] for names in cheap] == ["attgrads"] * 4 + ["transatt"]
    assert all(set(order[name][-3:]) == {"af", "gf", "agf"} for name in SETS if name != "AG News")
    assert [order["AG News"].index(m) + 1 for m in ("af", "agf", "gf")] == [6, 10, 12]
    within = [float(TESTED[n, "agf", "af", "aopc", "top"][end]) for n in ("SST-2", "Yelp") for end in ("low", "high")]
    assert [value > 0 for value in within] == [False, True, False, True]
    assert all(top[name]["af"] > top[name]["agf"] for name in ("IMDB", "Amazon", "AG News"))
    theirs = {name: dict(zip(PAPER, values(PAPERS, name, "aopc_top"), strict=True)) for name in SETS}
    same = {(a, b) for a, b in permutations(PAPER, 2) if all(t[n][a] > t[n][b] for t in (top, theirs) for n in SETS)}
    few = {("agf", "gf"), ("attgrads", "grads"), ("attcat", "cat"), ("ig", "af"), ("ig", "rawatt")}
    assert same == few | {(a, b) for a in ("kernel_shap", "transatt") for b in ("rawatt", "rollout")}
    ahead = [top[name][m] - top[name]["agf"] for name in SETS for m in ("attgrads", "grads", "transatt")]
    assert min(ahead) > 0


def test_every_link_of_the_page_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (PAGE.parent / target).exists(), target


def test_no_result_names_a_folder_of_a_machine():
    for path in RESULTS.rglob("*"):
        if path.is_file():
            found = re.search(r"(?<![\w.:/])/(home|root|work|tmp|mnt|Users|opt|var)/", path.read_text(encoding="utf-8"))
            assert found is None, (path, found)
