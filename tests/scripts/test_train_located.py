import json

import pytest
import torch
from transformers import BertConfig, BertModel

from benchmarks import located_tasks
from benchmarks.train_classifier import Training
from benchmarks.train_located import (
    answer_f1,
    encode_answers,
    encode_tags,
    entity_spans,
    hold_out,
    normalised_answer,
    tag_names,
    train,
)
from tests.support.models import SIZE, wordpiece

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pandas")

SETTINGS = Training(epochs=20, batch_size=8, rate=3e-3, max_length=24)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A base model; sentences in which two words are entities; questions whose answer is the same two words."""
    folder = tmp_path_factory.mktemp("located")
    sentences = []
    questions = []
    for word in ("good", "bad", "not", "very", "is", "a"):
        for last in ("film", "and", "is", "good"):
            tokens = [word, "this", "dog", "cute", "smart", last]
            sentences.append({"tokens": tokens, "tags": ["O", "O", "B-ANIMAL", "B-PRAISE", "I-PRAISE", "O"]})
            context = f"{word} a film is cute smart {last}"
            answer = {"text": "cute smart", "answer_start": context.index("cute")}
            questions.append({"question": f"is this {last}", "context": context, "answers": [answer]})
    parquet.write_table(pa.Table.from_pylist(sentences), folder / "tags.parquet")
    parquet.write_table(pa.Table.from_pylist(questions), folder / "answers.parquet")
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(wordpiece()), **SIZE)).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    return folder


def run(files, task, data, out):
    test = str(files / data) if task == "token-classification" else None
    return train(task, str(files / "base"), (str(files / data), test), out, SETTINGS, "cpu")


def test_entities_are_learnt_and_their_explanations_measured(files, tmp_path):
    record = run(files, "token-classification", "tags.parquet", tmp_path)
    assert record["test_scores"]["f1"] > 0.9
    assert json.loads((tmp_path / "training.json").read_text()) == record
    arguments = ["--model", str(tmp_path), "--task", "token-classification", "--texts", "4", "--least", "2"]
    output = tmp_path / "table.md"
    located_tasks.main([*arguments, "--methods", "attnlrp,rollout", "--device", "cpu", "--output", str(output)])
    text = output.read_text()
    assert "of the explained outputs 100.0% are right" in text
    assert "| attnlrp |" in text
    assert "| random |" in text


def test_answers_are_learnt_on_other_contexts_than_those_tested(files, tmp_path):
    record = run(files, "question-answering", "answers.parquet", tmp_path)
    assert record["test_scores"]["exact"] > 0.5
    rows = parquet.read_table(files / "answers.parquet").to_pylist()
    training_rows, test_rows = hold_out(rows, 0)
    assert not {row["context"] for row in training_rows} & {row["context"] for row in test_rows}
    assert len(training_rows) + len(test_rows) == len(rows)
    assert record["texts"] == {"train": len(training_rows), "test": len(test_rows)}


def test_entities_are_runs_of_one_type_that_begin_once():
    tags = ["B-A", "I-A", "B-A", "O", "I-B", "I-B", "I-A"]
    assert entity_spans(tags) == {(0, 1, "A"), (2, 2, "A"), (4, 5, "B"), (6, 6, "A")}
    assert tag_names([{"tags": ["O", "B-X"]}, {"tags": ["I-A"]}]) == ["O", "B-A", "I-A", "B-X", "I-X"]


def test_later_pieces_of_a_word_that_begins_an_entity_are_inside_it():
    tokenizer = wordpiece()
    assert tokenizer.tokenize("dogs") == ["dog", "##s"]
    texts = encode_tags(tokenizer, [{"tokens": ["a", "dogs"], "tags": ["O", "B-X"]}], ["O", "B-X", "I-X"], 16)
    assert texts.labels == [[-100, 0, 1, 2, -100]]


def test_answers_are_marked_by_their_first_and_last_token():
    tokenizer = wordpiece()
    row = {
        "question": "is this",
        "context": "a dog is cute",
        "answers": [{"text": "dog is", "answer_start": 2}],
    }
    texts = encode_answers(tokenizer, [row], 32)
    first, last = texts.labels[0]
    assert tokenizer.convert_ids_to_tokens(texts.ids[0][first : last + 1]) == ["dog", "is"]
    cut = encode_answers(tokenizer, [row], 6)
    assert cut.ids == []


def test_answers_are_compared_as_squad_does():
    assert normalised_answer("The  Denver Broncos!") == "denver broncos"
    assert answer_f1("the Denver Broncos", "Denver Broncos") == 1.0
    assert answer_f1("Denver", "Denver Broncos") == pytest.approx(2 / 3)
    assert answer_f1("Carolina", "Denver") == 0.0
