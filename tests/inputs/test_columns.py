import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gaflow
from gaflow.data import open_data
from gaflow.errors import ArgumentError, DataError
from gaflow.inputs.columns import as_items
from gaflow.jobs import attribute, read_attributions

TEXTS = ["a smart dog", "it is not cute", "a good film"]
LABELS = [0, 1, 1]
ROWS = {"text": TEXTS, "label": LABELS}
COLUMNS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "numpy objects": lambda texts: np.array(texts, dtype=object),
    "pandas": pd.Series,
    "pandas categories": lambda texts: pd.Series(texts, dtype="category"),
    "pandas array": lambda texts: pd.Series(texts).array,
    "pandas values": lambda texts: pd.DataFrame({"text": texts})["text"].values,
    "polars": pl.Series,
    "polars categories": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "arrow": pa.array,
    "arrow dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "arrow chunks": lambda texts: pa.chunked_array([texts]),
    "datasets": lambda texts: datasets.Dataset.from_dict({"text": texts})["text"],
}
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow batch": pa.RecordBatch.from_pydict,
    "datasets": datasets.Dataset.from_dict,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_other_libraries_are_lists_of_texts(name, explainer):
    column = COLUMNS[name](TEXTS)
    assert explainer(column, "attcat") == explainer(TEXTS, "attcat")
    evaluation = gaflow.evaluate(explainer, column, COLUMNS[name](["negative"] * 3), methods=["attcat"])
    expected = gaflow.evaluate(explainer, TEXTS, ["negative"] * 3, methods=["attcat"])
    assert np.array_equal(evaluation.masked, expected.masked)
    assert [row for row, _, _ in open_data(column).read()] == TEXTS


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_data_sets(name, explainer, tmp_path):
    frame = FRAMES[name](ROWS)
    data = open_data(frame, label_column="label")
    rows = list(data.read())
    assert rows == list(zip(TEXTS, [None] * 3, LABELS, strict=True))
    assert list(data.read()) == rows
    attribute(explainer, frame, tmp_path / "frame", ["attcat"])
    attribute(explainer, TEXTS, tmp_path / "list", ["attcat"])
    stored = [item.scores.tolist() for item in read_attributions(tmp_path / "frame") if item.scores is not None]
    expected = [item.scores.tolist() for item in read_attributions(tmp_path / "list") if item.scores is not None]
    assert stored == expected
    assert len(stored) == 3


@pytest.mark.parametrize("name", ["pandas", "polars", "arrow"])
def test_a_frame_has_to_have_a_column_of_texts(name, explainer):
    frame = FRAMES[name](ROWS)
    assert len(gaflow.evaluate(explainer, frame, methods=["attcat"]).sizes) == 3
    with pytest.raises(DataError, match="'label'"):
        open_data(frame, text_column="label")
    with pytest.raises(DataError, match="no column 'texts'; did you mean 'text'"):
        open_data(frame, text_column="texts")


def test_a_tuple_of_two_strings_is_a_pair():
    assert as_items(("a", "b")) is None
    assert as_items((("a", "b"), ("c", "d"))) == [("a", "b"), ("c", "d")]
    assert as_items(("a", "b", "c")) == ["a", "b", "c"]
    for picture in (np.zeros((4, 4, 3)), np.zeros(16), np.array(["a", "b"]).reshape(1, 2)):
        assert as_items(picture) is None


def test_frames_in_the_place_of_texts_are_refused_with_the_next_step(explainer):
    for frame in (*(make(ROWS) for make in FRAMES.values()), datasets.Dataset.from_dict(ROWS).to_iterable_dataset()):
        with pytest.raises(TypeError, match="pass one of its columns"):
            explainer(frame, "attcat")


def test_a_tuple_of_two_texts_is_a_data_set_of_two():
    assert [row for row, _, _ in open_data(("a dog", "a film")).read()] == ["a dog", "a film"]


def test_sources_that_are_not_read_yet_or_hold_several_are_refused_with_the_next_step():
    with pytest.raises(TypeError, match="split"):
        open_data(datasets.DatasetDict({"test": datasets.Dataset.from_dict(ROWS)}))
    with pytest.raises(TypeError, match="collect"):
        open_data(pl.LazyFrame(ROWS))


def test_a_missing_text_of_a_series_is_named(explainer):
    with pytest.raises(TypeError, match=r"texts\[1\]"):
        explainer(pd.Series(["a dog", None], dtype=object), "attcat")


def test_token_ids_are_attributed_as_texts_are(explainer):
    batch = explainer.tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = batch["attention_mask"]
    expected = explainer(TEXTS, "agf", target=1)
    for options in ({"attention_mask": mask}, {"additional_forward_args": (mask,)}, {"additional_forward_args": mask}):
        scores = explainer.attribute(batch["input_ids"], 1, method="agf", **options)
        assert scores.shape == mask.shape
        for row, att in zip(scores, expected, strict=True):
            assert row[: len(att.tokens)].tolist() == pytest.approx(att.scores.tolist())
            assert not row[len(att.tokens) :].any()


def test_token_ids_take_a_target_each(explainer):
    ids = explainer.tokenizer(["a smart dog", "a good film"], return_tensors="pt")["input_ids"]
    both = explainer.attribute(ids, [0, 1], method="attcat")
    assert both[0].tolist() == pytest.approx(explainer("a smart dog", "attcat", target=0).scores.tolist(), rel=1e-5)
    assert both[1].tolist() == pytest.approx(explainer("a good film", "attcat", target=1).scores.tolist(), rel=1e-5)


def test_token_ids_with_padding_on_the_left_are_refused(explainer):
    batch = explainer.tokenizer(TEXTS, padding=True, return_tensors="pt")
    with pytest.raises(ArgumentError, match="attention_mask"):
        explainer.attribute(batch["input_ids"], attention_mask=batch["attention_mask"].flip(1))
    with pytest.raises(ArgumentError, match="shape"):
        explainer.attribute(batch["input_ids"][0])
    with pytest.raises(TypeError, match="whole numbers"):
        explainer.attribute(batch["input_ids"].float())
