import gzip
import sys

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gaflow.data.readers import Columns, parquet_files, reader_of
from gaflow.errors import DataError, MissingExtraError
from tests.support.data_files import ROWS, write

LABELLED = Columns("text", label="label")


def read(path, columns=LABELLED):
    return [columns.values(row) for row in reader_of(path)(path, columns)]


def texts(path, column="text"):
    return [text for text, _, _ in read(path, Columns(column))]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "A.JSONL", "a.ndjson.gz"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    rows = read(write(tmp_path / name))
    assert [text for text, _, _ in rows] == [row["text"] for row in ROWS]
    assert [int(label) for _, _, label in rows] == [row["label"] for row in ROWS]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_one_column_may_be_text_and_pair(tmp_path, name):
    rows = read(write(tmp_path / name), Columns("text", pair="text"))
    assert rows == [(row["text"], row["text"], None) for row in ROWS]


def test_tabs_separate_columns_of_tsv(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\na, b\t1\n", encoding="utf-8")
    assert read(tmp_path / "a.tsv") == [("a, b", None, "1")]


def test_a_folder_of_parquet_files_is_read_in_the_order_of_names(tmp_path):
    write(tmp_path / "b.parquet", ROWS[2:])
    write(tmp_path / "a.parquet", ROWS[:2])
    (tmp_path / ".c.parquet").write_bytes(b"hidden")
    assert texts(tmp_path) == [row["text"] for row in ROWS]
    with pytest.raises(DataError, match=r"no \.parquet"):
        parquet_files((tmp_path / "empty").mkdir() or tmp_path / "empty")


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl"])
def test_an_unknown_column_is_refused_with_those_there_are(tmp_path, name):
    with pytest.raises(DataError, match=r"'txt'.*'text'.*'text', 'label'"):
        texts(write(tmp_path / name), "txt")
    with pytest.raises(DataError, match=r"'zzz'.*'text', 'label'"):
        texts(write(tmp_path / name), "zzz")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_that_is_there_twice_is_named(tmp_path, name):
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("label,text,label\n1,one,2\n", encoding="utf-8")
    else:
        pq.write_table(pa.table([[1], ["one"], [2]], names=["label", "text", "label"]), path)
    with pytest.raises(DataError, match="2 columns 'label'"):
        read(path)
    assert texts(path) == ["one"]


def test_a_column_that_holds_no_text_is_refused(tmp_path):
    path = write(tmp_path / "a.parquet")
    for columns in (Columns("other"), Columns("text", pair="other")):
        with pytest.raises(DataError, match=r"'other'.*double.*'text'"):
            read(path, columns)


def test_dictionary_encoded_text_is_text(tmp_path):
    table = pa.table({"text": pa.array(["a", "b", "a"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.parquet", b"not parquet at all", "Parquet"),
        ("a.csv", b'text,label\n"a",1\nb,2,3\n', "CSV"),
        ("a.csv", b"text,label\n\xff\xfe,1\n", "CSV"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', "line 2, is no JSON"),
        ("a.jsonl", b'["a"]\n', "line 1.*JSON"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "\xff"}\n', "is not UTF-8"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a", "label": 1}\n' * 999, mtime=0)[:40], "cannot be unpacked"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name)
    assert name in str(caught.value)


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('\ufeff{"text": "a"}\n\n{"text": "b"}\n\n'.encode())
    assert texts(tmp_path / "a.jsonl") == ["a", "b"]


def test_a_key_that_later_rows_lack_is_null(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n{"text": "b"}\n', encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == [("a", None, 1), ("b", None, None)]


def test_a_name_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"\.parquet, \.csv"):
        reader_of(tmp_path / "a.xlsx")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"gaflow\[data\]"):
        read(path)
