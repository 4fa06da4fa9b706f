"""Every number that the pages about faithfulness call ours or the paper's is the one in benchmarks/results."""

import ast
import csv
import json
import re
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaflow import METHODS, FlowMethod
from gaflow.benchmark import PAPER_METHODS
from gaflow.methods.base import full_name

ROOT = Path(__file__).parents[2]
STUDIED = ROOT / "benchmarks" / "results"
RESULTS = STUDIED / "faithfulness"
PAGES = {name: ROOT / "docs" / f"{name}.md" for name in ("benchmark", "path_flow", "options", "evaluation")}
TEXTS = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
TEXT = TEXTS["benchmark"]
ALL = (*PAPER_METHODS, "path_flow", "signed_flow")
KNOWN: dict[str, Any] = dict(METHODS)
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


def table(start, text=TEXT):
    """The first table after a line that begins so: its header and its rows."""
    after = text[text.index("\n" + start) :]
    lines = re.search(r"\n(\|.*\|\n)+", after)
    assert lines, start
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].strip().splitlines()]
    return cells[0], cells[2:]


def values(of, name, column, methods=PAPER_METHODS):
    return np.array([float(of[name, method][column]) for method in methods])


def said(text):
    """A page as one line."""
    return " ".join(text.split())


def span(numbers, digits=0):
    """The least and the most of some numbers."""
    return " to ".join(dict.fromkeys(f"{end:.{digits}f}" for end in (min(numbers), max(numbers))))


@pytest.mark.parametrize(("heading", "column"), BESIDE.items())
def test_a_table_beside_the_paper_s_says_what_the_results_say(heading, column):
    header, found = table(f"### {heading} (")
    assert header == ["method", *(f"{name} {whose}" for name in SETS for whose in ("paper", "ours"))]
    assert [row[0] for row in found] == [*ALL, "random"]
    digits = 2 if column == "f1_top" else 3  # as the paper has them
    for method, *cells in found:
        for k, name in enumerate(SETS):
            for of, methods, cell in ((PAPERS, PAPER_METHODS, cells[2 * k]), (OURS, ALL, cells[2 * k + 1])):
                if (name, method) not in of:
                    assert (of is PAPERS, method in PAPER_METHODS, cell) == (True, False, "–")
                    continue
                value, every = float(of[name, method][column]), values(of, name, column, methods)
                shown = f"{value:.{digits}f}"
                best = method != "random" and value == (every.max() if column in HIGHER else every.min())
                assert cell == (f"**{shown}**" if best else shown), (method, name)


def test_intervals_and_tests_are_those_of_the_results():
    header, found = table("### Intervals, top")
    pairs = [tuple(cell.split(" − ")) for cell in header[2::2]]
    assert pairs == [("agf", "random"), ("gf", "random"), ("agf", "attgrads"), ("signed_flow", "attgrads")]
    assert [row[:2] for row in found] == [[name, metric] for name in SETS for metric in ("AOPC", "LOdds")]
    for name, metric, *cells in found:
        for (method, other), interval, p in zip(pairs, cells[::2], cells[1::2], strict=True):
            assert [interval, p] == compared(name, method, other, metric.lower(), "top")[:2]


def compared(*which):
    """Interval, p and epsilon of a row of the tests, as the page shows them."""
    row = {key: float(TESTED[which][key]) for key in ("low", "high", "difference", "p_holm", "epsilon")}
    interval = f"{row['difference']:+.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    return [interval, f"{row['p_holm']:.3f}", f"{row['epsilon']:.3f}"]


