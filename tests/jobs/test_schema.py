import hashlib
import io

import pyarrow as pa
import pyarrow.parquet as pq

import gaflow
from gaflow.data import Row
from gaflow.explainer.many import TextResults
from gaflow.jobs.schema import SCHEMA, arrow_schema, records, shard_bytes, text_hash
from tests.support.models import bert

EXPLAINER = gaflow.Explainer(*bert())


def example_records(text="a dog", gold: int | None = 1):
    by_method = {"agf": EXPLAINER(text), "lime": "SolveError: no"}
    return records(
        Row(3, text, None, gold), TextResults(0, by_method, (0.5, 1.5, -1.0)), by_method, EXPLAINER.head.labels
    )


def test_the_schema_is_the_one_that_is_documented():
    import gaflow.jobs

    documented = [
        line.split()[0]
        for line in str(gaflow.jobs.__doc__).splitlines()
        if line[:4] == "    " and "/" not in line.split()[0]
    ]
    assert documented == list(SCHEMA)
    assert arrow_schema().field("offsets").type == pa.list_(pa.list_(pa.int32()))


def test_a_file_has_the_schema_and_the_same_rows_give_the_same_bytes():
    data = shard_bytes(example_records())
    assert data == shard_bytes(example_records())
    table = pq.read_table(io.BytesIO(data))
    assert table.schema.equals(arrow_schema())
    first, second = table.to_pylist()
    assert (first["row"], first["method"], first["gold"], first["error"]) == (3, "agf", 1, None)
    assert first["gold_label"] == EXPLAINER.head.labels[1]
    assert len(first["scores"]) == len(first["tokens"]) == len(first["offsets"]) == len(first["special_mask"])
    assert first["logits"] == [0.5, 1.5, -1.0]
    filled = {"row", "text", "text_hash", "method", "gold", "gold_label", "error"}
    assert {name for name, value in second.items() if value is not None} == filled
    assert second["error"] == "SolveError: no"


def test_nothing_that_is_stored_depends_on_time():
    assert '"seconds"' not in example_records()[0]["certificate"]
    assert '"gap"' in example_records()[0]["certificate"]


def test_no_gold_label_is_null():
    assert {(r["gold"], r["gold_label"]) for r in example_records(gold=None)} == {(None, None)}


def test_hashes_tell_texts_and_pairs_apart():
    texts = [("a", None), ("a", ""), ("a", "b"), ("ab", None), ("a", "bc"), ("ab", "c")]
    assert len({text_hash(*text) for text in texts}) == len(texts)
    assert text_hash("a") == hashlib.sha256(b"a").hexdigest()
