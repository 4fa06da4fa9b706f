"""Many explanations in one process: memory, files, threads and hooks stay as few as they were."""

import gc
import os
import threading
from pathlib import Path

import pytest
from torch import nn

from gaflow import Explainer
from tests.support.models import bert

pytestmark = pytest.mark.slow

EXPLANATIONS = 2000
TEXTS = ["a good film", "not a bad one at all", "the best", "it is very smart and not cute"]
METHODS = ["agf", "attcat", "ig"]
STATUS = Path("/proc/self/statm")
FILES = Path("/proc/self/fd")


def memory_bytes() -> int:
    """Memory that the process holds now."""
    gc.collect()
    pages = int(STATUS.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def count_hooks(model: nn.Module) -> int:
    hooks = 0
    for module in model.modules():
        hooks += len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
    return hooks


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_two_thousand_explanations_leave_nothing_behind():
    explainer = Explainer(*bert())

    def explain(count: int) -> None:
        for number in range(count):
            explainer(TEXTS[number % len(TEXTS)], METHODS[number % len(METHODS)])

    explain(EXPLANATIONS // 10)  # caches fill up
    memory = memory_bytes()
    files = len(os.listdir(FILES))
    hooks = count_hooks(explainer.model)
    threads = threading.active_count()
    objects = len(gc.get_objects())
    explain(EXPLANATIONS)
    assert memory_bytes() - memory < 20e6  # one text's trace in each would be ten times that
    assert len(gc.get_objects()) - objects < EXPLANATIONS / 2
    assert len(os.listdir(FILES)) == files
    assert count_hooks(explainer.model) == hooks
    assert threading.active_count() == threads
