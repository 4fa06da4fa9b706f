import json
from argparse import Namespace

import pytest

from benchmarks import throughput


def test_time_that_kernels_cover_counts_once():
    assert throughput.covered([]) == 0
    assert throughput.covered([(5, 7), (0, 2), (1, 4), (1.5, 3)]) == 6
    assert throughput.covered([(0, 10), (2, 3), (10, 12)]) == 12


@pytest.mark.slow
def test_steps_are_a_part_of_the_time_of_a_run():
    case = {
        "method": "agf", "texts": 3, "length": 20, "mixed": True, "batch_size": 2, "threads": 1, "seed": 0,
        "device": "cpu",
    }  # fmt: skip
    measured = throughput._run_child(throughput.ROOT / "src", case)
    assert json.loads(json.dumps(measured)) == measured
    assert measured["errors"] == 0
    assert measured["busy"] is None
    steps = [measured[step] for step in throughput.STEPS]
    assert min(steps) > 0
    assert sum(steps) < measured["seconds"]


@pytest.mark.slow
def test_workers_are_compared_with_the_first_number_of_them():
    options = Namespace(
        methods=["rawatt"], lengths=[16], texts=[8], workers=[1], ray=None, rounds=1, batch_size=2, seed=0,
        device="cpu", mixed=False,
    )  # fmt: skip
    *_, line = throughput._workers_table(options)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert [*cells[:4], cells[5]] == ["rawatt", "16", "1", "8", "1.00"]
    assert float(cells[4]) > 0


def test_texts_have_the_lengths_they_are_asked_to_have():
    tokenizer = throughput._explainer("cpu").tokenizer
    lengths = [len(tokenizer(text)["input_ids"]) for text in throughput._texts(5, 40, True, 0)]
    assert sorted(lengths) == [16, 22, 28, 34, 40]
    assert {len(tokenizer(text)["input_ids"]) for text in throughput._texts(3, 40, False, 0)} == {40}
