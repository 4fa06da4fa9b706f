"""Sources, targets and layers of flow methods: against the solver on the same capacities, and against each other."""

import re
from typing import Any, cast

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowError
from gaflow.explainer.explainer import Explainer
from gaflow.flow.barrier.solve import solve
from gaflow.flow.information import af
from gaflow.flow.result import layer_scores
from gaflow.inputs.batch import collate
from gaflow.inputs.encoding import encode
from gaflow.methods import FlowMethod
from gaflow.methods.flow_nodes import NODES, nodes_of
from gaflow.models.limits import padding_of
from gaflow.models.tracing import Trace
from tests.support.models import SENTENCE, bert, gpt2
from tests.support.traces import make_trace, random_trace
from tests.support.tracing import trace_logit

TEXTS = ["a good film", SENTENCE, ("a dog", "very good")]


def traced(build=bert, texts=TEXTS) -> Trace:
    model, tokenizer = build()
    model = model.double()
    batch = collate(encode(tokenizer, texts), padding_of(model, tokenizer))
    return trace_logit(model, batch)


def chosen_of(nodes, trace: Trace) -> list[list[int]]:
    """The positions that are chosen in every text."""
    flags = nodes_of(nodes, trace, "sources")
    assert isinstance(flags, torch.Tensor)
    assert flags.shape == trace.mask.shape
    return [row.nonzero().flatten().tolist() for row in flags]


def test_names_choose_by_what_the_tokenizer_and_the_head_did():
    trace = traced()
    assert trace.model is not None
    lengths = [len(e) for e in trace.model.batch.encodings]
    assert [e.tokens[0] for e in trace.model.batch.encodings] == ["[CLS]"] * 3
    middle = trace.model.batch.encodings[2].tokens.index("[SEP]")
    assert chosen_of("head", trace) == [[0], [0], [0]]
    assert chosen_of("special", trace) == [[0, lengths[0] - 1], [0, lengths[1] - 1], [0, middle, lengths[2] - 1]]
    assert chosen_of("pair", trace) == [[], [], list(range(middle + 1, lengths[2] - 1))]
    assert chosen_of("text", trace)[2] == list(range(1, middle))
    for item, (special, others) in enumerate(
        zip(chosen_of("special", trace), chosen_of("ordinary", trace), strict=True)
    ):
        assert sorted(special + others) == list(range(lengths[item]))


def test_a_head_that_reads_the_last_token_is_found_there():
    trace = traced(gpt2, TEXTS[:2])
    assert chosen_of("head", trace) == [[n - 1] for n in trace.mask.sum(-1).tolist()]


def test_every_name_is_documented():
    assert all(choose.__doc__ for choose in NODES.values())


@pytest.mark.parametrize(("sources", "targets"), [("head", None), (None, "ordinary"), ((0, 2), (1, -1)), ([1], "text")])
def test_chosen_ends_reach_the_solver(sources, targets):
    trace = traced()
    flow = FlowMethod("af", sources=sources, targets=targets)(trace).flow
    assert flow is not None
    capacities = af(trace.attention, trace.gradient)
    lengths = trace.mask.sum(-1).tolist()
    for item, n in enumerate(lengths):
        one = capacities[item, :, :n, :n]
        ends = {}
        for name, nodes in (("sources", sources), ("targets", targets)):
            positions = chosen_of(nodes, trace)[item] if isinstance(nodes, str) else nodes
            ends[name] = None if positions is None else [k % n for k in positions]
        alone = solve(one, **ends)
        torch.testing.assert_close(flow.through()[item, :, :n], alone.through()[0], rtol=1e-7, atol=1e-9)


