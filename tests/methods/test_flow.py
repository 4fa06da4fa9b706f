import pytest
import torch

from gaflow.errors import GaflowError, UnknownMethodError
from gaflow.flow.barrier.solve import LogBarrier
from gaflow.flow.information import INFORMATION, agf
from gaflow.methods import METHODS, FlowMethod, Scores, find_method, flow
from tests.support.traces import make_trace, random_trace


def test_the_methods_are_settings_objects_under_their_own_names():
    assert set(METHODS) >= {"af", "gf", "agf"}
    for name, method in METHODS.items():
        assert method.name == name
        assert find_method(name) is method
    assert find_method(" AGF ") is METHODS["agf"]


def test_a_single_path_carries_its_narrowest_capacity():
    method = FlowMethod("af", epsilon=1e-9)
    scores = method(make_trace([[[[[0.5]]], [[[0.25]]], [[[1.0]]]]]))
    assert scores.values.tolist() == [[pytest.approx(0.25, rel=1e-8)]]
    assert scores.flow is not None
    assert scores.flow.edges.shape == (1, 3, 1, 1)


@pytest.mark.parametrize("name", ["af", "gf", "agf"])
def test_scores_are_the_through_flow_of_the_input_and_sum_to_the_flow_value(name):
    scores = METHODS[name](random_trace())
    assert isinstance(scores, Scores)
    assert scores.flow is not None
    through = scores.flow.through()
    assert scores.values.dtype == torch.float64
    assert torch.equal(scores.values, through[:, 0])
    assert bool((scores.values > 0).all())
    assert torch.allclose(through.sum(-1), scores.flow.value[:, None], rtol=1e-9, atol=0)
    kappa = INFORMATION[name](random_trace().attention, random_trace().gradient).sum((-2, -1)).amin(-1)
    assert bool((scores.flow.value <= kappa * (1 + 1e-9)).all())


def test_a_text_in_which_nothing_flows_has_scores_of_zero_and_says_so():
    trace = random_trace()
    scores = METHODS["agf"](make_trace(trace.attention, -trace.gradient.abs()))
    assert scores.values.abs().max() == 0
    assert scores.flow is not None
    assert scores.flow.certificate.dead.tolist() == [True, True]


def test_a_callable_works_where_a_name_does():
    trace = random_trace()

    def squared(attention, gradient):
        return (attention * gradient).relu().pow(2).sum(2)

    method = find_method(squared)
    assert method == FlowMethod(information=squared)
    assert method.name == "squared"
    again = FlowMethod(information=agf)(trace)
    assert torch.equal(again.values, METHODS["agf"](trace).values)
    assert bool((method(trace).values > 0).all())


def test_a_settings_object_works_where_a_name_does():
    method = FlowMethod("gf", epsilon=1e-3)
    assert find_method(method) is method
    rough, fine = method(random_trace()), METHODS["gf"](random_trace())
    assert rough.flow is not None
    assert fine.flow is not None
    assert bool((rough.flow.value < fine.flow.value).all())


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (FlowMethod("agf"), "agf"),
        (FlowMethod("gf", epsilon=0.001), "gf(epsilon=0.001)"),
        (FlowMethod("af", barrier="capacity", terminal=3.0), "af(barrier='capacity', terminal=3.0)"),
        (FlowMethod("agf", terminal="tokens"), "agf(terminal='tokens')"),
        (FlowMethod("af", throw=False), "af"),
        (FlowMethod("af", sources="head", layer="all"), "af(sources='head', layer='all')"),
        (FlowMethod("af", targets=[0, -1], layer=-2), "af(targets=(0, -1), layer=-2)"),
        (FlowMethod(torch.nn.Identity()), "Identity"),
    ],
)
def test_a_name_says_what_differs_from_the_paper(method, name):
    assert method.name == name


def test_every_setting_reaches_the_solver(monkeypatch):
    arguments = {}

    def record(network, solver, terminal, *, throw):
        arguments.update(network=network, solver=solver, terminal=terminal, throw=throw)
        raise KeyboardInterrupt

    monkeypatch.setattr(flow, "solve_network", record)
    mask = torch.tensor([[True] * 5, [True] * 4 + [False]])
    trace = random_trace()
    method = FlowMethod(
        "af",
        epsilon=0.5,
        mu=0.25,
        barrier="capacity",
        terminal=7.0,
        throw=False,
        sources=(0, -1),
        targets=lambda trace: trace.mask,
    )
    with pytest.raises(KeyboardInterrupt):
        method(make_trace(trace.attention, mask=mask))
    assert arguments["solver"] == LogBarrier(epsilon=0.5, mu=0.25, barrier="capacity")
    assert arguments["terminal"] == 7.0
    assert arguments["throw"] is False
    assert torch.equal(arguments["network"].target, 7.0 * mask)
    assert [row.nonzero().flatten().tolist() for row in arguments["network"].source] == [[0, 4], [0, 3]]