def test_path_flow_beside_its_rivals_is_what_the_tests_say():
    header, found = table("### path_flow beside LIME and IG")
    assert header[2::3] == ["path_flow − lime", "path_flow − ig"]
    metrics = {"AOPC, top": ("aopc", "top"), "LOdds, top": ("lodds", "top"), "AOPC, bottom": ("aopc", "bottom")}
    metrics |= {"LOdds, bottom": ("lodds", "bottom"), "SRG": ("srg", "both")}
    assert [row[:2] for row in found] == [[name, metric] for name in SETS for metric in metrics]
    for name, metric, *cells in found:
        expected = [compared(name, "path_flow", other, *metrics[metric]) for other in ("lime", "ig")]
        assert cells == expected[0] + expected[1]
    most = max(len([1 for key in TESTED if key[:2] == (name, "path_flow")]) for name in SETS)
    assert f"the {most} comparisons of a method" in said(TEXT)


def test_the_first_table_has_scores_and_costs_of_all_methods():
    header, found = table("### At a glance")
    assert header == ["method", "forward", "backward", "ms", *SETS, "mean rank"]
    places = {name: sorted(ALL, key=lambda m, name=name: -float(OURS[name, m]["aopc_top"])) for name in SETS}
    rank = {m: np.mean([places[name].index(m) + 1 for name in SETS]) for m in ALL}
    assert [row[0] for row in found] == sorted(ALL, key=lambda m: rank[m])
    for method, forward, backward, ms, *cells in found:
        mine = [COSTS[name, method] for name in SETS]
        assert [forward, backward] == [span([float(row[k]) for row in mine]) for k in ("forward", "backward")]
        assert ms == span([1000 * float(row["seconds"]) for row in mine])
        assert cells == [*(f"{float(OURS[name, method]['aopc_top']):.3f}" for name in SETS), f"{rank[method]:.1f}"]


def test_the_page_of_path_flow_shows_the_same_scores():
    header, found = table("| AOPC, top", TEXTS["path_flow"])
    assert header[1:] == list(SETS)
    for method, *cells in found:
        assert cells == [f"{float(OURS[name, method]['aopc_top']):.3f}" for name in SETS]


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
        others = {*ALL, "random"} - {"agf"}
        assert better == {m for m in others if float(PAIRS[name, "aopc", "top", m, "agf"]["epsilon"]) < 0.5}
        assert worse == {m for m in others if float(PAIRS[name, "aopc", "top", "agf", m]["epsilon"]) < 0.5}
        assert neither == others - better - worse


def test_costs_are_those_that_were_measured():
    header, found = table("### Costs by method")
    assert header[3:] == [f"{name} {unit}" for name in SETS for unit in ("ms", "MiB")]
    assert [row[0] for row in found] == list(ALL)
    for method, forward, backward, *cells in found:
        mine = [COSTS[name, method] for name in SETS]
        for cell, column in ((forward, "forward"), (backward, "backward")):
            assert cell == span([float(row[column]) for row in mine])
        assert cells[::2] == [f"{float(row['seconds']) * 1000:.0f}" for row in mine]
        assert cells[1::2] == [f"{int(row['peak_mib']):,}" for row in mine]


def test_how_much_longer_a_method_takes_is_what_was_measured():
    def times(method, other):
        return (
            span([float(COSTS[n, method]["seconds"]) / float(COSTS[n, other]["seconds"]) for n in SETS], 1) + " times"
        )

    for page in ("benchmark", "path_flow"):
        text = said(TEXTS[page]).replace("`", "").lower()
        for method, other in (("path_flow", "agf"), ("path_flow", "ig"), ("path_flow", "lime")):
            assert re.search(rf"{times(method, other)} as long as {other}", text), (page, method, other)
    assert f"AGF takes {times('agf', 'attgrads')} as long as AttGrads" in said(TEXT)
    assert f"and {times('agf', 'lime')} as long as LIME on this GPU" in said(TEXT)
    assert f"It takes {times('signed_flow', 'attgrads')} as long." in said(TEXT)
    assert f"It takes {times('signed_flow', 'attgrads')} as long as AttGrads" in said(TEXTS["path_flow"])
    largest = max(float(COSTS[name, "path_flow"]["peak_mib"]) for name in SETS) / 1024
    assert f"up to {largest:.1f} GiB on top of the model" in said(TEXTS["path_flow"])


