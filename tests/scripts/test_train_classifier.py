import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from benchmarks.train_classifier import Texts, Training, groups, mask_at_random, read, split, train, weight_hash
from gaflow import Explainer
from tests.support.models import SIZE, wordpiece

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SETTINGS = Training(epochs=16, batch_size=8, rate=2e-3, max_length=16)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A base model, and texts whose class is told by one word."""
    folder = tmp_path_factory.mktemp("training")
    texts = [f"this {word} film is {end}" for word in ("good", "bad") for end in "abcdefghijklmnopqrst"]
    rows = pa.table({"text": texts, "label": [0] * 20 + [1] * 20})
    parquet.write_table(rows, folder / "train.parquet")
    parquet.write_table(rows.slice(15, 10), folder / "test.parquet")
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(vocab_size=len(wordpiece()), **SIZE)).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    return folder


def run(files, out, settings=SETTINGS):
    places = (str(files / "train.parquet"), str(files / "test.parquet"))
    return train(str(files / "base"), places, ["good", "bad"], out, settings, "cpu")


def test_a_word_that_tells_the_class_is_learnt_and_the_same_seed_gives_the_same_weights(files, tmp_path):
    first, second = run(files, tmp_path / "a"), run(files, tmp_path / "b")
    assert not torch.are_deterministic_algorithms_enabled()
    assert first["accuracy"]["test"] == 1.0
    assert first["loss"][-1] < first["loss"][0] / 2
    assert first["weights"] == second["weights"]
    assert json.loads((tmp_path / "a" / "training.json").read_text()) == first
    explainer = Explainer(tmp_path / "a", device="cpu")
    assert explainer("this bad film is z").prediction == "bad"
    assert explainer.runner.limit == 16


def test_what_is_stored_is_what_was_tested(files, tmp_path):
    record = run(files, tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float16)

    assert weight_hash(model) == record["weights"]


def test_no_text_is_both_trained_on_and_held_out(files, tmp_path):
    training, validation = split(1000, 3)
    assert len(validation) == 50
    assert sorted([*training, *validation]) == list(range(1000))
    assert (split(1000, 3)[1] == validation).all()
    assert (split(1000, 4)[1] != validation).any()
    record = run(files, tmp_path)
    assert record["texts"]["train"] + record["texts"]["heldout"] == 40
    assert parquet.read_table(tmp_path / "heldout.parquet").num_rows == record["texts"]["heldout"] == 2


def test_every_text_is_in_one_batch():

    data = Texts([[1] * (k % 7 + 1) for k in range(53)], [0] * 53)
    for rng in (None, np.random.default_rng(0)):
        batches = list(groups(data, 8, rng))
        assert sorted(k for group in batches for k in group) == list(range(53))
        assert max(map(len, batches)) == 8


def test_a_text_may_be_a_list_of_words(tmp_path):
    rows = {"tokens": [["this", "good", "film"], ["bad"]], "text": ["as it was", "bad"], "label": [1, 0]}
    parquet.write_table(pa.table(rows), tmp_path / "words.parquet")
    assert read(str(tmp_path / "words.parquet"), "tokens") == (["this good film", "bad"], [1, 0])
    assert read(str(tmp_path / "words.parquet")) == (["as it was", "bad"], [1, 0])


def test_random_masking_keeps_special_tokens_and_masks_no_more_than_the_share():
    data = Texts([[101, *range(1, 11), 102], [101, 7, 102]], [0, 1])
    rng = np.random.default_rng(0)
    counts = set()
    for _ in range(200):
        masked = mask_at_random(data, {101, 102}, {"mask": 99}, 0.3, rng)
        assert masked.classes == data.classes
        first, second = masked.ids
        assert second == data.ids[1]  # less than one token may be masked
        assert (first[0], first[-1], len(first)) == (101, 102, 12)
        changed = [(old, new) for old, new in zip(data.ids[0], first, strict=True) if old != new]
        assert {new for _, new in changed} <= {99}
        counts.add(len(changed))
    assert counts == {0, 1, 2, 3}
    lengths = {len(mask_at_random(data, {101, 102}, {"delete": None}, 0.3, rng).ids[0]) for _ in range(100)}
    assert lengths == {9, 10, 11, 12}


def test_a_model_trained_with_masking_reads_masked_texts_and_says_how_it_was_trained(files, tmp_path):
    settings = replace(SETTINGS, masking=0.5)
    record = run(files, tmp_path / "masked", settings)
    assert record["settings"]["masking"] == 0.5
    assert record["weights"] != run(files, tmp_path / "plain")["weights"]
    again = run(files, tmp_path / "again", settings)
    assert again["weights"] == record["weights"]
