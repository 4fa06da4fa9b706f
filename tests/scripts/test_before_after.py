import pytest

from benchmarks.before_after import AGAIN, BEFORE, MEMORY, NOW, report, summarise


def measurement(seconds, bytes_of_memory):
    return {"agf": seconds, MEMORY: bytes_of_memory}


ROUNDS = [
    {BEFORE: measurement(0.02, 2**30), NOW: measurement(0.01, 2**30), AGAIN: measurement(0.011, 2**30)},
    {BEFORE: measurement(0.02, 2**30), NOW: measurement(0.03, 2**29), AGAIN: measurement(0.03, 2**29)},
    {BEFORE: measurement(0.04, 2**30), NOW: measurement(0.02, 2**30), AGAIN: measurement(0.01, 2**30)},
]


def test_ratios_are_those_of_each_round():
    ratios = summarise(ROUNDS)
    assert ratios["agf"].change == pytest.approx((0.5, 1.5, 0.5))
    assert ratios["agf"].noise == pytest.approx((1.1, 1.0, 0.5))
    assert ratios["agf"].amount == pytest.approx(20)
    assert ratios[MEMORY].amount == pytest.approx(1024)


def test_the_table_has_a_row_for_each_operation():
    table = report("abc", summarise(ROUNDS), rounds=3)
    assert "| agf | 20.0 | 0.50 | 0.50 to 1.50 | 0.50 to 1.10 |" in table
    assert f"| {MEMORY} | 1,024.0 MiB | 1.00 | 0.50 to 1.00 | 1.00 to 1.00 |" in table