def test_rank_correlations_are_those_of_the_two_tables():
    stats = pytest.importorskip("scipy.stats")
    header, found = table("### Rank correlations")
    assert header[1:] == list(SETS)
    assert len(found) == 8
    for what, *cells in found:
        heading, _, which = what.rpartition(", ")
        methods = PAPER_METHODS if which == "all 14" else PAPER_METHODS[:-3]
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


def manifest(name):
    return json.loads((RESULTS / "manifests" / f"{name.lower().replace(' ', '-')}.json").read_text())["manifest"]


def test_all_evaluations_were_run_as_the_page_says():
    runs = json.loads((RESULTS / "manifests" / "runs.json").read_text())
    assert [set(run["methods"]) for run in runs] == [{*PAPER_METHODS, "random"}, {"path_flow", "signed_flow"}]
    assert all(run["commit"] in TEXT for run in runs)
    inputs = [[], []]
    for name in SETS:
        both = (manifest(name), *manifest(name)["beside"])
        for k, (about, run) in enumerate(zip(both, runs, strict=True)):
            assert (about["data_set"], about["replacement"], about["seed"], about["skipped"]) == (name, "pad", 0, {})
            assert about["texts"] == (1821 if name == "SST-2" else 1000)
            for package in ("torch", "transformers", "tokenizers", "numpy"):
                assert f"{package} {about['versions'][package]}" in TEXT
            assert about["attributions"] == run["attributions"][name]
            assert {method["name"] for method in about["methods"]} == set(run["methods"]) - {"random"}
            inputs[k].append(about["inputs"])
        for key in ("data", "sample", "truncated", "levels"):
            assert both[0][key] == both[1][key]
        assert both[0]["model"]["weights"] == both[1]["model"]["weights"]
        settings = {method["name"]: method["settings"] for about in both for method in about["methods"]}
        assert settings["ig"]["steps"] == 50
        assert settings["lime"]["samples"] == settings["kernel_shap"]["samples"] == 500
        for method in ("path_flow", "signed_flow"):
            assert settings[method] == {k: asdict(KNOWN[method])[k] for k in settings[method]}
    for found in inputs:
        assert f"{min(found):,} to {max(found):,}" in TEXT
    shares = [float(row["forward_share"]) for row in rows("timings.csv", "commit", "data_set").values()]
    assert f"{span(shares, 2)} of the time that masking took" in said(TEXT)


def test_all_flows_converged_and_sum_to_what_the_pages_say():
    flows = rows("flows.csv", "data_set", "method")
    assert set(flows) == {(name, method) for name in SETS for method in ("af", "gf", "agf", "path_flow", "signed_flow")}
    assert all(row["texts"] == row["converged"] for row in flows.values())
    first = sum(int(row["texts"]) for (_, method), row in flows.items() if method in PAPER_METHODS)
    assert f"all {first:,} flows of the first run" in said(TEXT)
    mine = [flows[name, "path_flow"] for name in SETS]
    sums = span([float(row["sum_over_output"]) for row in mine], 2)
    assert f"it is {sums} of the logit" in said(TEXTS["path_flow"])
    assert f"- {span([100 * float(row['zero_share']) for row in mine])} % of the ordinary" in TEXTS["path_flow"]


STUDY = {"SST-2": "sst2", "IMDB": "imdb", "AG News": "ag_news"}


def study(name):
    """The cells of a study on held-in texts, by variant."""
    lines = (STUDIED / f"study_{name}.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {
        variant.strip("`"): dict(zip(("aopc", "lodds", "srg", "gap", "passes"), row, strict=False))
        for variant, *row in cells
    }


HELD_IN = {name: study(short) for name, short in STUDY.items()}


def variant(cell) -> Any:
    """The method that a cell such as `agf(layer='all')` means."""
    node = ast.parse(cell.strip("`"), mode="eval").body
    name, change = (node.id, []) if isinstance(node, ast.Name) else (node.func.id, node.keywords)
    method = KNOWN[name]
    if not isinstance(method, FlowMethod):
        return method
    return FlowMethod(**{**asdict(method), **{k.arg: ast.literal_eval(k.value) for k in change}})