def test_a_callable_chooses_from_the_trace():
    trace = traced()

    def longest_row(trace):  # one position for each text
        return [[int(k)] for k in trace.attention.mean(2)[:, -1].sum(-2).argmax(-1)]

    method = FlowMethod("af", sources=longest_row)
    assert method.name == "af(sources=longest_row)"
    flow = method(trace).flow
    assert flow is not None
    assert (flow.source > 0).sum(-1).tolist() == [1, 1, 1]
    by_name, by_hand = FlowMethod("af", sources="head")(trace), FlowMethod("af", sources=NODES["head"])(trace)
    assert torch.equal(by_name.values, by_hand.values)


def test_a_callable_that_chooses_nothing_at_all_is_refused():
    forgetful: Any = lambda trace: None  # noqa: E731
    with pytest.raises(TypeError, match=r"targets.*None"):
        FlowMethod("af", targets=forgetful)(random_trace())


def test_with_gradients_the_rows_that_the_head_does_not_read_are_dead_anyway():
    trace = traced()
    for name in ("gf", "agf"):
        assert torch.equal(FlowMethod(name, sources="head")(trace).values, FlowMethod(name)(trace).values)
    assert not torch.allclose(FlowMethod("af", sources="head")(trace).values, FlowMethod("af")(trace).values)


def test_positions_are_a_texts_own_wherever_its_padding_is():
    trace = random_trace()
    mask = torch.tensor([[False, True, True, False, True], [True] * 5])
    real = (mask[:, None, None, :, None] & mask[:, None, None, None, :]).double()
    padded = make_trace(trace.attention * real, mask=mask)
    flow = FlowMethod("af", sources=(-1,), targets=(0, 1))(padded).flow
    assert flow is not None
    assert [row.nonzero().flatten().tolist() for row in flow.source] == [[4], [4]]
    assert [row.nonzero().flatten().tolist() for row in flow.target] == [[1, 2], [0, 1]]


def test_a_text_without_such_tokens_is_a_flagged_zero():
    scores = FlowMethod("af", targets="pair")(traced())
    assert scores.flow is not None
    assert scores.flow.certificate.dead.tolist() == [True, True, False]
    assert scores.values[:2].abs().max() == 0
    assert scores.values[2].sum() > 0


def test_a_token_that_a_text_does_not_have_is_named_with_its_length():
    trace = traced()
    n = int(trace.mask[0].sum())
    with pytest.raises(ValueError, match=f"sources.*token {n} .*'a good film'.* {n} tokens"):
        FlowMethod("af", sources=(0, n))(trace)
    with pytest.raises(ValueError, match=r"targets.*-40.*a good film"):
        FlowMethod("af", targets=-40)(trace)
    with pytest.raises(ValueError, match=r"targets.*token 5 .*text 0.*5 tokens"):
        FlowMethod("af", targets=5)(random_trace())
    long = traced(texts=[f"{SENTENCE} {SENTENCE}"])
    with pytest.raises(ValueError, match=r"'although this dog is not cute, it is \.\.\.'"):
        FlowMethod("af", sources=99)(long)


@pytest.mark.parametrize("choice", ["heads", "", (), [0.5], [True], 1.0, {"a": 1}, ("head",), torch.tensor(0.5)])
def test_what_chooses_nothing_is_refused_at_once(choice):
    with pytest.raises(ValueError, match=r"sources.*'head', 'special'.*positions.*callable"):
        FlowMethod("af", sources=choice)
    with pytest.raises(ValueError, match="targets must be"):
        FlowMethod("af", targets=choice)


def test_the_same_token_twice_is_refused():
    with pytest.raises(ValueError, match=r"sources of item 0.*position 0 .*twice"):
        FlowMethod("af", sources=(0, 0))(random_trace())


def test_settings_can_be_compared_whatever_they_were_given_as():
    choices: list[Any] = [[0, 1], (0, 1), np.array([0, 1]), torch.tensor([0, 1]), range(2), list(np.arange(2))]
    same, number = [FlowMethod(sources=x) for x in choices], cast(Any, np.int64(2))
    assert len(set(same)) == 1
    assert same[0].name == "agf(sources=(0, 1))"
    assert FlowMethod(sources=2) == FlowMethod(sources=(2,)) == FlowMethod(sources=number)
    assert FlowMethod(layer=number).name == "agf(layer=2)"


