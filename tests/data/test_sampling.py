import pytest

from gaflow.data import Classes, draw_sample, open_data, rows_of, survey
from gaflow.tasks.classification import ClassificationHead

CLASSES = Classes(ClassificationHead(("negative", "positive"), "softmax"))


def draw(lengths, size, seed=0):
    data = open_data(["x" * n if n else None for n in lengths])
    return draw_sample(rows_of(data, CLASSES), survey(data, CLASSES), size, seed)


LENGTHS = [5] * 30 + [1, 2, 3, 4] * 25 + [6, 7, 8, 9] * 15 + [0] * 10  # 5 is the mode


def test_half_is_shorter_and_half_is_longer_than_the_mode():
    drawn = draw(LENGTHS, 41)
    lengths = [LENGTHS[k] for k in drawn.rows]
    assert drawn.mode == 5
    assert sum(0 < n < 5 for n in lengths) == drawn.shorter == 20
    assert sum(n > 5 for n in lengths) == drawn.longer == 21
    assert drawn.equal == 0
    assert len(drawn.rows) == 41


def test_of_several_modes_the_smallest_counts():
    assert draw([3, 3, 2, 2, 9], 2).mode == 2


def test_no_more_texts_than_asked_for_are_all_taken_and_skipped_rows_never():
    drawn = draw([5, 5, 5, 0, 1, 9], 5)
    assert drawn.rows == {0, 1, 2, 4, 5}
    assert (drawn.shorter, drawn.longer, drawn.equal) == (1, 1, 3)
    assert draw([5, 5, 5, 0, 1, 9], 100).rows == {0, 1, 2, 4, 5}


def test_a_side_with_too_few_is_made_up_for():
    drawn = draw([5] * 10 + [1] * 3 + [9] * 8, 12)
    assert len(drawn.rows) == 12
    assert drawn.shorter == 3
    assert drawn.longer >= 6
    assert drawn.longer + drawn.equal == 9


def test_the_seed_decides_and_nothing_else():
    assert draw(LENGTHS, 30, seed=1) == draw(LENGTHS, 30, seed=1)
    assert draw(LENGTHS, 30, seed=1).rows != draw(LENGTHS, 30, seed=2).rows


def test_every_text_of_a_side_is_as_likely_as_any_other():
    times = [0] * 12
    for seed in range(600):
        for k in draw([5] * 4 + [1, 2, 3, 4] + [6, 7, 8, 9], 4, seed).rows:
            times[k] += 1
    assert times[:4] == [0] * 4
    assert sum(times) == 2400
    assert all(times[k] == pytest.approx(300, abs=75) for k in range(4, 12))  # 5 standard deviations
