import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import TargetError, TextError, UnsupportedModelError
from gaflow.inputs.encoding import encode
from gaflow.tasks.question_answering import QuestionAnsweringHead, ResolvedAnswer
from tests.support.models import SENTENCE, wordpiece
from tests.support.task_models import QUESTION, reader

HEAD = QuestionAnsweringHead()
CONTEXT = "this dog is not bad"
START = 4  # of the context: [CLS] is it [SEP] this dog is not bad [SEP]


def encoding(context=CONTEXT):
    return encode(wordpiece(), [("is it", context)])[0]


def logits(**high):
    """Of the tokens; start_3=2 is the start logit of token 3 of the context."""
    z = torch.zeros(10, 2)
    for name, value in high.items():
        part, _, k = name.partition("_")
        z[START + int(k), ("start", "end").index(part)] = value
    return z


def explained(target, z, context=CONTEXT):
    resolved = HEAD.resolve(HEAD.parse(target), encoding(context), "text")
    return HEAD.outputs(z[None], [encoding(context)], [resolved])[0]


def test_none_is_the_best_span_of_the_context_that_ends_no_sooner_than_it_starts():
    z = logits(start_3=5.0, end_1=4.0, start_0=2.0, end_4=0.5)
    z[1] = 99.0  # in the question
    output = explained(None, z)
    assert (output.label, output.target, output.read_positions) == ("this dog", "span=0:8", (4, 5))
    assert output.terms == ((1.0, (4, 0)), (1.0, (5, 1)))
    assert output.output_kind == "start + end logit"
    chances = z[START : START + 5].softmax(0)
    assert output.probability == pytest.approx((chances[0, 0] * chances[1, 1]).item())


def test_an_answer_is_no_longer_than_it_may_be_unless_it_is_given():
    z = logits(start_0=5.0, end_4=5.0, end_1=1.0)
    short = QuestionAnsweringHead(longest=2)
    assert short.top_outputs(z, encoding(), 1)[0].label == "this dog"
    assert HEAD.top_outputs(z, encoding(), 1)[0].label == CONTEXT
    resolved = short.resolve(short.parse(CONTEXT), encoding(), "text")
    assert short.outputs(z[None], [encoding()], [resolved])[0].label == CONTEXT


def test_all_spans_are_there_and_no_others():
    torch.manual_seed(0)
    z = torch.randn(10, 2).double()
    outputs = HEAD.top_outputs(z, encoding(), 99)
    assert len({output.target for output in outputs}) == len(outputs) == 5 * 6 / 2
    assert sum(a.probability or 0 for a in outputs) < 1


@pytest.mark.parametrize(
    ("target", "label", "terms"),
    [
        ("dog is", "dog is", ((1.0, (5, 0)), (1.0, (6, 1)))),
        ((5, 11), "dog is", ((1.0, (5, 0)), (1.0, (6, 1)))),
        ((np.int64(5), np.int64(11)), "dog is", ((1.0, (5, 0)), (1.0, (6, 1)))),
        ("5:11", "dog is", ((1.0, (5, 0)), (1.0, (6, 1)))),
        ("start", "start: not", ((1.0, (7, 0)),)),
        ("end", "end: not", ((1.0, (7, 1)),)),
        ("span", "not", ((1.0, (7, 0)), (1.0, (7, 1)))),
        ("start=dog is", "start: dog is", ((1.0, (5, 0)),)),
        (("end", (5, 11)), "end: dog is", ((1.0, (6, 1)),)),
        ("bad minus dog", "bad minus dog", ((1.0, (8, 0)), (1.0, (8, 1)), (-1.0, (5, 0)), (-1.0, (5, 1)))),
        (("bad", "dog"), "bad minus dog", ((1.0, (8, 0)), (1.0, (8, 1)), (-1.0, (5, 0)), (-1.0, (5, 1)))),
        ("start=16:19 minus 5:8", "start: bad minus dog", ((1.0, (8, 0)), (-1.0, (5, 0)))),
    ],
)
def test_targets_are_read_as_meant_and_can_be_asked_for_again(target, label, terms):
    z = logits(start_3=5.0, end_3=4.0)
    output = explained(target, z)
    assert (output.label, output.terms) == (label, terms)
    assert explained(output.target, z) == explained(output, z) == output
    assert output.prediction == ("" if ":" not in label else label.split(":")[0] + ": ") + "not"


