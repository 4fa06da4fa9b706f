"""Whatever happens to a borrowed model, it is given back as it was. (What a trace does to models: test_tracing.py.)"""

import re
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.zoo import condition
from benchmarks.zoo_models import build
from gaflow.errors import UnsupportedModelError, unsupported
from gaflow.models.embeddings import replaced_embeddings, roots, word_embedding
from gaflow.models.restore import borrow


class Pair(nn.Module):
    """Two layers and a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("known", torch.ones(3))
        self.note = "as made"


def disturb(model):
    """What models do to themselves during a pass."""
    model.first = nn.Identity()
    model.second.register_forward_hook(lambda *_: None)
    model.second.register_forward_hook(lambda *_: None, always_call=True)
    model.known = torch.zeros(2)
    model.note = "as used"
    model.new = 1
    model.train()


@pytest.mark.parametrize("fails", [False, True])
def test_submodules_buffers_attributes_and_hooks_are_put_back(fails):
    model = Pair().eval()
    hook = model.second.register_forward_hook(lambda *_: None)
    before, parts = condition(model), (model.first, model.second, model.known)
    try:
        with borrow(model):
            disturb(model)
            if fails:
                raise RuntimeError("stop")
    except RuntimeError:
        assert fails
    assert condition(model) == before
    assert all(a is b for a, b in zip(parts, (model.first, model.second, model.known), strict=True))
    assert model.note == "as made"
    assert list(model.second._forward_hooks) == [hook.id]
    hook.remove()
    assert not model.second._forward_hooks


def test_within_another_loan_what_the_outer_one_did_stays():
    model = Pair()
    with borrow(model):
        model.note = "outer"
        with borrow(model):
            model.note = "inner"
            assert not model.training
        assert model.note == "outer"
        assert not model.training
    assert (model.note, model.training) == ("as made", True)


def test_random_numbers_that_a_model_draws_for_new_layers_are_not_missed():
    model: Any = build("big_bird", "text-classification")
    before = torch.get_rng_state()
    with borrow(model):
        model.bert.set_attention_type("original_full")
        assert not torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), before)


def test_models_in_different_threads_do_not_wait_for_each_other():
    met = threading.Barrier(2, timeout=10)

    def work():
        model = Pair()
        with borrow(model):
            pass  # the first pass shows that the model draws no random numbers
        with borrow(model):
            met.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not met.broken


def test_layers_that_were_made_for_fused_attention_are_plain_ones_meanwhile():
    model = build("data2vec-vision", "image-classification")
    kinds = {type(m).__name__ for m in model.modules() if "SelfAttention" in type(m).__name__}
    assert kinds == {"Data2VecVisionSdpaSelfAttention"}
    with borrow(model):
        assert {type(m).__name__ for m in model.modules() if "SelfA" in type(m).__name__} == {
            "Data2VecVisionSelfAttention"
        }
    with borrow(model, eager=False):
        assert {type(m).__name__ for m in model.modules() if "SelfA" in type(m).__name__} == kinds
    assert {type(m).__name__ for m in model.modules() if "SelfAttention" in type(m).__name__} == kinds


def test_one_borrower_at_a_time():
    model, order = Pair(), []
    inside, go_on = threading.Event(), threading.Event()

    def other():
        with borrow(model):
            order.append("other")

    with borrow(model):
        thread = threading.Thread(target=lambda: (inside.set(), other(), go_on.set()))
        thread.start()
        inside.wait(10)
        order.append("first")
    assert go_on.wait(10)
    thread.join()
    assert order == ["first", "other"]


def test_frozen_weights_have_gradients_only_meanwhile():
    model = Pair().requires_grad_(False)
    with borrow(model):
        assert all(p.requires_grad for p in roots(model))
    assert not any(p.requires_grad for p in model.parameters())


def test_a_model_of_integers_is_refused():
    model = nn.Module()
    model.codes = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(UnsupportedModelError, match="floating-point"), borrow(model):
        pass


def test_words_are_replaced_once_and_for_this_pass_only():
    model = build("bert", "text-classification")
    ids = torch.tensor([[5, 6, 7]])
    embedding = word_embedding(model)
    assert embedding is not None
    with torch.no_grad(), replaced_embeddings(model, embedding(ids.flip(1))):
        changed = model(ids).logits
    torch.testing.assert_close(changed, model(ids.flip(1)).logits)
    assert not embedding._forward_hooks
    with pytest.raises(UnsupportedModelError, match="does not read"), replaced_embeddings(model, embedding(ids)):
        pass


def test_an_error_names_the_model_and_what_to_use():
    assert re.match("Pair .*it is a pair", str(unsupported(Pair(), "it is a pair")))
    assert word_embedding(SimpleNamespace()) is None  # type: ignore[arg-type]