@pytest.mark.parametrize(
    ("heading", "first", "count"), [("path_flow", "path_flow(ranked=2)", 10), ("signed_flow", "signed_flow", 14)]
)
def test_what_options_are_worth_is_what_the_studies_say(heading, first, count):
    header, found = table(f"### Options of {heading}")
    assert header == ["variant", "passes", *(cell for name in STUDY for cell in (name, "less ig's"))]
    assert (found[0][0], len({row[0] for row in found})) == (f"`{first}`", count)
    for cell, passes, *cells in found:
        rows_of = [HELD_IN[name][variant(cell).name] for name in STUDY]
        assert cells == [value for row in rows_of for value in (row["aopc"], row["gap"])]
        assert {passes} == {row["passes"] for row in rows_of}


def test_paths_with_and_without_flow_are_those_of_the_studies():
    header, found = table("### Where the faithfulness of path_flow comes from")
    assert header[2:] == [f"{name} {which}" for name in STUDY for which in ("flow", "no flow")]
    flows = {}
    for cell, passes, *cells in found:
        method = variant(cell)
        raw = f"no flow, input layer: {full_name('paths', method.paths)}"
        assert cells == [HELD_IN[name][n]["aopc"] for name in STUDY for n in (method.name, raw)]
        assert passes == method.info.passes
        flows[cell.strip("`")] = [float(value) for value in cells]
    mine = flows["path_flow(ranked=3)"]
    assert KNOWN["path_flow"].ranked == 3
    assert all(mine[k] == max(row[k] for row in flows.values()) for k in (0, 2, 4))
    assert [round(mine[k] - mine[k + 1], 3) for k in (0, 2, 4)] == [-0.004, 0.002, 0.002]
    texts = [(STUDIED / f"study_{short}.md").read_text().split(" texts of ")[0].split()[-1] for short in STUDY.values()]
    assert texts == ["400", "88", "400"]


def loss(base, change):
    """What a change of a variant costs, on the three data sets."""
    ends = [[float(HELD_IN[name][variant(v).name]["aopc"]) for name in STUDY] for v in (base, change)]
    return [a - b for a, b in zip(*ends, strict=True)]


def test_what_the_page_says_of_options_in_words_holds():
    text = said(TEXT)
    on = "path_flow(ranked=2{})"
    for change, words in (
        ("barrier='uniform'", "which costs {}"),
        ("signed=False", "Then signs ({})"),
        ("nodes=False", "node capacities ({})"),
        ("layer='all'", "(against all layers {})"),
    ):
        assert words.format(span(loss(on.format(""), on.format(f", {change}")), 3)) in text, change
    assert f"the sum over layers ({span(loss('signed_flow', 'signed_flow(layer=0)'), 3)})" in text
    assert f"residual edges ({span(loss('signed_flow', 'signed_flow(residual=False)'), 3)})" in text
    sst2, imdb, ag_news = loss("signed_flow", "signed_flow(signed=False)")
    assert f"signs help on SST-2 ({sst2:.3f}) and IMDB ({imdb:.3f}) and harm on AG News ({-ag_news:.3f})" in text
    single = [
        [float(row["aopc"]) for v, row in HELD_IN[n].items() if row["passes"] == "1 forward, 1 backward" and "gf" in v]
        for n in STUDY
    ]
    one = [float(HELD_IN[name][variant("signed_flow").name]["aopc"]) for name in STUDY]
    assert one[0] == max(single[0])
    assert max(single[1]) - one[1] < float(HELD_IN["IMDB"][variant("signed_flow").name]["gap"].split("± ")[1])
    for page in ("benchmark", "path_flow"):
        assert f"{max(single[2]):.3f}" in TEXTS[page]
        assert f"{one[2]:.3f}" in TEXTS[page]
    steps = ("agf", "agf(layer='all')", "agf(signed=True, layer='all')", "signed_flow")
    assert (
        "from {} to {}, with signs it is {}, with all that one backward pass allows {}".format(
            *(HELD_IN["SST-2"][variant(step).name]["aopc"] for step in steps)
        )
        in text
    )


