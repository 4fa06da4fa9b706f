"""Strings from outside in every renderer: displayed, never obeyed."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaflow.benchmark.report.collect import DataSetReport
from gaflow.benchmark.report.formats import latex_text, markdown_text, to_csv, to_latex, to_markdown
from gaflow.benchmark.report.page import page
from gaflow.benchmark.report.tables import ReportSettings, all_tables, pair_matrices
from gaflow.benchmark.report.verdict import verdicts
from gaflow.errors import DataError
from tests.support.attributions import make
from tests.support.dom import parse
from tests.support.hostile import FIGURES, INJECTIONS, PAGES, TEXTS, attributions
from tests.support.reports import evaluation

FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"  # of Scotland
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)
hostile_texts = st.one_of(
    st.sampled_from(INJECTIONS),
    st.lists(st.sampled_from([*INJECTIONS, FLAG, "a ", "👩\u200d💻", "❤\ufe0f", "שלום"]), max_size=4).map("".join),
    st.text(max_size=12),
)


@st.composite
def hostile_attributions(draw):
    """An attribution with strings from outside wherever one can be."""
    text = draw(hostile_texts) + " x"
    att = make("dog is cute")
    return replace(
        att,
        text=text,
        offsets=((0, 0), (0, len(text) - 2), (len(text) - 2, len(text)), (len(text), len(text)), (0, 0)),
        tokens=tuple(draw(st.lists(hostile_texts, min_size=5, max_size=5))),
        method=draw(hostile_texts),
        label=draw(hostile_texts),
        prediction=draw(hostile_texts),
        target=draw(hostile_texts),
        output_kind=draw(hostile_texts),
        truncated=draw(st.booleans()),
        diagnostics={draw(hostile_texts): draw(hostile_texts), "warning": draw(hostile_texts)},
        origin={"model": draw(hostile_texts), draw(hostile_texts): {draw(hostile_texts): draw(hostile_texts)}},
    )


@st.composite
def hostile_similarities(draw):
    """The similarity of two texts, with strings from outside wherever one can be."""
    att = attributions()["similar"]
    text = draw(hostile_texts) + " x"
    text_pair = draw(hostile_texts) + " y"
    ends = {0: len(text), 1: len(text_pair), -1: 0}
    tokens = draw(st.lists(hostile_texts, min_size=len(att.tokens), max_size=len(att.tokens)))
    return replace(
        att,
        text=text,
        text_pair=text_pair,
        offsets=tuple((max(0, ends[segment] - 1), ends[segment]) for segment in att.segments),
        tokens=tuple(tokens),
        label=draw(hostile_texts),
        output_kind=draw(hostile_texts),
    )


def is_harmless(text):
    return FORBIDDEN.search(text.replace(FLAG, "")) is None


@cache
def elements(name):
    """Tags with their attributes that a page has if nothing odd is in it."""
    pairs = set()
    for att in attributions().values():
        for node in parse(PAGES[name](att)).walk():
            pairs |= {(node.tag, attribute) for attribute in (*node.attributes, "")}
    return pairs


@given(att=hostile_attributions(), name=st.sampled_from(sorted(PAGES)))
def test_pages_have_no_element_or_attribute_but_their_own(att, name):
    html = PAGES[name](att)
    assert is_harmless(html)
    tree = parse(html)
    for node in tree.walk():
        assert {(node.tag, attribute) for attribute in (*node.attributes, "")} <= elements(name)
    assert all(node.attributes.get("type") in ("module", "application/json") for node in tree.all("script"))


@given(att=hostile_similarities(), name=st.sampled_from(["page", "notebook", "several"]))
def test_tables_of_matches_have_no_element_or_attribute_but_their_own(att, name):
    html = PAGES[name](att)
    assert is_harmless(html)
    for node in parse(html).walk():
        assert {(node.tag, attribute) for attribute in (*node.attributes, "")} <= elements(name)


@pytest.mark.slow
@given(att=hostile_similarities())
def test_figures_of_matches_have_no_element_but_their_own(att):
    check_figure(FIGURES["matches"](att))


@pytest.mark.slow
@given(att=hostile_attributions(), name=st.sampled_from(sorted(FIGURES)))
def test_figures_have_no_element_but_their_own(att, name):
    check_figure(FIGURES[name](att))


def check_figure(drawing):
    if not drawing:  # there is nothing to draw
        return
    assert is_harmless(drawing)
    tags = {node.tag.rpartition("}")[2] for node in ET.fromstring(drawing).iter()}
    ours = {"svg", "metadata", "RDF", "Work", "type", "title", "date", "format", "creator", "Agent", "defs", "style"}
    assert tags <= ours | {"g", "path", "text", "tspan", "use", "clipPath", "rect", "image", "pattern"}


@given(att=hostile_attributions(), name=st.sampled_from(["terminal", "comparison", "repr"]))
def test_terminals_get_no_control_codes(att, name):
    assert is_harmless(TEXTS[name](att))


@given(hostile_texts)
def test_error_messages_have_no_control_codes(text):
    assert is_harmless(str(DataError(f"there is no {text}")))


def hostile_report(draw):
    """A data set of a report with strings from outside wherever one can be."""
    unicode_texts = hostile_texts.filter(lambda text: not re.search("[\ud800-\udfff]", text))  # others are not loaded
    names = draw(st.lists(unicode_texts, min_size=2, max_size=3, unique=True))
    classes = (draw(hostile_texts), "b")
    result = evaluation([*names, "random"], texts=3, classes=classes, replacement=draw(unicode_texts))
    return DataSetReport(
        name=draw(hostile_texts),
        slug="films",
        evaluations={result.replacement: result},
        left_out={draw(hostile_texts): draw(hostile_texts)},
        skipped={draw(hostile_texts): 2},
        example={"a": draw(hostile_attributions())},
        times=None,
    )


@pytest.mark.slow
@given(st.data())
def test_reports_show_strings_and_obey_none(data):
    data_sets = [hostile_report(data.draw)]
    settings = ReportSettings(method="agf", confidence=0.95, resamples=5, seed=0)
    all_verdicts = verdicts(data_sets, settings)
    tables = [*(verdict.table() for verdict in all_verdicts), *all_tables(data_sets, settings, "random")]
    pair_tables = [matrix.table() for matrix in pair_matrices(data_sets, settings)]
    html = page(data_sets, all_verdicts, tables, pair_tables, [])
    tree = parse(html)
    assert is_harmless(html)
    assert not tree.all("script") + tree.all("img") + tree.all("a")
    assert not [name for node in tree.walk() for name in node.attributes if name.startswith("on")]
    assert is_harmless(to_markdown(data_sets, all_verdicts, tables, pair_tables, settings))
    assert is_harmless(to_latex(data_sets, tables + pair_tables))


@given(hostile_texts)
def test_markdown_and_latex_print_what_they_are_given(text):
    markdown = re.sub(r"\\[\\`*\[\]<>|&~$#_]", "", markdown_text(text))
    assert not re.search(r"[\\`*\[\]<>|&~$#]", markdown)
    latex = latex_text(text)
    for command in (r"\\text[a-z]+\{\}", r"\\ldots\{\}", r"\\[{}$&#%_]", r"\$\\varepsilon\$", r"\{\[\}", r"\{\]\}"):
        latex = re.sub(command, "", latex)
    assert not re.search(r"[\\{}$&#%_^~]", latex)


@given(hostile_texts)
def test_spreadsheets_compute_nothing(text):
    _, cell = to_csv(pd.DataFrame({"a": pd.Series([text], dtype=object)})).split("\n", 1)
    assert not cell.lstrip('"').startswith(("=", "+", "-", "@", "\t"))


@pytest.mark.parametrize("name", sorted(PAGES))
def test_emoji_and_other_scripts_stay_as_they_are(name):
    text = f"{FLAG} 👩\u200d💻 ❤\ufe0f שלום مرحبا"
    att = replace(make("dog is cute"), text=text, label=text)
    displayed = parse(PAGES[name](att)).text
    for glyph in text.split():
        assert glyph in displayed
