import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gaflow.benchmark.stored_scores import holds_attributions, open_stored_scores
from gaflow.data import open_data
from gaflow.errors import DataError
from gaflow.jobs import attribute, read_attributions
from tests.support.evaluated import TEXTS

ROWS = [{"text": text, "label": k % 2} for k, text in enumerate(TEXTS)]


@pytest.fixture
def job(explainer, tmp_path):
    attribute(explainer, open_data(ROWS, label_column="label"), tmp_path / "job", ["cat", "rawatt"], shard_size=2)
    return tmp_path / "job"


def rows_of(folder):
    return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_a_job_is_read_shard_by_shard_with_the_scores_it_stored(job):
    scores = open_stored_scores(job)
    assert (scores.methods, scores.sizes, scores.skipped, scores.left_out) == (("cat", "rawatt"), (2, 2, 1), {}, {})
    assert scores.has_gold
    parts = [scores.read(k) for k in range(3)]
    assert [text for part in parts for text in part.texts] == TEXTS
    assert [gold for part in parts for gold in part.gold] == [0, 1, 0, 1, 0]
    assert not any(part.truncated for part in parts)
    for method in ("cat", "rawatt"):
        stored = list(read_attributions(job, methods=[method]))
        read = [scores for part in parts for scores in part.scores[method]]
        for one, other in zip(read, stored, strict=True):
            np.testing.assert_array_equal(one, other.scores)
        assert [target for part in parts for target in part.target] == [s.target for s in stored]


def test_the_same_rows_from_elsewhere_are_the_same_attributions(job, tmp_path):
    keys = ("row", "text", "method", "tokens", "offsets", "segments", "scores", "target", "gold")
    rows = [{name: row[name] for name in keys} for row in rows_of(job)]
    (tmp_path / "there").mkdir()
    for method in ("cat", "rawatt"):  # a file for each method, so that texts are in pieces
        method_rows = [row for row in rows if row["method"] == method]
        pq.write_table(pa.Table.from_pylist(method_rows), tmp_path / "there" / f"{method}.parquet")
    ours, theirs = open_stored_scores(job), open_stored_scores(tmp_path / "there", part_size=3)
    assert theirs.sizes == (3, 2)
    assert (theirs.methods, theirs.has_gold, theirs.source.job) == (ours.methods, True, {})
    one = [scores for k in range(3) for scores in ours.read(k).scores["cat"]]
    other = [item.scores for k in range(2) for item in theirs.read(k).scores["cat"]]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
    columns = ["row", "method", "scores"]
    rows = [s.example().select(columns).to_pylist() for s in (ours, theirs)]
    assert rows[0] == rows[1]


def test_the_example_fits_on_a_line(job):
    example = open_stored_scores(job).example().to_pylist()
    assert {row["text"] for row in example} == {TEXTS[0]}
    assert [row["method"] for row in example] == ["cat", "rawatt"]


def test_methods_are_chosen_by_name(job):
    assert open_stored_scores(job, ["rawatt"]).methods == ("rawatt",)
    with pytest.raises(DataError, match=r"agf.*cat, rawatt"):
        open_stored_scores(job, ["agf", "rawatt"])


def write(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def rows(*errors):
    """Rows of a method `a` that always has scores, and of `b` with these errors."""
    return [
        {"row": k, "text": f"text {k}", "method": m, "tokens": ["text"], "scores": [1.0], "error": e, "gold": 1}
        for k, error in enumerate(errors)
        for m, e in (("a", None), ("b", error))
    ]


def test_a_text_is_left_out_with_the_reason_and_reasons_have_no_numbers(tmp_path):
    records = rows(None, "ValueError: 17 of 20; do this", "ValueError: 3 of 20; do this", None, None)
    scores = open_stored_scores(write(tmp_path / "a.parquet", records))
    assert scores.methods == ("a", "b")
    assert scores.skipped == {"b: N of N": 2}
    assert scores.read(0).texts == ["text 0", "text 3", "text 4"]


def test_a_method_without_most_of_its_scores_is_left_out_and_its_texts_stay(tmp_path):
    scores = open_stored_scores(write(tmp_path / "a.parquet", rows(None, "no", "no")))
    assert scores.methods == ("a",)
    assert scores.left_out == {"b": "no scores for 2 of 3 texts: no"}
    assert scores.sizes == (3,)


def test_texts_that_were_read_in_windows_are_left_out(tmp_path):
    records = [row | {"facts": '{"windows": 2}' if row["row"] == 1 else "{}"} for row in rows(None, None, None)]
    scores = open_stored_scores(write(tmp_path / "a.parquet", records))
    assert list(scores.skipped.values()) == [1]
    assert scores.sizes == (2,)


def test_nothing_to_compare_is_an_error(tmp_path):
    broken = [row | {"error": "no"} for row in rows(None, None)]
    with pytest.raises(DataError, match="2 no"):
        open_stored_scores(write(tmp_path / "a.parquet", broken))
    with pytest.raises(DataError, match="row 0 twice for method 'a'"):
        open_stored_scores(write(tmp_path / "b.parquet", rows(None) * 2))


def test_texts_without_a_label_mean_that_there_are_no_labels(tmp_path):
    records = rows(None, None)
    records[2]["gold"] = None
    assert not open_stored_scores(write(tmp_path / "a.parquet", records)).has_gold


def test_attributions_are_told_from_texts(job, tmp_path):
    assert holds_attributions(job)
    assert holds_attributions(job / "part-00000.parquet")
    assert not holds_attributions(write(tmp_path / "a.parquet", ROWS))
    assert not holds_attributions(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"no")
    assert not holds_attributions(tmp_path / "b.parquet")
    assert not holds_attributions(tmp_path / "c.csv")


def test_a_shard_that_was_changed_is_refused(job):
    path = job / "part-00001.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataError, match="is damaged"):
        open_stored_scores(job)