def wide(attention, gradient):
    """Capacities so wide that terminals of capacity t bind."""
    return 100 * attention.mean(2)


def test_terminals_of_the_paper_have_the_capacity_t_of_their_own_text():
    attention = random_trace().attention[:2]
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    together = FlowMethod(wide, terminal="tokens")(make_trace(attention, mask=mask))
    assert together.flow is not None
    assert together.flow.dual_value.tolist() == pytest.approx([25, 9], rel=1e-5)  # t terminals of capacity t
    for item, t in enumerate((5, 3)):
        alone = make_trace(attention[item : item + 1, :, :, :t, :t])
        for terminal in ("tokens", float(t)):
            scores = FlowMethod(wide, terminal=terminal)(alone).values[0]
            torch.testing.assert_close(together.values[item, :t], scores, rtol=1e-9, atol=0)


def test_a_terminal_without_such_a_name_is_refused():
    with pytest.raises(ValueError, match="'token'"):
        FlowMethod("agf", terminal="token")


@pytest.mark.parametrize(
    ("method", "passes", "class_specific"),
    [
        (FlowMethod("af", sources=(0,), targets="ordinary", layer="all"), "1 forward", False),
        (FlowMethod("af", sources="head"), "1 forward, 1 backward", False),
        (FlowMethod("af", targets=lambda trace: trace.mask), "1 forward, 1 backward", True),
        (FlowMethod("agf", sources=(0,)), "1 forward, 1 backward", True),
    ],
)
def test_what_is_known_of_a_method_follows_its_settings(method, passes, class_specific):
    assert (method.info.passes, method.info.class_specific) == (passes, class_specific)


@pytest.mark.parametrize("name", ["agff", "AFG", "gaf", "ig2", "attention"])
def test_an_unknown_name_is_refused_with_the_nearest(name):
    with pytest.raises(UnknownMethodError, match="did you mean") as caught:
        find_method(name)
    assert repr(name) in str(caught.value)
    assert "agf" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("method", [3, ["agf"], FlowMethod])
def test_what_is_no_method_is_a_type_error(method):
    with pytest.raises(TypeError, match="method"):
        find_method(method)


def test_an_unknown_information_tensor_is_refused():
    with pytest.raises(UnknownMethodError, match=r"'xyz'.*af, gf, agf"):
        FlowMethod("xyz")
    with pytest.raises(TypeError, match=r"information.*3"):
        FlowMethod(3)  # type: ignore[arg-type]


def keeps_heads(attention, gradient):
    return attention


def goes_negative(attention, gradient):
    return gradient.mean(2)


def divides_by_zero(attention, gradient):
    return attention.mean(2) / 0


def gives_a_list(attention, gradient):
    return [1, 2]


def writes_into_its_argument(attention, gradient):
    return gradient.relu_().mean(2)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (keeps_heads, ValueError, r"shape \(2, 3, 2, 5, 5\)"),
        (goes_negative, ValueError, "negative"),
        (divides_by_zero, GaflowError, "not finite"),
        (gives_a_list, TypeError, "list"),
        (writes_into_its_argument, ValueError, "in place"),
    ],
)
def test_a_callable_that_gives_no_capacities_is_named(function, error, message):
    with pytest.raises(error, match=message) as caught:
        find_method(function)(random_trace())
    assert function.__name__ in str(caught.value)


def test_what_a_callable_says_about_padding_does_not_matter():
    trace = random_trace()
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    real = (mask[:, None, None, :, None] & mask[:, None, None, None, :]).double()
    padded = make_trace(trace.attention * real, trace.gradient, mask)

    def row_normalized(attention, gradient):
        mean = attention.mean(2)
        return mean / mean.sum(-1, keepdim=True)  # 0 / 0 at padding

    scores = find_method(row_normalized)(padded)
    alone = find_method(row_normalized)(make_trace(padded.attention[1:, ..., :3, :3]))
    assert torch.allclose(scores.values[1, :3], alone.values[0], rtol=1e-8, atol=0)
    assert scores.values[1, 3:].tolist() == [0, 0]
