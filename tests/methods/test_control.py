from dataclasses import replace

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowError
from gaflow.methods import Random
from tests.support.models import SENTENCE, bert
from tests.support.traces import bert_trace, random_trace


@pytest.fixture(scope="module")
def trace():
    return bert_trace(bert(), (SENTENCE, "a good film", "a bad film"))


def test_scores_are_uniform_between_0_and_1(trace):
    drawn = np.concatenate([Random(seed)(trace).values[trace.mask].numpy() for seed in range(40)])
    assert 0 <= drawn.min() < 0.02
    assert 0.98 < drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=5 / np.sqrt(12 * len(drawn)))
    assert len(np.unique(drawn)) == len(drawn)


def test_other_seeds_and_other_texts_have_other_scores(trace):
    one, two = Random()(trace).values, Random(seed=1)(trace).values
    assert (one[trace.mask] != two[trace.mask]).all()
    assert (one[1, :5] != one[2, :5]).all()
    assert torch.equal(one, Random(0)(trace).values)


def test_what_pads_the_batch_does_not_matter(trace):
    batch = trace.require_model().batch
    inputs = {name: torch.where(trace.mask, value, 7) for name, value in batch.inputs.items()}
    other = replace(trace, model=replace(trace.require_model(), batch=replace(batch, inputs=inputs)))
    assert torch.equal(Random()(other).values, Random()(trace).values)


def test_inputs_that_are_no_tokens_count_as_a_whole(trace):
    """Images, for instance: all of their values, none of which is padding."""
    batch = trace.require_model().batch

    def scores(pixels):
        inputs = {"pixel_values": pixels}
        return Random()(
            replace(trace, model=replace(trace.require_model(), batch=replace(batch, inputs=inputs)))
        ).values

    pixels = torch.zeros(3, 2, 5, 5)
    changed = pixels.clone()
    changed[1, 1, 4, 4] = 1
    same = (scores(pixels) == scores(changed))[trace.mask.nonzero(as_tuple=True)]
    item = trace.mask.nonzero()[:, 0]
    assert same[item != 1].all()
    assert not same[item == 1].any()


def test_a_batch_is_enough(trace):
    assert torch.equal(Random(2).of(trace.require_model().batch).values, Random(2)(trace).values)


def test_settings_are_named_and_checked():
    assert Random(seed=3).name == "random(seed=3)"
    for wrong in (-1, 1.5, True):
        with pytest.raises(ValueError, match=r"seed.* 0"):
            Random(wrong)  # type: ignore[arg-type]
    with pytest.raises(GaflowError, match="without one"):
        Random()(random_trace())
