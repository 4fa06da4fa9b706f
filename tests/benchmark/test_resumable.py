import copy
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import gaflow
from gaflow.benchmark import bench
from gaflow.benchmark.folder_layout import slug
from gaflow.errors import GaflowWarning, JobError
from gaflow.evaluation.result import Evaluation
from tests.support.benchmarks import EXPLAINER, METHODS_USED, ROWS, files, run
from tests.support.models import bert


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
def rows(monkeypatch):
    """How many rows the model is asked about, seen where it embeds words: a hook would make another model of it."""
    batch_sizes = []
    words = EXPLAINER.model.get_input_embeddings().weight
    embedding = torch.nn.functional.embedding

    def counting(ids, weight, *arguments, **options):
        if weight is words:
            batch_sizes.append(len(ids))
        return embedding(ids, weight, *arguments, **options)

    monkeypatch.setattr(torch.nn.functional, "embedding", counting)
    return batch_sizes


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
    settings = {"source": tmp_path / "theirs.parquet", "methods": None}
    stopped_after(2, tmp_path / "out", **settings, shard_size=4)
    done = run(tmp_path / "out", **settings, shard_size=3)
    assert (done.texts, done.masked) == (14, 14)
    run(tmp_path / "whole", **settings, shard_size=3)
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


def edit_descriptions(folder, pattern, change):
    """Let `change` edit the description of every stored evaluation of a pattern."""
    paths = list(folder.rglob(pattern))
    assert paths
    for path in paths:
        stored = json.loads(path.read_text())
        change(stored["manifest"])
        path.write_text(json.dumps(stored))


def test_parts_of_another_number_of_threads_are_used_with_a_warning_and_written_down(tmp_path):
    stopped_after(2, tmp_path)
    edit_descriptions(tmp_path, ".parts/*/evaluation.json", lambda manifest: manifest["asked"].update(threads=7))
    with pytest.warns(GaflowWarning, match="rounding"):
        outcome = run(tmp_path)
    assert outcome.masked == 6
    (environment,) = Evaluation.load(outcome.evaluations["pad"]).manifest["environments"]
    assert environment["threads"] == 7


def test_parts_of_another_config_are_computed_anew(tmp_path):
    stopped_after(2, tmp_path)

    def change(manifest):
        manifest["asked"]["model"]["config"]["hidden_act"] = "relu"

    edit_descriptions(tmp_path, ".parts/*/evaluation.json", change)
    assert run(tmp_path).masked == 14


def test_an_evaluation_of_the_first_version_is_finished(tmp_path):
    run(tmp_path)

    def as_first_written(manifest):
        for name in ("threads", "processor"):
            del manifest[name]
        for name in ("config", "attention"):
            del manifest["model"][name]
        del manifest["model"]["tokenizer"]["settings"]

    edit_descriptions(tmp_path, "pad/evaluation.json", as_first_written)
    assert run(tmp_path).masked == 0


def test_stored_attributions_are_not_judged_by_the_same_weights_under_another_config(tmp_path):
    run(tmp_path / "out")
    model, tokenizer = bert()
    config = copy.deepcopy(model.config)
    config.num_attention_heads = 2
    other = type(model)(config).eval()
    other.load_state_dict(model.state_dict())
    explainer = gaflow.Explainer(other, tokenizer)
    stored = tmp_path / "out" / "rows" / "attributions"
    with pytest.raises(JobError, match="num_attention_heads"):
        bench(explainer, {"rows": stored}, tmp_path / "judged", methods=METHODS_USED)
    assert not (tmp_path / "judged").exists()
    with pytest.raises(JobError, match="num_attention_heads"):
        bench(explainer, {"rows": ROWS}, tmp_path / "out", methods=METHODS_USED, shard_size=4, batch_size=2)


def test_a_rejected_benchmark_leaves_nothing(tmp_path):
    rows = [*ROWS[:2], {"text": "a dog", "label": "nobody"}] * 40  # beyond the texts that methods are tried on
    with pytest.raises(ValueError, match="nobody"):
        run(tmp_path / "out", [*ROWS * 5, *rows])
    assert not (tmp_path / "out").exists()
