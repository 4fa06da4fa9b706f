from functools import wraps
from types import SimpleNamespace

import pytest
import torch

import gaflow
from gaflow.errors import TooLargeError
from gaflow.explainer.runner import Runner
from gaflow.methods import FlowMethod
from gaflow.models import memory
from gaflow.models.cost import Geometry, estimate, longest_text
from gaflow.models.memory import (
    BUDGET_BYTES,
    CHECK_ABOVE_BYTES,
    batch_limit,
    budget,
    fitting,
    format_bytes,
    halving,
    is_out_of_memory,
    method_costs,
)
from tests.support.models import bert

MINILM = Geometry(layers=6, heads=12, hidden_size=384, intermediate_size=1536)
MIB = 1 << 20


class Model(torch.nn.Module):
    """All that is asked of a model: its sizes, and where it is."""

    def __init__(self, dtype=torch.float32, **config):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=dtype))
        names = {"num_hidden_layers": 6, "num_attention_heads": 12, "hidden_size": 384, "intermediate_size": 1536}
        self.config = SimpleNamespace(**(names | config))


@pytest.mark.parametrize("length", [10, 100, 500])
def test_batches_are_made_by_a_budget(length):
    texts = batch_limit(Model(), length)
    assert texts is not None
    assert estimate(MINILM, length, texts).peak <= budget("cpu") < estimate(MINILM, length, texts + 1).peak
    assert batch_limit(Model(num_attention_heads=None), length) is None


def test_a_text_over_the_budget_makes_a_batch_of_its_own():
    longest = longest_text(MINILM, budget("cpu"))
    assert batch_limit(Model(), longest) == batch_limit(Model(), 10 * longest) == 1


def test_batches_are_made_for_the_method_that_needs_most():
    methods = [gaflow.METHODS[name] for name in ("peeled_flow", "agf", "lime")]
    cost = FlowMethod(preset="peeled_flow").cost
    peeled_flow, agf, lime = (batch_limit(Model(), 100, [method]) for method in methods)
    assert peeled_flow is not None
    assert peeled_flow == batch_limit(Model(), 100, methods)
    assert estimate(MINILM, 100, peeled_flow, cost).peak <= budget("cpu")
    assert estimate(MINILM, 100, peeled_flow + 1, cost).peak > budget("cpu")
    assert agf == lime == batch_limit(Model(), 100)
    assert agf is not None
    assert agf > peeled_flow


def test_wider_numbers_make_smaller_batches():
    narrow, wide = batch_limit(Model(), 100), batch_limit(Model(torch.float64), 100)
    assert narrow is not None
    assert wide is not None
    assert wide < narrow == batch_limit(Model(torch.bfloat16), 100)  # a trace is float32 at least


def test_budgets_belong_to_kinds_of_devices():
    assert budget("cuda:3") == BUDGET_BYTES["cuda"] > budget("cpu") == budget("mps")


def give(monkeypatch, free):
    monkeypatch.setattr(memory, "free_memory", lambda device: free)


def test_what_fits_is_done(monkeypatch):
    free = estimate(MINILM, 512, 3).peak
    assert free > CHECK_ABOVE_BYTES
    give(monkeypatch, free)
    with fitting(Model(), [512] * 3):
        done = True
    assert done


def test_a_batch_that_does_not_fit_is_refused_naming_one_that_does(monkeypatch):
    give(monkeypatch, estimate(MINILM, 512, 3).peak - 1)
    message = r"3 texts of 512 tokens need about 1\.36 GiB.*cpu has 1\.36 GiB left; use batch_size=2 or less"
    with pytest.raises(TooLargeError, match=message), fitting(Model(), [512] * 3):
        pytest.fail("it was begun")


def test_a_text_that_does_not_fit_is_refused_naming_the_length_that_does(monkeypatch):
    give(monkeypatch, estimate(MINILM, 333).peak)
    for batch in (1, 5):
        message = r"a text of 512 tokens needs about 464 MiB.*up to 333 tokens would fit"
        with pytest.raises(TooLargeError, match=message), fitting(Model(), [512] * batch):
            pytest.fail("it was begun")


def test_contexts_that_do_not_fit_are_refused_naming_what_does(monkeypatch):
    peeled, agf = gaflow.METHODS["peeled_flow"], gaflow.METHODS["agf"]
    give(monkeypatch, estimate(MINILM, 128, 3, FlowMethod(preset="peeled_flow").cost).peak)
    with fitting(Model(), [128] * 3, [agf, peeled]), fitting(Model(), [128] * 4, [agf]):
        pass
    with pytest.raises(TooLargeError, match="batch_size=3 "), fitting(Model(), [128] * 4, [agf, peeled]):
        pytest.fail("it was begun")
    give(monkeypatch, estimate(MINILM, 333, 1, FlowMethod(preset="peeled_flow").cost).peak)
    with pytest.raises(TooLargeError, match="333 tokens"), fitting(Model(), [512], [peeled]):
        pytest.fail("it was begun")


