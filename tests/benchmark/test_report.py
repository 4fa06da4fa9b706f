import csv
import html
import io
import json
import re
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gaflow
from gaflow.benchmark import PAPER_METHODS, bench
from gaflow.benchmark.report import report
from gaflow.benchmark.report.collect import collect, order_methods, ranked_first
from gaflow.benchmark.report.formats import cell_text, latex_text, markdown_text, to_csv, to_latex, to_markdown
from gaflow.benchmark.report.tables import ReportColumn, ReportSettings, ReportTable, all_tables, pair_matrices
from gaflow.benchmark.report.verdict import chart, overall_order, verdicts
from gaflow.data import open_data
from gaflow.errors import DataError, GaflowError
from gaflow.evaluation.ranking import rank_methods
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso, aso_pairs
from tests.support.models import bert
from tests.support.reports import evaluation, stored

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>|*_[x](y)_ & \\ {$%#~^} \"' \x1b[31m\u202e`"


@pytest.fixture
def results(tmp_path):
    return two_data_sets(tmp_path)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The same with its report, which nobody changes."""
    folder = two_data_sets(tmp_path_factory.mktemp("reported"))
    report(folder, resamples=20, seed=4)
    return folder


def two_data_sets(folder):
    first = evaluation(), evaluation(replacement="delete", seed=1)
    stored(folder, "sst2", *first)
    second = evaluation(("agf", "random", "theirs"), seed=2, gold=False)
    stored(folder, "imdb", second)
    return folder


class Page(HTMLParser):
    """What a page holds: tags with attributes, text, and tables as rows of cells."""

    def __init__(self, source):
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.inside = False
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        self.text += data
        if self.inside:
            self.tables[-1][-1][-1] += data


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_every_number_of_the_tables_is_the_evaluation_s(reported):
    csv_rows = rows_of((reported / "tables.csv").read_text())
    assert [(r["data_set"], r["replacement"], r["method"]) for r in csv_rows] == [
        *(("imdb", "pad", m) for m in ("agf", "theirs", "random")),
        *(("sst2", "pad", m) for m in ("attcat", "ig", "agf", "random")),
        *(("sst2", "delete", m) for m in ("attcat", "ig", "agf", "random")),
    ]
    for row in csv_rows:
        table = Evaluation.load(reported / row["data_set"] / row["replacement"]).table()
        for column in table.columns.drop("replacement"):
            assert float(row[column]) == table.loc[row["method"], column]
        assert set(row) - set(table.columns) - {"data_set", "method"} == {c for c in row if row[c] == ""}


def test_markdown_latex_and_html_show_the_same_rounded_numbers(reported):
    table = Evaluation.load(reported / "sst2" / "pad").table()
    other = Evaluation.load(reported / "imdb" / "pad").table()
    lines = (reported / "tables.md").read_text().splitlines()
    start = lines.index("### AOPC and LOdds, top k% masked (pad)")
    assert lines[start + 4] == "| method | imdb AOPC ↑ | imdb LOdds ↓ | sst2 AOPC ↑ | sst2 LOdds ↓ |"
    shown_rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines[start + 6 : start + 11]]
    methods = [row[0] for row in shown_rows]
    assert methods[0] == "agf"  # first on imdb, third on sst2
    assert [m for m in methods if m in ("ig", "attcat", "random")] == ["ig", "attcat", "random"]  # as on sst2
    expected = [f"{table.loc['agf', c]:.3f}" for c in ("aopc_top", "lodds_top")]
    agf_row = shown_rows[methods.index("agf")]
    assert agf_row[1:] == [f"{other.loc['agf', c]:.3f}" for c in ("aopc_top", "lodds_top")] + expected
    assert shown_rows[methods.index("theirs")][3:] == ["–", "–"]
    source = (reported / "tables.tex").read_text().replace(r"\textbf{", "").replace("}", "")
    assert " & ".join(["agf", *(cell.replace("-", "$-$") for cell in agf_row[1:])]) + r" \\" in source
    html = Page((reported / "report.html").read_text())
    html_table = next(t for t in html.tables if t[1][1:3] == ["AOPC ↑", "LOdds ↓"])
    assert html_table[0][1:] == ["imdb", "sst2"]
    assert [row for row in html_table if row[0] == "agf"] == [agf_row]


def test_the_best_is_bold_in_its_own_direction():
    columns = (ReportColumn("up", better=1), ReportColumn("down", better=-1), ReportColumn("none"))
    cells = ((0.2, 0.2, 0.2), (0.9, 0.1, 0.9), (0.9, -0.5, 0.0), (None, None, None))
    table = ReportTable("k", "t", "c", "m", "abcd", dict(zip(columns, zip(*cells, strict=True), strict=True)))
    best = [[table.is_best(column, row) for column in columns] for row in range(4)]
    assert best == [[False] * 3, [True, False, False], [True, True, False], [False] * 3]
    assert "| b | **0.900** | 0.100 | 0.900 |" in to_markdown([], [], [table], [], ReportSettings())
    assert r"c & \textbf{0.900} & \textbf{$-$0.500} & 0.000 \\" in to_latex([], [table])
    alone = ReportTable("k", "t", "c", "m", "a", {column: [0.2] for column in columns})
    assert not any(alone.is_best(column, 0) for column in columns)


def test_rates_are_there_only_where_labels_are(results):
    names = [t.title for t in all_tables(collect(results), ReportSettings(resamples=20))]
    assert names[:4] == [
        "Data sets",
        "AOPC and LOdds, top k% masked (pad)",
        "AOPC and LOdds, bottom k% masked (pad)",
        "F1, accuracy, precision and recall, top k% masked (pad)",
    ]
    tables = {t.title: t for t in all_tables(collect(results), ReportSettings(resamples=20))}
    rates = tables["F1, accuracy, precision and recall, top k% masked (pad)"]
    assert {column.group for column in rates.columns} == {"sst2"}
    assert [column.name for column in rates.columns] == ["F1", "Acc", "Prec", "Rec"]
    only = all_tables(collect(results, ["imdb"]), ReportSettings(resamples=20))
    assert not [t for t in only if t.title.startswith("F1")]


def test_a_method_is_compared_with_the_best_of_another_kind(results):
    tables = {t.title: t for t in all_tables(collect(results), ReportSettings(resamples=50, seed=3), "agf")}
    table = tables["Almost Stochastic Order of agf, top k% masked (pad)"]
    evaluated = Evaluation.load(results / "sst2" / "pad")
    values = evaluated.per_text("aopc", "top")
    rival = max(("ig", "attcat"), key=lambda m: values[evaluated.methods.index(m)].mean())
    epsilon, _, name = table.columns[ReportColumn("AOPC", "sst2")]
    assert name == rival
    expected = aso(values[evaluated.methods.index("agf")], values[evaluated.methods.index(rival)], resamples=50, seed=3)
    assert epsilon == expected
    assert "Almost Stochastic Order of ig, top k% masked (pad)" in {
        t.title for t in all_tables(collect(results), ReportSettings(resamples=20), "ig")
    }


def test_all_pairs_are_compared(reported):
    matrices = list(pair_matrices(collect(reported), ReportSettings(resamples=20, seed=4)))
    assert len(matrices) == 4 * 3
    matrix = matrices[0]
    assert (matrix.data, matrix.replacement, matrix.metric, matrix.order) == ("imdb", "pad", "aopc", "top")
    assert matrix.methods == ("agf", "theirs", "random")
    values = Evaluation.load(reported / "imdb" / "pad").per_text("aopc", "top")[[0, 2, 1]]
    np.testing.assert_array_equal(matrix.epsilon, aso_pairs(values, resamples=20, seed=4))
    pairs = rows_of((reported / "pairs.csv").read_text())
    assert len(pairs) == 4 * (2 * 12 + 6)
    first = next(p for p in pairs if (p["data_set"], p["method"], p["other"]) == ("imdb", "agf", "theirs"))
    assert float(first["epsilon"]) == matrix.epsilon[0, 1]


def test_the_verdict_comes_first_and_is_the_same_everywhere(reported):
    sst2 = {name: Evaluation.load(reported / "sst2" / name) for name in ("pad", "delete")}
    ranking = rank_methods(sst2, resamples=20, seed=4)
    sentences = ranking.sentences("sst2")
    markdown = (reported / "tables.md").read_text()
    page_text = Page((reported / "report.html").read_text()).text
    for sentence in sentences:
        assert markdown_text(sentence) in markdown.partition("###")[0]
        assert sentence in page_text.partition("Data sets")[0]
    rows = [row for row in rows_of((reported / "ranking.csv").read_text()) if row["data_set"] == "sst2"]
    assert [row["method"] for row in rows[::2]] == list(ranking.methods)
    assert [float(row["aopc"]) for row in rows] == ranking.means.T.ravel().tolist()
    assert [int(row["worst_rank"]) for row in rows[::2]] == ranking.worst.tolist()
    first, second = ranking.methods[:2]
    row = next(row for row in rows if row["method"] == second)
    assert float(row["p_best"]) == ranking.p[0, 1]
    assert row["against_best"] == ranking.against_best(second)
    assert ranking.best == first


def test_the_chart_has_a_dot_inside_the_interval_of_every_method(reported):
    ranking = rank_methods({"pad": Evaluation.load(reported / "imdb" / "pad")}, resamples=20)
    drawn = chart(ranking)
    assert [row.method for row in drawn.rows] == list(ranking.methods)
    for row, mean in zip(drawn.rows, ranking.means[0], strict=True):
        (bar,) = row.bars
        assert 0 <= bar.low <= bar.mean <= bar.high <= 100
        assert float(bar.number) == pytest.approx(mean, abs=5e-4)
        assert bar.control == next(row.bars[0].mean for row in drawn.rows if row.is_control)


def test_data_sets_are_ranked_together_by_the_worst_rank(reported):
    verdicts_of_both = verdicts(collect(reported), ReportSettings(resamples=20))
    worst = {}
    for verdict in verdicts_of_both:
        for method, rank in zip(verdict.ranking.methods, verdict.ranking.worst, strict=True):
            worst.setdefault(method, []).append(rank)
    order = overall_order(verdicts_of_both)
    common = [method for method in order if len(worst[method]) == 2]
    assert order[: len(common)] == common  # what was measured everywhere comes first
    ranks = [max(worst[method]) for method in common]
    assert ranks == sorted(ranks)


def test_the_points_of_the_curves_are_the_evaluation_s(reported):
    points = rows_of((reported / "curves.csv").read_text())
    expected = Evaluation.load(reported / "sst2" / "delete").curves(resamples=20, seed=4)
    curve = [p for p in points if (p["data_set"], p["replacement"]) == ("sst2", "delete")]
    assert [float(p["mean"]) for p in curve] == expected["mean"].tolist()
    assert [float(p["high"]) for p in curve] == expected["high"].tolist()


def test_the_same_evaluations_give_the_same_bytes(reported, tmp_path):
    other = tmp_path / "x" / "other"
    paths = [path.relative_to(other) for path in report(reported, other, resamples=20, seed=4)]
    for name in paths:
        assert (reported / name).read_bytes() == (other / name).read_bytes()
    names = {path.name for path in paths}
    assert {"tables.md", "tables.tex", "tables.csv", "pairs.csv", "curves.csv", "report.html"} < names
    assert {f"curves-sst2-{r}-{m}.svg" for r in ("pad", "delete") for m in ("aopc", "lodds")} < names


def test_pairs_and_legends_follow_the_ranking(reported):
    data_sets = collect(reported)
    settings = ReportSettings(resamples=20, seed=4)
    ranked = {verdict.data: verdict.ranking.methods for verdict in verdicts(data_sets, settings)}
    for matrix in pair_matrices(data_sets, settings, ranked):
        of_both = [name for name in ranked[matrix.data] if name in matrix.methods]
        assert list(matrix.methods[: len(of_both)]) == of_both
    rows = [row["method"] for row in rows_of((reported / "pairs.csv").read_text()) if row["data_set"] == "imdb"]
    assert list(dict.fromkeys(rows)) == list(ranked["imdb"])


def test_methods_that_are_not_ranked_come_last():
    assert ranked_first(["agf", "random", "rawatt", "theirs"], ["random", "theirs"]) == [
        "random",
        "theirs",
        "rawatt",
        "agf",
    ]


def test_data_sets_are_chosen_and_ordered(results):
    assert [d.name for d in collect(results)] == ["imdb", "sst2"]
    assert [d.name for d in collect(results, ["sst2"])] == ["sst2"]
    assert list(collect(results, ["sst2", "imdb"])[0].evaluations) == ["pad", "delete"]
    with pytest.raises(DataError, match=r"yelp.*imdb, sst2"):
        collect(results, ["yelp"])


def test_methods_come_in_the_paper_s_order_and_the_control_last():
    assert order_methods(["random", "theirs", "agf", "rawatt"]) == ["rawatt", "agf", "theirs", "random"]
    assert order_methods(reversed(PAPER_METHODS)) == list(PAPER_METHODS)


def test_what_was_left_out_is_said_everywhere(tmp_path):
    evaluated = evaluation(skipped={"empty text": 1234, "too long": 2})
    stored(tmp_path, "a", evaluated, left_out={"transatt": "no rule for this"})
    report(tmp_path, resamples=20)
    for name in ("tables.md", "tables.tex", "report.html"):
        text = (tmp_path / name).read_text()
        shown_text = Page(text).text if name.endswith("html") else text
        assert re.search("a: .*transatt.*no rule for this", shown_text)
        assert re.search("a: 1,234 texts.*empty text", shown_text)
    tables = Page((tmp_path / "report.html").read_text()).tables
    data_sets = next(table for table in tables if "skipped" in table[0])
    assert dict(zip(data_sets[0], data_sets[1], strict=True))["skipped"] == "1,236"


def test_strangers_words_are_shown_and_never_obeyed(tmp_path):
    methods = (HOSTILE, "agf", "=1+1", "random")
    hostile = evaluation(methods, classes=(HOSTILE, "b"), skipped={HOSTILE: 1}, model={"name": HOSTILE})
    stored(tmp_path, HOSTILE, hostile, slug="a", left_out={HOSTILE: HOSTILE})
    report(tmp_path, resamples=20)
    source = (tmp_path / "report.html").read_text()
    page = Page(source)
    assert not {"script", "link", "iframe", "object", "img"} & {tag for tag, _ in page.tags}
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on") or a in ("src", "srcset")]
    assert "alert(1)" in page.text
    for path in [p for p in tmp_path.rglob("*") if p.suffix in (".md", ".tex", ".csv", ".html", ".svg")]:
        assert not re.search("[\x1b\u202e]", path.read_text()), path
    written = (tmp_path / "tables.md").read_text()
    assert "<script" not in written.replace("\\<", "")
    assert f"| {markdown_text(HOSTILE)}" in written
    for is_table, lines in groupby(written.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:  # all rows have as many cells as the head
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    csv_rows = rows_of((tmp_path / "tables.csv").read_text())
    written_out = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert [r["method"] for r in csv_rows] == ["agf", written_out, "'=1+1", "random"]


def test_no_page_reaches_for_anything_outside(reported):
    source = (reported / "report.html").read_text()
    assert "default-src 'none'" in html.unescape(source)
    page = Page(source)
    named = [v for _, attrs in page.tags for k, v in attrs.items() if k in ("href", "xlink:href", "action")]
    assert named
    assert all(v.startswith("#") for v in named)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert {v[1:] for v in named} <= set(ids)
    assert "url(http" not in source
    assert "@import" not in source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b", "a_b"),
        ("_a_", r"\_a\_"),
        ("a|b", r"a\|b"),
        ("<b> & [c]", r"\<b\> \& \[c\]"),
        ("two\nlines", "two lines"),
    ],
)
def test_markdown_shows_signs(text, expected):
    assert markdown_text(text) == expected


def test_latex_shows_signs():
    assert latex_text("a_b & 50% {x} \\y $z$ #1 ~^") == (
        r"a\_b \& 50\% \{x\} \textbackslash{}y \$z\$ \#1 \textasciitilde{}\textasciicircum{}"
    )


def test_numbers_are_printed_plainly():
    assert cell_text(-0.0001, ReportColumn("x")) == "0.000"
    assert cell_text(-0.5, ReportColumn("x")) == "-0.500"
    assert cell_text(1821, ReportColumn("x", digits=0)) == "1,821"
    assert cell_text(None, ReportColumn("x")) == "–"
    assert to_csv(pd.DataFrame({"a": [0.1, None, "-x", 3]})) == 'a\n0.1\n""\n\'-x\n3\n'


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "unfinished"])
def test_a_folder_without_results_is_refused(tmp_path, kind):
    folder = tmp_path / "x"
    if kind != "missing":
        folder.mkdir()
    if kind == "unfinished":
        stored(folder, "sst2")
    with pytest.raises(DataError, match="sst2 is not finished" if kind == "unfinished" else "gaflow bench"):
        report(folder / "no.txt" if kind == "file" else folder)


def test_damaged_results_are_named(results):
    (results / "imdb" / "pad" / "values.parquet").write_bytes(b"nothing")
    with pytest.raises(GaflowError, match=r"imdb.*damaged"):
        report(results)
    (results / "imdb" / "bench.json").write_text("{}")
    with pytest.raises(DataError, match=r"bench\.json"):
        report(results)


def test_one_text_or_one_method_has_no_tests_but_a_report(tmp_path):
    stored(tmp_path, "a", evaluation(texts=1))
    stored(tmp_path, "b", evaluation(("random",)))
    report(tmp_path, resamples=20)
    assert rows_of((tmp_path / "pairs.csv").read_text()) == []


def test_a_real_benchmark_shows_a_text_and_times(tmp_path):
    explainer = gaflow.Explainer(*bert())
    rows = ["this dog is <b>cute</b> & smart", "a good film"]
    bench(explainer, {"real": open_data(rows)}, tmp_path, methods=["agf", "cat"])
    files = report(tmp_path, resamples=20)
    assert tmp_path / "figures" / "sample-real.svg" in files
    page = Page((tmp_path / "report.html").read_text())
    assert "this dog is <b>cute</b> & smart" in page.text
    runtime = next(t for t in page.tables if any(row[0] == "(trace)" for row in t))
    assert {row[0] for row in runtime[-3:]} == {"(trace)", "cat", "agf"}
    assert float(runtime[-2][2]) <= float(runtime[-1][2])  # the fastest method first
    assert all(float(row[2]) > 0 for row in runtime[-3:])


def test_times_are_per_text_and_memory_is_there_where_it_was_measured(tmp_path):
    folder = stored(tmp_path, "a", evaluation())
    (folder / "attributions").mkdir()
    lines = [
        {
            "shard": 0,
            "texts": 4,
            "seconds": 9.0,
            "trace": 1.0,
            "methods": {"ig": 4.0, "agf": 2.0},
            "peak": {"ig": 2**21},
        },
        {"shard": 1, "texts": 4, "seconds": 9.0, "trace": 9.0, "methods": {"ig": 9.0, "agf": 9.0}, "peak": {}},
        {
            "shard": 1,
            "texts": 4,
            "seconds": 9.0,
            "trace": 1.0,
            "methods": {"ig": 4.0, "agf": 2.0},
            "peak": {"ig": 2**22},
        },
        {"shard": 2, "texts": 4, "seconds": 9.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"shard": 3, "te'  # killed while it wrote
    (folder / "attributions" / "timings.jsonl").write_text(text)
    table = next(t for t in all_tables(collect(tmp_path), ReportSettings(resamples=20)) if t.key == "runtime")
    assert table.rows == ["(trace)", "agf", "ig"]
    assert [c.name for c in table.columns] == ["passes", "s/text", "MiB"]
    assert list(table.columns.values())[1:] == [[0.25, 0.5, 1.0], [None, None, 4.0]]
