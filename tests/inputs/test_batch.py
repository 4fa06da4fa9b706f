from itertools import chain, combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from gaflow.inputs.batch import ENOUGH_WORK, Padding, batches, collate, neutral_tokens
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


def lengths_of_batches(encodings, *args):
    return [[len(encodings[k]) for k in group] for group in batches(encodings, *args)]


def cost_of_batches(groups, work):
    return sum(1 + len(lengths) * work(max(lengths)) for lengths in groups)


def test_short_texts_are_not_padded_to_a_long_one_where_a_batch_of_their_own_costs_less():
    encodings = encode(wordpiece(), ["dog " * n for n in (30, 510, 30)])
    assert lengths_of_batches(encodings, 16, Padding(0), lambda n: None, lambda n: n / 100) == [[512], [32, 32]]
    assert lengths_of_batches(encodings, 16, Padding(0), lambda n: None, lambda n: n / 2000) == [[512, 32, 32]]
    assert lengths_of_batches(encodings, 16, Padding(0), lambda n: None, lambda n: None) == [[512, 32, 32]]


@pytest.mark.parametrize("seed", range(8))
def test_no_other_batches_of_similar_lengths_cost_less(seed):
    generator = np.random.default_rng(seed)
    lengths = sorted(generator.integers(1, 60, 9).tolist(), reverse=True)
    encodings = encode(wordpiece(), ["dog " * n for n in lengths])
    lengths = [len(encoding) for encoding in encodings]
    size = int(generator.integers(2, 6))

    def work(length):
        return (length / 40) ** 1.5

    costs = []
    for cuts in range(9):
        for inner in combinations(range(1, 9), cuts):
            ends = [0, *inner, 9]
            groups = [lengths[start:stop] for start, stop in pairwise(ends)]
            if max(map(len, groups)) <= size:
                costs.append(cost_of_batches(groups, work))
    groups = lengths_of_batches(encodings, size, Padding(0), lambda n: None, work)
    assert list(chain.from_iterable(groups)) == lengths
    assert max(map(len, groups)) <= size
    assert cost_of_batches(groups, work) == pytest.approx(min(costs), rel=1e-12)


def test_batches_are_full_from_the_longest_text_on_and_end_where_their_calls_hardly_count():
    encodings = encode(wordpiece(), ["dog"] * 7)
    assert list(map(len, batches(encodings, 3, Padding(0), lambda n: None, lambda n: 0.1))) == [3, 3, 1]
    assert list(map(len, batches(encodings, 3, Padding(0), lambda n: 2, lambda n: 0.1))) == [2, 2, 2, 1]
    assert list(map(len, batches(encodings, 7, Padding(0), lambda n: None, lambda n: ENOUGH_WORK / 4))) == [4, 3]
    assert list(map(len, batches(encodings, 7, Padding(0), lambda n: None, lambda n: 2 * ENOUGH_WORK))) == [1] * 7


def test_texts_that_cannot_be_padded_safely_run_with_their_own_length():
    encodings = encode(wordpiece(), ["dog " * n for n in (2, 1, 2, 1, 2)])
    assert list(batches(encodings, 2, Padding(0, left=True))) == [[0, 2], [4], [1, 3]]
    assert list(batches(encodings, 2, Padding(0, left=True), lambda n: None, lambda n: 0.1)) == [[0, 2], [4], [1, 3]]
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