def test_a_trifle_is_not_looked_for(monkeypatch):
    devices = []
    monkeypatch.setattr(memory, "free_memory", lambda device: devices.append(device))
    for length, count in (
        (14, 0),
        (longest_text(MINILM, CHECK_ABOVE_BYTES), 0),
        (longest_text(MINILM, CHECK_ABOVE_BYTES) + 1, 1),
    ):
        devices.clear()
        with fitting(Model(), [length]):
            pass
        assert len(devices) == count


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("model", [Model(), Model(num_attention_heads=None)])
def test_running_out_nevertheless_is_said_alike(error, model, monkeypatch):
    give(monkeypatch, None)
    assert is_out_of_memory(error)
    message = "cpu ran out of memory on 4 texts of 50 tokens; use batch_size=2 or less"
    with pytest.raises(TooLargeError, match=message), fitting(model, [50] * 4):
        raise error
    message = "on a text of 50 tokens; use a shorter text"
    with pytest.raises(TooLargeError, match=message), fitting(model, [50]):
        raise error


def test_other_errors_pass(monkeypatch):
    give(monkeypatch, None)
    assert not is_out_of_memory(ValueError("out of memory"))
    with pytest.raises(RuntimeError, match="shapes differ"), fitting(Model(), [50] * 4):
        raise RuntimeError("shapes differ")


def test_halving_goes_on_until_what_is_left_fits_and_keeps_the_order():
    batches = []

    def work(part):
        batches.append(list(part))
        if len(part) > 2:
            raise TooLargeError("too many")
        return [10 * k for k in part]

    assert halving([1, 2, 3, 4, 5], work) == [10, 20, 30, 40, 50]
    assert batches == [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5]]


def test_one_that_does_not_fit_cannot_be_halved():
    def work(part):
        raise TooLargeError("too long")

    with pytest.raises(TooLargeError, match="too long"):
        halving([1, 2], work)


TEXTS = [f"a dog {'is very ' * k}smart" for k in range(6)]


@pytest.fixture
def traced(monkeypatch):
    """An explainer, the attributions that it gives with all memory, and the sizes of all batches from then on."""
    explainer = gaflow.Explainer(*bert())
    expected = explainer(TEXTS, "agf")
    sizes, original = [], Runner.collate

    def collate(self, encodings):
        sizes.append(len(encodings))
        return original(self, encodings)

    monkeypatch.setattr(Runner, "collate", collate)
    # Batches of so small a model are never checked. The limit only saves time: no caller has a reason to move it.
    monkeypatch.setattr(memory, "CHECK_ABOVE_BYTES", 0)
    return explainer, expected, sizes


def assert_alike(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert one.tokens == other.tokens
        assert abs(one.scores - other.scores).max() < 1e-5 * other.scores.sum()


def cost_of(method):
    """Of a method whose pass is streamed, on a CPU."""
    (cost,) = method_costs([method], torch.device("cpu"), streamed=True)
    return cost


def test_an_explainer_splits_what_does_not_fit_and_gives_the_same(traced, monkeypatch):
    explainer, expected, sizes = traced
    longest = max(len(att.tokens) for att in expected)
    geometry = Geometry.of(explainer.model.config)
    assert geometry is not None
    give(monkeypatch, estimate(geometry, longest, 2, cost_of(gaflow.METHODS["agf"])).peak)
    assert_alike(explainer(TEXTS, "agf"), expected)
    assert sum(sizes) == 6
    assert len(sizes) > 2
    give(monkeypatch, 1000)
    with pytest.raises(TooLargeError, match=f"a text of {longest} tokens needs about"):
        explainer(TEXTS, "agf")


def test_an_explainer_splits_contexts_that_do_not_fit_together_and_gives_the_same(traced, monkeypatch):
    explainer, attributions, sizes = traced
    peeled = FlowMethod(preset="peeled_flow", rounds=2, share=0.4)
    expected = explainer(TEXTS, peeled)
    sizes.clear()
    longest, geometry = max(len(att.tokens) for att in attributions), Geometry.of(explainer.model.config)
    assert geometry is not None
    give(monkeypatch, estimate(geometry, longest, 2, cost_of(peeled)).peak)
    halved = explainer(TEXTS, peeled)
    assert max(sizes) < 6 == sum(sizes)
    for one, other in zip(halved, expected, strict=True):
        assert abs(one.scores - other.scores).max() < 1e-4 * abs(other.scores).sum()


def test_an_explainer_makes_batches_by_the_budget(traced, monkeypatch):
    explainer, expected, sizes = traced
    geometry = Geometry.of(explainer.model.config)
    assert geometry is not None
    longest = max(len(att.tokens) for att in expected)
    # The budget is the same for everybody, so that batches are; an argument would end that.
    peak = estimate(geometry, longest, 2, cost_of(gaflow.METHODS["agf"])).peak
    monkeypatch.setitem(BUDGET_BYTES, "cpu", peak)
    assert_alike(explainer(TEXTS, "agf"), expected)
    assert sizes[0] == 2
    assert sum(sizes) == 6


def test_an_explainer_goes_on_where_a_batch_ran_out_of_memory(traced, monkeypatch):
    explainer, expected, sizes = traced
    forward = type(explainer.model).forward

    @wraps(forward)
    def refusing(self, input_ids, *args, **named):
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return forward(self, input_ids, *args, **named)

    monkeypatch.setattr(type(explainer.model), "forward", refusing)
    assert_alike(explainer(TEXTS, "agf"), expected)
    assert sizes == [6, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 KiB"), (450 * MIB, "450 MiB"), (3 << 40, "3,072 GiB")]
)
def test_bytes_can_be_read(count, text):
    assert format_bytes(count) == text
