import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gaflow import evaluate
from gaflow.benchmark.stored import stored_scores
from gaflow.errors import DataError

TEXTS = ["a bad film", "good", "this dog is cute"]


def rows_of(explainer, methods=("cat", "rawatt")):
    rows = []
    for row, text in enumerate(TEXTS):
        for att in explainer.compare(text, methods).values():
            plain = att.to_dict()
            kept = {k: plain[k] for k in ("text", "method", "tokens", "offsets", "segments", "scores", "target")}
            rows.append({"row": row, **kept, "gold": row, "error": None})
    return rows


def write(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_stored_scores_are_judged_like_fresh_ones(explainer, tmp_path):
    given = stored_scores(write(tmp_path / "a.parquet", rows_of(explainer)))
    assert given.texts == TEXTS
    assert given.labels == [0, 1, 2]
    assert given.skipped == {}
    found = evaluate(explainer, given.texts, given.labels, scores=given.scores)
    fresh = evaluate(explainer, TEXTS, [0, 1, 2], ["cat", "rawatt"])
    np.testing.assert_array_equal(found.masked, fresh.masked)
    assert found.table().equals(fresh.table())


def test_a_text_without_scores_is_left_out_for_all_and_counted(explainer, tmp_path):
    rows = rows_of(explainer)
    rows[2] |= {"scores": None, "error": "it failed"}
    del rows[5]
    given = stored_scores(write(tmp_path / "a.parquet", rows))
    assert given.texts == TEXTS[:1]
    assert given.skipped == {"cat: it failed": 1, "no scores by rawatt": 1}
    assert stored_scores(tmp_path / "a.parquet", ["rawatt"]).texts == TEXTS[:2]


def test_scores_of_another_library_need_text_offsets_and_scores_alone(explainer, tmp_path):
    rows = [
        {"text": text, "method": "words", "scores": [float(len(w)) for w in text.split()], "offsets": spans(text)}
        for text in TEXTS
    ]
    given = stored_scores(write(tmp_path / "b.parquet", rows))
    assert given.labels is None
    found = evaluate(explainer, given.texts, scores=given.scores)
    assert found.methods == ("words", "random")
    assert [len(explainer.tokenizer.tokenize(t)) for t in ("this dog is cute", "good")] == [4, 1]
    plain = evaluate(explainer, ["this dog is cute", "good"], scores={"words": [[4.0, 3.0, 2.0, 4.0], [4.0]]})
    np.testing.assert_allclose(found.masked[0, [2, 1]], plain.masked[0], atol=2e-6)


def spans(text):
    ends = np.cumsum([len(w) + 1 for w in text.split()]) - 1
    return [[int(end - len(w)), int(end)] for w, end in zip(text.split(), ends, strict=True)]


def test_nothing_and_twice_are_refused(explainer, tmp_path):
    rows = rows_of(explainer)
    with pytest.raises(DataError, match="agf"):
        stored_scores(write(tmp_path / "a.parquet", rows), ["agf"])
    with pytest.raises(DataError, match="twice"):
        stored_scores(write(tmp_path / "b.parquet", rows + rows[:1]))
    with pytest.raises(DataError, match="every method"):
        stored_scores(write(tmp_path / "c.parquet", [r | {"scores": None, "error": "no"} for r in rows]))