SANITY = (STUDIED / "sanity.md").read_text(encoding="utf-8")


def checked(start):
    """A table of the sanity checks: method -> column -> cell."""
    header, found = table(start, SANITY)
    return {row[0]: dict(zip(header, row, strict=True)) for row in found}


def test_the_sanity_checks_on_the_pages_are_those_of_the_results():
    header, found = table("### Sanity", TEXTS["evaluation"])
    assert header[1:] == ["another class", "head drawn anew", "all but layer 1 drawn anew", "planted word first"]
    other, weights, planted = map(checked, ("## Another class", "Rank correlation with the", "## Planted words"))
    assert [row[0] for row in found] == list(other)
    first = {method: f"{100 * float(row['precision@k'].split()[0]):.0f} %" for method, row in planted.items()}
    for method, *cells in found:
        drawn = [weights[method][part] for part in ("head", "layer 2")]
        assert cells == [other[method]["rank correlation"], *drawn, first[method]]
    text = said(TEXTS["evaluation"])
    mine = [first[m] for m in ("path_flow", "signed_flow", "agf", "ig")]
    assert "`path_flow` does in {} of the texts, `signed_flow` in {}, `agf` in {}, `ig` in {};".format(*mine) in text
    assert {first[m] for m in ("lime", "kernel_shap", "transatt", "rawatt", "rollout", "partial_lrp")} == {"100 %"}
    assert f"first in {mine[0]} of the texts, LIME and KernelShap in all, IG in {mine[3]} and AGF in {mine[2]}" in said(
        TEXT
    )
    assert f"first in {mine[0]} of the texts, `signed_flow` only in {mine[1]}" in said(TEXTS["path_flow"])


def test_what_is_said_of_sanity_in_words_holds():
    other = {m: float(row["rank correlation"].split()[0]) for m, row in checked("## Another class").items()}
    assert {m for m in other if other[m] == 1} == {"af", "rawatt", "rollout", "partial_lrp", "random"}
    signed = {m for m in other if KNOWN[m].info.signed}
    assert max(other[m] for m in signed) < -0.98
    assert {m for m in other if -0.9 < other[m] < 0.9} == {"gf", "agf", "gradsam", "transatt"}
    left = {m: abs(float(row["layer 2"].split()[0])) for m, row in checked("Rank correlation with the").items()}
    assert [round(left.pop(m), 1) for m in ("agf", "gf", "rollout", "af", "random")] == [0.4, 0.3, 0.3, 0.8, 1.0]
    assert max(left.values()) < 0.115
    stable = checked("## What must not matter")
    assert max(float(row[k]) for row in stable.values() for k in ("batch", "padding", "doubled spaces")) < 1e-5
    seeds = [stable[m]["another seed"].split()[0].lstrip("+") for m in ("kernel_shap", "lime")]
    assert "`kernel_shap` (rank correlation {}) and `lime` ({})".format(*seeds) in said(TEXTS["evaluation"])


def test_what_the_page_says_in_words_holds():
    top = {name: dict(zip(PAPER_METHODS, values(OURS, name, "aopc_top"), strict=True)) for name in SETS}
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
    theirs = {name: dict(zip(PAPER_METHODS, values(PAPERS, name, "aopc_top"), strict=True)) for name in SETS}
    same = {
        (a, b) for a, b in permutations(PAPER_METHODS, 2) if all(t[n][a] > t[n][b] for t in (top, theirs) for n in SETS)
    }
    few = {("agf", "gf"), ("attgrads", "grads"), ("attcat", "cat"), ("ig", "af"), ("ig", "rawatt")}
    assert same == few | {(a, b) for a in ("kernel_shap", "transatt") for b in ("rawatt", "rollout")}
    by_chance = TESTED["SST-2", "agf", "random", "lodds", "top"]
    shown = f"ε = {float(by_chance['epsilon_runs']):.2f} over runs, and {float(by_chance['epsilon']):.2f} over texts"
    assert f"{shown} with a p of {float(by_chance['p_holm']):.3f}" in said(TEXT)
    ahead = [top[name][m] - top[name]["agf"] for name in SETS for m in ("attgrads", "grads", "transatt")]
    assert min(ahead) > 0


