from types import SimpleNamespace

from gaflow.inputs.batch import Padding, batches, collate, neutral_tokens
from gaflow.inputs.encoding import encode
from tests.support.models import unigram, wordpiece


def test_batches_hold_similar_lengths_and_every_text_once():
    encodings = encode(wordpiece(), ["dog " * n for n in (5, 1, 4, 2, 3, 5, 1)])
    groups = list(batches(encodings, 3, Padding(0)))
    assert groups == [[0, 5, 2], [4, 3, 1], [6]]
    assert list(batches([], 3, Padding(0))) == []


def test_batches_hold_no_more_than_fits_at_the_length_of_their_longest_text():
    encodings = encode(wordpiece(), ["dog " * n for n in (5, 1, 4, 2, 3, 5, 1)])
    lengths = []

    def fit(length):
        lengths.append(length)
        return 1 if length == 7 else 2 if length == 6 else None

    assert list(batches(encodings, 3, Padding(0), fit)) == [[0], [5], [2, 4], [3, 1, 6]]
    assert lengths == [7, 7, 6, 4]


def test_texts_that_cannot_be_padded_safely_run_with_their_own_length():
    encodings = encode(wordpiece(), ["dog " * n for n in (2, 1, 2, 1, 2)])
    assert list(batches(encodings, 2, Padding(0, left=True))) == [[0, 2], [4], [1, 3]]
    assert [len(group) for group in batches(encodings, 2, Padding(None))] == [1] * 5


def test_neutral_tokens_are_those_that_there_are_padding_first():
    assert list(neutral_tokens(wordpiece(), Padding(0)).items()) == [("pad", 0), ("mask", 4), ("unk", 1)]
    assert neutral_tokens(unigram(), Padding(None)) == {"pad": 1, "unk": 3}
    assert neutral_tokens(unigram(), Padding(7)) == {"pad": 7, "unk": 3}
    assert neutral_tokens(SimpleNamespace(), Padding(None)) == {}
    encodings = encode(wordpiece(), ["dog"])
    assert collate(encodings, Padding(None)).neutral == {}
    assert collate(encodings, Padding(9)).neutral == {"pad": 9}
    assert collate(encodings, Padding(9), neutral={"mask": 4}).neutral == {"mask": 4}


def test_a_batch_is_padded_on_the_right():
    encodings = encode(wordpiece(), [("dog", "dog dog"), "dog"])
    batch = collate(encodings, Padding(9, 4))
    assert batch.mask.tolist() == [[True] * 6, [True] * 3 + [False] * 3]
    assert batch.inputs["attention_mask"].tolist() == batch.mask.long().tolist()
    assert batch.inputs["input_ids"][1, 3:].tolist() == [9, 9, 9]
    assert batch.inputs["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 4, 4, 4]]
    assert batch.padded
    assert not collate(encodings[:1], Padding(None)).padded
