import pytest

from gaflow.data import Classes, open_data, rows_of, survey
from gaflow.errors import DataError
from gaflow.tasks.classification import ClassificationHead
from tests.support.data_files import ROWS, write

CLASSES = Classes(ClassificationHead(("negative", "positive"), "softmax"))


def look(source, limit=None, **options):
    return survey(open_data(source, **options), CLASSES, limit)


def test_rows_without_text_are_counted_by_reason_and_keep_their_numbers():
    source = ["a", None, "", " \n", "\ud800", "b", float("nan")]
    summary = look(source)
    assert (summary.rows, summary.texts) == (7, 2)
    assert summary.skipped == {"empty text": 2, "invalid text": 1, "null text": 2}
    assert [row.number for row in rows_of(open_data(source), CLASSES) if not row.skipped] == [0, 5]


def test_a_pair_needs_both_texts():
    source = [{"text": "a", "b": "c"}, {"text": "a", "b": None}, {"text": "a", "b": " "}]
    summary = look(source, pair_column="b")
    assert summary.skipped == {"empty pair": 1, "null pair": 1}
    assert next(rows_of(open_data(source, pair_column="b"), CLASSES)).input == ("a", "c")


def test_a_value_of_another_type_is_skipped_under_its_type():
    assert look(["a", 3, 4, b"b"]).skipped == {"bytes text": 1, "int text": 2}
    assert look([("a", "b"), ("a", 5)]).skipped == {"int pair": 1}
    with pytest.raises(DataError, match="2 rows 2 int text"):
        look([1, 2])


def test_labels_are_looked_at_only_if_asked_for():
    source = [{"text": "a", "label": 1}, {"text": "b", "label": None}, {"text": "c", "label": "wrong"}]
    assert look(source).unlabelled == 3
    assert look(source, limit=2, label_column="label").unlabelled == 1
    with pytest.raises(DataError, match="a list, row 2: label 'wrong'"):
        look(source, label_column="label")


def test_nothing_to_explain_is_an_error():
    with pytest.raises(DataError, match="a list is empty"):
        look([])
    with pytest.raises(DataError, match="2 rows 1 empty text, 1 null text"):
        look(["", None])


@pytest.mark.parametrize("data", [b"", b"text,label\n"])
def test_an_empty_file_is_an_error(tmp_path, data):
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.csv is empty"):
        look(tmp_path / "a.csv")


def test_the_digest_tells_contents_and_not_formats(tmp_path):
    digests = {look(write(tmp_path / n), label_column="label").digest for n in ("a.parquet", "a.csv", "a.jsonl")}
    assert len(digests) == 1
    changed = [[*ROWS[:3]], [*ROWS[1:], ROWS[0]], [ROWS[0] | {"label": 0}, *ROWS[1:]]]
    others = {look(rows, label_column="label").digest for rows in changed}
    assert len(others | digests) == 4


def test_lengths_and_limit():
    summary = look(["aa", "b", "cc", "ddd"], limit=3)
    assert summary.lengths == {1: 1, 2: 2}
    assert summary.rows == 3
