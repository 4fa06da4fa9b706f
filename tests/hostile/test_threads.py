"""Threads, forks and interrupts: scores are those of a serial run, model and process are left as they were."""

import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gaflow import Explainer, solve
from tests.support.models import bert

pytestmark = pytest.mark.slow

TEXTS = ["a good film", "not a bad one", "the best of all", "it is very smart"]
METHODS = ["agf", "ig", "attcat"]
WORKERS = 8
ROOT = Path(__file__).parents[2]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def process_state() -> dict[str, Any]:
    """What a user can see of the process."""
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "random": torch.get_rng_state().tolist(),
        "python_random": random.getstate(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warnings": list(warnings.filters),
        "interrupt": signal.getsignal(signal.SIGINT),
        "environment": dict(os.environ),
    }


def model_state(model: Any) -> list[Any]:
    """What a user can see of a model, and its hooks."""
    state: list[Any] = [model.config._attn_implementation]
    for name, module in model.named_modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        state.append((name, id(module), module.training, [list(kind) for kind in hooks], sorted(vars(module))))
    for name, parameter in model.named_parameters():
        state.append((name, id(parameter), parameter.requires_grad, parameter.grad is None, parameter._version))
    return state


@contextmanager
def left_as_found(model: nn.Module) -> Iterator[None]:
    process = process_state()
    before = model_state(model)
    yield
    assert process_state() == process
    assert model_state(model) == before


def scores_of(explainer: Explainer) -> list[np.ndarray]:
    return [explainer(text, method).scores for text in TEXTS for method in METHODS]


def solve_several() -> list[float]:
    values = []
    for tokens in (3, 14, 36):
        information = torch.rand(4, tokens, tokens, generator=torch.Generator().manual_seed(tokens))
        values.append(solve(information).value.item())
    return values


def run_together(function: Callable[[], Any]) -> list[Any]:
    """What `function` gives in each of several threads that start at the same time."""
    start = threading.Barrier(WORKERS)

    def run(_: int) -> Any:
        start.wait()
        return function(), torch.get_num_threads()

    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(run, range(WORKERS)))
    assert {threads for _, threads in results} == {torch.get_num_threads()}
    return [result for result, _ in results]


def test_threads_that_solve_together_give_what_one_gives(two_threads):
    expected = solve_several()
    for values in run_together(solve_several):
        assert values == pytest.approx(expected, rel=1e-12)
    assert torch.get_num_threads() == 2


def test_threads_that_explain_with_one_model_give_what_one_gives(two_threads):
    explainer = Explainer(*bert())
    expected = scores_of(explainer)
    with left_as_found(explainer.model):
        for scores in run_together(lambda: scores_of(explainer)):
            for actual, alone in zip(scores, expected, strict=True):
                np.testing.assert_allclose(actual, alone, rtol=1e-5, atol=1e-9)


def test_short_texts_of_a_small_model_take_one_core(two_threads):
    explainer = Explainer(*bert())
    counts = []
    handle = explainer.model.register_forward_pre_hook(lambda *_: counts.append(torch.get_num_threads()))
    explainer(TEXTS[0], "agf")
    handle.remove()
    assert set(counts) == {1}
    assert torch.get_num_threads() == 2


def test_an_error_in_the_model_gives_the_cores_back(two_threads):
    explainer = Explainer(*bert())

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    handle = explainer.model.register_forward_pre_hook(fail)
    with pytest.raises(ZeroDivisionError):
        explainer(TEXTS[0], "agf")
    handle.remove()
    assert torch.get_num_threads() == 2


def run_in_process(call: str) -> int:
    """The exit code of a function of this file in a process of its own, where only gaflow and its libraries run.

    The threads of a test runner do not survive a fork, and what they lock stays locked. An interrupt inside the
    bookkeeping of coverage leaves its lock locked forever.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    script = f"from tests.hostile.test_threads import *; {call}"
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=540, cwd=ROOT, env=environment)
    return done.returncode


def compare_with_a_fork() -> None:
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    explainer = Explainer(*bert())
    expected = scores_of(explainer)
    child = os.fork()
    if child == 0:
        same = all(map(np.array_equal, scores_of(explainer), expected))
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_gives_the_same_scores():
    assert run_in_process("compare_with_a_fork()") == 0


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C after so many seconds, at whatever line the main thread is."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    on_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, on_interrupt)
        signal.signal(signal.SIGALRM, before)


def interrupt_explanations(method: str | None) -> None:
    torch.set_num_threads(2)
    explainer = Explainer(*bert())
    expected = explainer(TEXTS[0], method).scores
    generator = random.Random(7)
    interrupts = 0
    with left_as_found(explainer.model):
        for _ in range(40):
            delay = 10 ** generator.uniform(-4, -0.5)
            try:
                with interrupted_after(delay):
                    explainer(TEXTS[0], method)
            except KeyboardInterrupt:
                interrupts += 1
    assert interrupts > 0
    np.testing.assert_array_equal(explainer(TEXTS[0], method).scores, expected)
    others = run_together(lambda: explainer(TEXTS[0], method).scores)  # no lock is held for ever
    for scores in others:
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-9)


def interrupt_solves(scipy: bool) -> None:
    torch.set_num_threads(2)
    if not scipy:
        sys.modules["scipy.linalg"] = None  # pyright: ignore[reportArgumentType]
    information = torch.rand(6, 36, 36, generator=torch.Generator().manual_seed(1))
    expected = solve(information).edges
    generator = random.Random(3)
    for _ in range(40):
        try:
            with interrupted_after(10 ** generator.uniform(-4, -1.5)):
                solve(information)
        except KeyboardInterrupt:
            pass
        assert torch.get_num_threads() == 2
    torch.testing.assert_close(solve(information).edges, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
@pytest.mark.parametrize("method", ["agf", "ig", "lime", None])
def test_an_interrupt_at_any_moment_leaves_everything_as_it_was(method):
    assert run_in_process(f"interrupt_explanations({method!r})") == 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
@pytest.mark.parametrize("scipy", [True, False])
def test_an_interrupted_solve_gives_the_cores_back(scipy):
    assert run_in_process(f"interrupt_solves({scipy})") == 0
