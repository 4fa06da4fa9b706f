"""A model that draws random numbers in eval mode moves nobody's random state, and its results say what it is."""

import random
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from gaflow import Explainer, GaflowWarning, evaluate
from gaflow.models.randomness import RANDOM
from gaflow.models.restore import borrow
from tests.support.models import SENTENCE, bert

WITH_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
DEVICES = ["cpu", pytest.param("cuda", marks=WITH_CUDA)]


class Noise(nn.Module):
    """Noise of some scale, in eval mode too."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x + self.scale * torch.randn_like(x)


class NoiseAtTimes(nn.Module):
    """Noise from one of the libraries that have a random state, but not before it is switched on."""

    def __init__(self, library: str):
        super().__init__()
        self.library = library
        self.on = False

    def forward(self, x):
        if not self.on:
            return x
        draws = {"torch": lambda: float(torch.rand(1)), "numpy": np.random.rand, "python": random.random}
        return x + draws[self.library]()


def explainer_with(layer, device="cpu"):
    """An explainer of a classifier with this layer before its head."""
    model, tokenizer = bert()
    model.dropout = layer
    return Explainer(model.to(device), tokenizer)


def noisy(scale=0.5, device="cpu"):
    return explainer_with(Noise(scale), device)


def explain_quietly(explainer, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GaflowWarning)
        return explainer(*args, **options)


def all_random_states():
    numpy_state = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return torch.get_rng_state().tolist(), numpy_state["key"].tolist(), numpy_state["pos"], random.getstate()


def random_state(device):
    state = torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
    return state.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_that_runs_the_model_moves_the_random_state(device):
    explainer = noisy(device=device)
    before = random_state(device)
    explain_quietly(explainer, [SENTENCE, "a dog"], "agf")
    explain_quietly(explainer, "a dog", "kernel_shap")
    explainer.predictions("a dog")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GaflowWarning)
        explainer.compare("a dog", ["agf", "ig"])
        evaluate(explainer, ["a dog"], methods=["agf"])
    assert random_state(device) == before


def test_the_random_state_is_kept_when_the_first_pass_fails():
    model = Noise(1.0)
    model.weight = nn.Parameter(torch.ones(1))
    before = torch.get_rng_state().tolist()
    with pytest.raises(TypeError), borrow(model):
        model(model(torch.ones(3)) + "text")
    assert torch.get_rng_state().tolist() == before


def test_random_outputs_are_warned_of_once_and_every_result_says_so():
    explainer = noisy()
    with pytest.warns(GaflowWarning) as caught:
        results = [explainer(SENTENCE, "agf"), explainer("a dog", "agf")]
    assert len(caught) == 1
    assert all("random" in str(att.diagnostics["warning"]) for att in results)


def test_the_same_random_state_gives_the_same_output():
    explainer = noisy()
    first = explain_quietly(explainer, SENTENCE, "agf")
    assert explain_quietly(explainer, SENTENCE, "agf").output == first.output
    with torch.random.fork_rng():
        torch.manual_seed(987)  # a state that no other test leaves behind
        assert explain_quietly(explainer, SENTENCE, "agf").output != first.output


def test_drawing_numbers_that_change_nothing_is_no_reason_to_warn():
    att = noisy(scale=0.0)(SENTENCE, "agf")
    assert "warning" not in att.diagnostics


def test_models_that_draw_nothing_are_not_warned_of_and_do_not_wait_after_their_first_pass():
    explainer = Explainer(*bert())
    assert "warning" not in explainer(SENTENCE, "agf").diagnostics
    done = threading.Event()

    def work():
        explainer(SENTENCE, "agf")
        done.set()

    with RANDOM:
        thread = threading.Thread(target=work)
        thread.start()
        assert done.wait(300)
    thread.join()


@pytest.mark.parametrize("library", ["torch", "numpy", "python"])
def test_what_a_model_draws_from_any_library_moves_nothing(library):
    noise = NoiseAtTimes(library)
    explainer = explainer_with(noise)
    noise.on = True
    before = all_random_states()
    with pytest.warns(GaflowWarning):
        att = explainer(SENTENCE, "agf")
    assert "random" in str(att.diagnostics["warning"])
    assert all_random_states() == before


def test_a_model_that_begins_to_draw_later_is_found_out_in_the_pass_after():
    noise = NoiseAtTimes("torch")
    explainer = explainer_with(noise)
    assert "warning" not in explainer(SENTENCE, "agf").diagnostics
    noise.on = True
    explainer(SENTENCE, "agf")
    before = all_random_states()
    with pytest.warns(GaflowWarning):
        att = explainer(SENTENCE, "agf")
    assert "random" in str(att.diagnostics["warning"])
    assert all_random_states() == before


def test_threads_with_models_that_draw_do_not_wait_for_each_other_forever():
    explainers = [noisy(), noisy()]
    before = all_random_states()

    def explain(number):
        explainer = explainers[number % len(explainers)]
        return [explainer(text, method).output for text in (SENTENCE, "a dog") for method in ("agf", "lime")]

    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("ignore", GaflowWarning)
        outputs = list(pool.map(explain, range(16)))
    assert all(row == outputs[0] for row in outputs)
    assert all_random_states() == before


def test_numbers_that_other_threads_draw_meanwhile_are_not_drawn_again():
    explainer = Explainer(*bert())
    explainer(SENTENCE, "agf")
    drawn = []
    done = threading.Event()

    def draw():
        while not done.is_set():
            drawn.append(torch.rand(1, dtype=torch.float64).item())

    with torch.random.fork_rng():
        thread = threading.Thread(target=draw)
        thread.start()
        results = [explainer(SENTENCE, "agf") for _ in range(10)]
        done.set()
        thread.join()
    assert "warning" not in results[-1].diagnostics
    assert len(set(drawn)) == len(drawn) > 10


def test_importing_a_library_on_first_use_moves_nothing():
    script = """
import random
import gaflow
explainer = gaflow.Explainer()
explainer("a good film")
before = random.getstate()
for method in ("lime", "ig", "kernel_shap", "attention_flow"):
    explainer("a good film", method)
assert random.getstate() == before
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=540)
    assert done.returncode == 0
