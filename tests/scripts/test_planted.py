import json

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.deadline import Deadline
from benchmarks.planted import Settings, data_of, run
from benchmarks.train_classifier import Training
from gaflow import Explainer
from gaflow.evaluation.planted_words import CONTEXT, WORDS
from tests.support.models import SIZE, wordpiece
from tests.support.models import WORDS as KNOWN

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A base model, and texts whose labels nothing in them tells."""
    folder = tmp_path_factory.mktemp("planted")
    texts = [f"{one} {other} is a film" for one in KNOWN for other in KNOWN]
    rows = pa.table({"text": texts, "label": [k % 2 for k in range(len(texts))]})
    parquet.write_table(rows, folder / "data.parquet")
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(wordpiece()), **{**SIZE, "num_hidden_layers": 2})
    BertForSequenceClassification(config).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    return folder


def run_on_cpu(files, out, settings):
    return run(str(files / "base"), str(files / "data.parquet"), out, settings, "cpu")


def test_a_planted_word_is_learnt_and_gradients_find_it(files, tmp_path):
    settings = Settings(
        share=0.8, texts=12, methods=("grads", "ig"), training=Training(epochs=6, batch_size=16, rate=3e-3)
    )
    record = run_on_cpu(files, tmp_path, settings)
    assert record["accuracy"]["planted"] == 1
    assert record["accuracy"]["plain"] < 0.9
    assert record["followed"] == 1
    assert json.loads((tmp_path / "planted.json").read_text()) == record
    values = parquet.read_table(tmp_path / "recovery.parquet").to_pandas()
    means = values.groupby("method")["precision"].mean()
    assert means["ig"] > 0.9
    assert means["ig"] > means["random"]
    assert len(values) == 3 * 12
    text = (tmp_path / "recovery.md").read_text()
    assert "| ig |" in text
    assert "planted 1.000" in text
    assert "not learnt" not in text
    explainer = Explainer(tmp_path, device="cpu")
    assert WORDS[0] in explainer.tokenizer.tokenize(f"a {WORDS[0]} film")
    assert [explainer(f"a {word} film", "grads").target for word in WORDS[:2]] == [0, 1]


@pytest.mark.parametrize("kind", ["context", "pair"])
def test_rules_of_two_words_are_planted_in_full_and_by_half(files, tmp_path, kind):
    settings = Settings(kind=kind, texts=6, methods=("gf",), training=Training(epochs=1, batch_size=32))
    parts = data_of(str(files / "data.parquet"), settings)
    assert {name: {len(row.spans) for row in rows} for name, rows in parts.items()} == {
        "train": {0, 2},
        "planted": {2},
        "plain": {0},
        "decoys": {0},
    }
    words = {*WORDS[:2], CONTEXT}
    assert all(len(words & set(row.text.split())) == 1 for row in parts["decoys"])
    assert {row.source for row in parts["planted"]} == {row.source for row in parts["plain"]}
    record = run_on_cpu(files, tmp_path, settings)
    assert set(record["accuracy"]) == {"planted", "plain", "decoys"}
    assert record["accuracy"]["planted"] < 0.9  # an epoch is not enough for two words
    assert "not learnt" in (tmp_path / "recovery.md").read_text()
    assert record["texts"]["train"] + record["texts"]["plain"] == parquet.read_table(files / "data.parquet").num_rows


def test_methods_that_there_was_no_time_for_are_named(files, tmp_path, monkeypatch):
    learnt = Training(epochs=6, batch_size=16, rate=3e-3)
    settings = Settings(share=0.8, texts=6, methods=("grads", "gf"), training=learnt)
    allowed = iter([True, False])
    deadline = Deadline()
    monkeypatch.setattr(Deadline, "is_over", property(lambda _: not next(allowed)))
    record = run(str(files / "base"), str(files / "data.parquet"), tmp_path, settings, "cpu", deadline)
    assert record["left_out"] == ["gf"]
    text = (tmp_path / "recovery.md").read_text()
    assert "| grads |" in text
    assert "| gf |" not in text
    assert "time was over: gf." in text


def test_long_texts_are_cut_before_anything_is_planted(files, tmp_path):
    parquet.write_table(pa.table({"text": ["dog " * 900] * 40, "label": [0, 1] * 20}), tmp_path / "long.parquet")
    parts = data_of(str(tmp_path / "long.parquet"), Settings(most_words=20))
    assert {len(row.text.split()) for row in parts["planted"]} == {21}
    assert {len(row.text.split()) for row in parts["plain"]} == {20}


def test_texts_of_few_words_are_left_out(files, tmp_path):
    texts = ["a dog"] * 20 + ["a dog is a good dog"] * 40
    parquet.write_table(pa.table({"text": texts, "label": [0, 1] * 30}), tmp_path / "short.parquet")
    parts = data_of(str(tmp_path / "short.parquet"), Settings(least_words=5))
    assert sum(len(parts[name]) for name in ("train", "plain")) == 40