def test_a_trace_of_bare_tensors_has_no_special_tokens():
    with pytest.raises(GaflowError, match="holds no tokens"):
        FlowMethod("af", sources="special")(random_trace())


@pytest.mark.parametrize("ends", [{}, {"sources": (0,), "targets": (1, 2, 3)}])
def test_every_layer_sums_to_the_value_and_all_to_as_many_times_it(ends):
    trace = random_trace()
    layers = [FlowMethod("af", layer=k, **ends)(trace) for k in (0, 1, 2, 3)]
    flow = layers[0].flow
    assert flow is not None
    for k, scores in enumerate(layers):
        assert torch.equal(scores.values, flow.through()[:, k])
        torch.testing.assert_close(scores.values.sum(-1), flow.value, rtol=1e-9, atol=0)
        assert torch.equal(FlowMethod("af", layer=k - 4, **ends)(trace).values, scores.values)
    summed = FlowMethod("af", layer="all", **ends)(trace).values
    torch.testing.assert_close(summed, sum(s.values for s in layers), rtol=1e-12, atol=0)
    torch.testing.assert_close(summed.sum(-1), 4 * flow.value, rtol=1e-9, atol=0)


def test_from_one_output_node_the_layer_below_gets_its_attention_where_nothing_narrower_follows():
    attention = torch.tensor([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.9, 0.1], [0.2, 0.8]]]])  # 2 layers of 1 head
    scores = FlowMethod("af", sources=1, layer=1, epsilon=1e-9)(make_trace(attention[None]))
    torch.testing.assert_close(scores.values, torch.tensor([[0.2, 0.8]], dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("layer", [4, -5, 99])
def test_a_layer_that_is_not_there_is_refused(layer):
    with pytest.raises(ValueError, match=rf"layer={layer}\b.* 0 .* 3 "):
        FlowMethod("af", layer=layer)(random_trace())


@pytest.mark.parametrize("layer", ["top", 1.0, None, True, [0]])
def test_what_is_no_layer_is_refused_at_once(layer):
    with pytest.raises(ValueError, match=f"layer.*{re.escape(repr(layer))}"):
        FlowMethod("af", layer=layer)
    with pytest.raises(ValueError, match=f"layer.*{re.escape(repr(layer))}"):
        layer_scores(np.ones((2, 3)), layer)


def test_an_explanation_at_a_layer_is_that_layer_of_an_explanation():
    model, tokenizer = bert()
    ex = Explainer(model, tokenizer)
    choices: list[dict[str, Any]] = [{}, {"sources": "head"}]
    for ends in choices:
        plain = ex(SENTENCE, FlowMethod("af", **ends))
        for layer in (0, 2, -1, "all"):
            direct, taken = ex(SENTENCE, FlowMethod("af", layer=layer, **ends)), plain.at_layer(layer)
            assert direct.method == taken.method
            np.testing.assert_allclose(direct.scores, taken.scores, rtol=1e-12)
            assert direct.at_layer(0).method == plain.method


def test_a_list_of_texts_gives_what_each_gives_alone():
    model, tokenizer = bert()
    ex = Explainer(model.double(), tokenizer)
    texts = ["a good film", SENTENCE, "the dog"]
    method = FlowMethod("af", sources=(0, -1), targets="ordinary", layer="all")
    for together, text in zip(ex(texts, method), texts, strict=True):
        np.testing.assert_allclose(together.scores, ex(text, method).scores, rtol=1e-6, atol=1e-9)
        assert together.layers is not None
        assert not together.layers[0][together.special_mask].any()
        assert together.layers[-1].nonzero()[0].tolist() == [0, len(together.tokens) - 1]