def test_what_the_page_says_of_path_flow_in_words_holds():
    text = said(TEXT)
    for column, best in (("aopc_top", np.argmax), ("lodds_top", np.argmin), ("f1_top", np.argmin)):
        assert {ALL[best(values(OURS, name, column, ALL))] for name in SETS} == {"path_flow"}
    gain = {o: {n: float(TESTED[n, "path_flow", o, "aopc", "top"]["difference"]) for n in SETS} for o in ("lime", "ig")}
    ends = [(f(gain[o], key=gain[o].__getitem__), o) for o in ("lime", "ig") for f in (min, max)]
    shown = [f"{gain[o][n]:.3f} ({n})" for n, o in ends]
    assert "ahead of LIME by {} to {} of AOPC and of integrated gradients by {} to {}".format(*shown) in text
    top = [TESTED[n, "path_flow", o, k, "top"] for n in SETS for o in ("lime", "ig") for k in ("aopc", "lodds")]
    assert max(float(row["p_holm"]) for row in top) < 0.01
    undecided = {
        (n, o)
        for n, m, o, metric, order in TESTED
        if (m, metric, order) == ("path_flow", "aopc", "top")
        and float(TESTED[n, m, o, metric, order]["epsilon"]) >= 0.5
    }
    assert undecided == {("SST-2", "lime"), ("AG News", "lime")}
    assert (
        min(float(row["epsilon_back"]) for (_, m, o, *_), row in TESTED.items() if (m, o) == ("path_flow", "lime"))
        >= 0.5
    )
    enough = {name: values(OURS, name, "sufficiency", ("path_flow", "lime")) for name in SETS}
    assert f"ahead of it by {span([float(mine - lime) for mine, lime in enough.values()], 3)}" in text
    first = [ALL[int(values(OURS, name, "sufficiency", ALL).argmin())] for name in SETS]
    assert first == ["kernel_shap", "lime", "lime", "lime", "lime"]
    assert sorted(values(OURS, "SST-2", "sufficiency", ALL))[1] == enough["SST-2"][1]
    assert {ALL[int(values(OURS, name, "comprehensiveness", ALL).argmax())] for name in SETS} == {"path_flow"}
    low = {name: TESTED[name, "path_flow", "lime", "aopc", "bottom"] for name in SETS}
    assert {name for name in SETS if float(low[name]["p_holm"]) < 0.05} == {"SST-2", "Amazon"}
    assert f"which is ahead by {float(low['SST-2']['difference']):.3f} on SST-2" in text
    assert 0 < float(low["Amazon"]["difference"]) < 0.001
    one = {name: TESTED[name, "signed_flow", "attgrads", "aopc", "top"] for name in SETS}
    assert [name for name in SETS if float(one[name]["p_holm"]) < 0.05] == ["IMDB"]
    assert float(one["IMDB"]["difference"]) < 0
    assert f"Chance is at {span([float(OURS[name, 'random']['aopc_top']) for name in SETS], 2)}." in text


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_the_page_leads_somewhere(name):
    for target, _, anchor in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", TEXTS[name]):
        place = PAGES[name].parent / target if target else PAGES[name]
        assert place.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.M)
            assert anchor in [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings], anchor


def test_no_result_names_a_folder_of_a_machine():
    for path in RESULTS.rglob("*"):
        if path.is_file():
            found = re.search(r"(?<![\w.:/])/(home|root|work|tmp|mnt|Users|opt|var)/", path.read_text(encoding="utf-8"))
            assert found is None, (path, found)
