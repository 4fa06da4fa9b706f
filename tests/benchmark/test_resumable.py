import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gaflow.benchmark.folder_layout import slug
from gaflow.evaluation.result import Evaluation
from tests.support.benchmarks import EXPLAINER, ROWS, files, run


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("SST-2", "sst-2"),
        ("AG News", "ag-news"),
        ("../../etc", "etc"),
        ("a/b\\c", "a-b-c"),
        ("日本", "data"),
        ("..", "data"),
    ],
)
def test_names_become_folders_that_stay_where_they_are(name, folder):
    assert slug(name) == folder


@pytest.fixture
def rows():
    """How many rows the model is asked about."""
    found = []
    handle = EXPLAINER.model.register_forward_hook(lambda _model, _given, out: found.append(len(out.logits)))
    yield found
    handle.remove()


def stopped_after(parts, out, **options):
    """A benchmark that is stopped once so many parts are there."""
    done = run(out, stop=lambda: len(list(out.rglob(".parts/*/evaluation.json"))) >= parts, **options)
    assert not done.finished
    assert len(list(out.rglob(".parts/*/evaluation.json"))) == parts
    return done


def test_parts_that_are_there_are_not_asked_about_again(tmp_path, rows):
    run(tmp_path / "whole")
    stopped_after(2, tmp_path / "parts")
    rows.clear()
    done = run(tmp_path / "parts")
    assert done.masked == 6
    left = sum(rows)
    rows.clear()
    run(tmp_path / "again", source=ROWS[8:])  # the texts of the last two parts
    explained = 2 * sum(len(ROWS[k : k + 4]) for k in (8, 12)) + 3  # by both methods, and tried on a short one
    assert left < sum(rows) <= left + explained + 8
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_parts_of_other_settings_or_damaged_ones_are_computed_anew(tmp_path):
    stopped_after(2, tmp_path, sample=None)
    next(tmp_path.rglob(".parts/00001/values.parquet")).write_bytes(b"no table")
    assert stopped_after(3, tmp_path, sample=None).masked == 4 + 4
    assert run(tmp_path, sample=None, seed=1).masked == 14


def test_parts_of_other_texts_are_computed_anew(tmp_path):
    rows = [{"text": r["text"], "method": "theirs", "scores": [1.0] * len(r["text"].split())} for r in ROWS]
    for row in rows:
        row["tokens"] = row["text"].split()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "theirs.parquet")
    given = {"source": tmp_path / "theirs.parquet", "methods": None}
    stopped_after(2, tmp_path / "out", **given, shard_size=4)
    done = run(tmp_path / "out", **given, shard_size=3)
    assert (done.texts, done.masked) == (14, 14)
    run(tmp_path / "whole", **given, shard_size=3)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_parts_are_joined_in_order_whatever_was_asked_for(tmp_path):
    one = Evaluation.load(run(tmp_path / "one", bounds=True, soft=True, shard_size=20).evaluations["pad"])
    many = Evaluation.load(run(tmp_path / "many", bounds=True, soft=True).evaluations["pad"])
    np.testing.assert_array_equal(many.sizes, one.sizes)
    np.testing.assert_allclose(many.masked, one.masked, atol=1e-6)
    assert many.gold is not None
    assert one.gold is not None
    np.testing.assert_array_equal(many.gold, one.gold)
    assert one.bounds is not None
    assert many.bounds is not None
    np.testing.assert_allclose(many.bounds, one.bounds, atol=1e-6)
    assert many.soft is not None
    assert one.soft is not None
    assert many.soft.shape == one.soft.shape
    assert many.manifest["inputs"] >= one.manifest["inputs"] > 0