def test_an_answer_that_has_the_word_minus_in_it_is_an_answer_first():
    context = "good bad minus dog"
    z = torch.zeros(len(encoding(context)), 2)
    assert explained("bad minus dog", z, context).label == "bad minus dog"
    assert len(explained("bad minus dog", z, context).terms) == 2


def test_of_several_places_the_one_of_largest_output_is_meant():
    z = torch.zeros(8, 2)
    z[6] = 1.0
    assert explained("dog", z, "dog is dog").read_positions == (6,)
    assert explained("dog", -z, "dog is dog").read_positions == (4,)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cat", r"target.*'cat'.*'this dog is not bad' \(text, 19 characters\)"),
        ((3, 99), r"\(3, 99\) is not in"),
        ("dog minus cat", "'dog minus cat'"),
        ("dog minus dog", "with itself"),
    ],
)
def test_an_answer_that_is_not_in_the_context_is_named(target, message):
    with pytest.raises(TargetError, match=message):
        explained(target, logits())


def test_an_output_of_another_shape_is_refused():
    with pytest.raises(UnsupportedModelError, match=r"start.*end logit"):
        HEAD.outputs(torch.zeros(1, 10, 3), [encoding()], [ResolvedAnswer("span")])


@pytest.mark.parametrize("context", [SENTENCE, "zebra 👍🏽 don't stop", CONTEXT * 4])
def test_the_answer_is_the_best_of_all_that_there_are(context):
    model, tokenizer = reader()
    inputs = tokenizer("is it?", context, return_tensors="pt", return_offsets_mapping=True)
    offsets, inside = inputs.pop("offset_mapping")[0].tolist(), [k == 1 for k in inputs.sequence_ids(0)]
    with torch.no_grad():
        outputs = model(**inputs)
    start, end = (
        z[0].double().masked_fill(~torch.tensor(inside), -1e9).softmax(0)
        for z in (outputs.start_logits, outputs.end_logits)
    )
    spans = [(i, j) for i in range(len(start)) for j in range(i, min(i + 15, len(start)))]
    best = max(spans, key=lambda span: (start[span[0]] * end[span[1]]).item())
    first = gaflow.Explainer(model, tokenizer).predictions(("is it?", context), 1)[0]
    assert first.target == f"span={offsets[best[0]][0]}:{offsets[best[1]][1]}"
    assert first.probability == pytest.approx((start[best[0]] * end[best[1]]).item(), rel=1e-5)


def test_question_and_context_are_kept_apart():
    explainer = gaflow.Explainer(*reader())
    att = explainer(QUESTION)
    assert (att.text, att.text_pair) == QUESTION
    assert {w.segment for w in att.words()} == {0, 1}
    named = explainer({"question": QUESTION[0], "context": QUESTION[1]})
    assert named.label == att.label


def test_what_is_no_question_with_its_context_is_refused():
    explainer = gaflow.Explainer(*reader())
    with pytest.raises(TypeError, match=r"text.*\(question, context\).*str"):
        explainer("is it?")
    with pytest.raises(TypeError, match="'question', 'text'"):
        explainer({"question": "is it?", "text": "it is"})
    with pytest.raises(TextError, match=r"text\[1\] is empty"):
        explainer(("is it?", ""))
    with pytest.raises(TextError, match=r"text.*context"):
        explainer(("is it?", "\u200b"))
    with pytest.raises(TypeError, match=r"target \[4\] is no location"):
        HEAD.parse(([4], 9))


def test_only_the_context_is_cut():
    explainer = gaflow.Explainer(*reader())
    with pytest.raises(TextError, match="truncation=True"):
        explainer(("is it cute?", "the dog " * 60))
    att = explainer(("is it cute?", "the dog " * 60), truncation=True)
    assert att.truncated
    assert len(att.tokens) == 64
    assert [w.text for w in att.words() if w.segment == 0] == ["is", "it", "cute", "?"]
    with pytest.raises(TextError, match=r"text.*shorten"):
        explainer(("dog " * 61, "the dog"), truncation=True)
