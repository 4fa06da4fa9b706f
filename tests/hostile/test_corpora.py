"""Words, classes and files of strangers in the importances over a corpus."""

import io
import json
import re
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaflow
from gaflow.cli import main
from gaflow.corpora import corpus_page, shortcuts
from gaflow.errors import ArgumentError
from gaflow.jobs.schema import shard_bytes
from tests.hostile.test_escaping import hostile_texts, is_harmless
from tests.hostile.test_stored_files import unless_refused
from tests.support.dom import parse
from tests.support.hostile import changed_file, shard_rows, write_job

stored_texts = hostile_texts.filter(lambda text: not re.search("[\ud800-\udfff]", text))  # others are not stored


def write(folder: Path, words: list[str], label: str, method: str = "agf") -> Path:
    """A file of other makers with the same text twice, one word after the other."""
    text = " ".join(words)
    scores = [1.0] + [-0.25] * (len(words) - 1)
    row = {"text": text, "tokens": words, "scores": scores, "method": method, "label": label}
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([row, row | {"label": "other"}]), path)
    return path


def page_of(words: list[str], label: str, method: str = "agf") -> str:
    with TemporaryDirectory() as folder:
        table = gaflow.corpus(write(Path(folder), words, label, method), minimum=1, length=2)
    return corpus_page(table, lift=0.01)


@cache
def elements() -> set[tuple[str, str]]:
    """Tags with their attributes that a page has if nothing odd is in it."""
    pairs = set()
    for words in (["a"], ["a", "b", "c"], ["a"] * 40):
        for node in parse(page_of(words, "positive")).walk():
            pairs |= {(node.tag, attribute) for attribute in (*node.attributes, "")}
    return pairs


@given(words=st.lists(stored_texts.filter(bool), min_size=1, max_size=4), label=stored_texts, method=stored_texts)
def test_a_page_has_no_element_or_attribute_but_its_own(words, label, method):
    html = page_of([*words, "x"], label, method)
    assert is_harmless(html)
    for node in parse(html).walk():
        assert {(node.tag, attribute) for attribute in (*node.attributes, "")} <= elements()


@given(words=st.lists(stored_texts.filter(bool), min_size=1, max_size=4), label=stored_texts, method=stored_texts)
def test_a_terminal_gets_no_control_codes(words, label, method):
    printed = io.StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(printed):
        path = write(Path(folder), [*words, "x"], label, method)
        assert main(["corpus", str(path), "--minimum", "1"]) == 0
    assert is_harmless(printed.getvalue())


@given(st.data())
def test_a_damaged_run_gives_a_page_or_is_refused_by_name(data):
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_job(folder, changed_file(data.draw, "part.parquet", shard_bytes(shard_rows())))
        table = unless_refused(lambda: gaflow.corpus(folder, method="agf", minimum=1, length=2), folder)
    if table is None:
        return
    parse(corpus_page(table))
    json.dumps(shortcuts(table, lift=0.1)["words"].tolist())


TABLE_CHANGES: dict[str, Any] = {
    "no columns": lambda table: table[[]],
    "a missing column": lambda table: table.drop(columns="examples"),
    "a column twice": lambda table: table.rename(columns={"push": "share"}),
    "a class that is a number": lambda table: table.assign(**{"class": 1}),
    "no words": lambda table: table.assign(words=None),
    "shares that are strings": lambda table: table.assign(share="1"),
    "examples that are strings": lambda table: table.assign(examples="<b>"),
    "counts that are markup": lambda table: table.assign(texts="<img src=x>"),
}


@pytest.mark.parametrize("change", TABLE_CHANGES)
def test_another_table_is_refused_by_the_name_of_the_argument(tmp_path, change):
    table = TABLE_CHANGES[change](gaflow.corpus(write(tmp_path, ["a", "b"], "positive"), minimum=1))
    for use in (corpus_page, shortcuts):
        with pytest.raises(ArgumentError) as caught:
            use(table)
        assert caught.value.argument == "table"


def test_phrases_longer_than_any_text_take_no_time(tmp_path):
    path = write(tmp_path, ["a", "b", "c"], "positive")
    table = gaflow.corpus(path, minimum=1, length=10**12)
    assert set(table["length"].tolist()) == {1, 2, 3}


@pytest.mark.parametrize("confidence", [5e-324, 1 - 2**-53])
def test_any_confidence_has_an_interval(tmp_path, confidence):
    table: Any = gaflow.corpus(write(tmp_path, ["a", "b", "a"], "positive"), minimum=1, confidence=confidence)
    for low, share in zip(table["low"].tolist(), table["share"].tolist(), strict=True):
        assert np.isnan(low) or low <= share
