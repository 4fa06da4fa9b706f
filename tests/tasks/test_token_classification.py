import pytest
import torch
from transformers import pipeline

import gaflow
from gaflow.errors import GaflowError, TargetError
from gaflow.inputs.encoding import encode
from gaflow.tasks.token_classification import TagTarget, TokenClassificationHead
from tests.support.models import SENTENCE, wordpiece
from tests.support.task_models import TAGS, tagger

HEAD = TokenClassificationHead(TAGS)
TEXT = "this dog is not bad"  # [CLS] and five tokens of a word each
OUT, B_PER, I_PER, B_LOC, I_LOC = range(5)


def encoding(text=TEXT):
    return encode(wordpiece(), [text])[0]


def logits(*tags, sure=()):
    """Of [CLS], the given tags, and [SEP]; the sure ones are surer."""
    z = torch.zeros(len(tags) + 2, len(TAGS))
    for k, tag in enumerate(tags):
        z[k + 1, tag] = 5.0 if k in sure else 3.0
    return z


def explained(target, z, text=TEXT):
    resolved = HEAD.resolve(HEAD.parse(target), encoding(text), "text")
    return HEAD.outputs(z[None], [encoding(text)], [resolved])[0]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, TagTarget()),
        (3, TagTarget(3, None)),
        ("dog", TagTarget("dog", None)),
        ("B-PER", TagTarget(None, B_PER)),
        ("PER", TagTarget(None, "PER")),
        ("dog=B-PER", TagTarget("dog", B_PER)),
        ("5:8=PER", TagTarget((5, 8), "PER")),
        ("#2=i-loc minus O", TagTarget(2, (I_LOC, OUT))),
        ((2, "B-LOC"), TagTarget(2, B_LOC)),
        (((5, 8), 3), TagTarget((5, 8), B_LOC)),
        (("dog", ("B-PER", "O")), TagTarget("dog", (B_PER, OUT))),
        (("dog", None), TagTarget("dog", None)),
    ],
)
def test_targets_are_read_as_meant(target, expected):
    assert HEAD.parse(target) == expected


@pytest.mark.parametrize("target", [("dog", "B-DOG"), "dog=B-DOG", ("dog", 7), "dog=PER minus O"])
def test_an_unknown_tag_is_refused_with_the_tags_and_types(target):
    with pytest.raises(TargetError, match=r"'B-PER'.*types LOC, PER"):
        HEAD.parse(target)


def test_entities_are_runs_of_one_type_that_begin_once():
    z = logits(B_PER, I_PER, OUT, B_LOC, B_LOC)
    assert [(a.label, a.target, a.read_positions) for a in HEAD.top_outputs(z, encoding(), 9)] == [
        ("PER: this dog", "0:8", (1, 2)),
        ("LOC: not", "#4", (4,)),
        ("LOC: bad", "#5", (5,)),
    ]
    kinds = HEAD.top_outputs(logits(I_PER, I_LOC, I_LOC, OUT, I_LOC), encoding(), 9)
    assert {a.label for a in kinds} == {"PER: this", "LOC: dog is", "LOC: bad"}


def test_without_prefixes_runs_are_of_one_tag_and_without_an_outside_every_token_is_one():
    z = torch.tensor([[0.0, 0], [1, 2], [1, 2], [2, 1], [1, 2], [1, 2], [0, 0]])
    assert [a.label for a in TokenClassificationHead(("O", "X")).top_outputs(z, encoding(), 9)] == [
        "X: this dog",
        "X: not bad",
    ]
    assert [a.label for a in TokenClassificationHead(("Y", "X")).top_outputs(z, encoding(), 9)] == [
        "X: this", "X: dog", "Y: is", "X: not", "X: bad",
    ]  # fmt: skip


def test_none_is_the_entity_that_the_model_is_surest_of():
    assert explained(None, logits(B_PER, OUT, B_LOC, OUT, OUT, sure=[2])).label == "LOC: is"
    output = explained(None, logits(B_PER, I_PER, OUT, OUT, OUT))
    chance = torch.tensor([3.0, 0, 0, 0, 0]).softmax(0)[0].item()
    assert output.probability == pytest.approx(chance)
    assert output.terms == ((0.5, (1, B_PER)), (0.5, (2, I_PER)))
    assert output.output_kind == "mean logit of 2 tokens"
    assert output.prediction == output.label


def test_where_no_entity_is_seen_the_nearest_to_one_is_explained_and_the_prediction_says_so():
    z = logits(OUT, OUT, OUT, OUT, OUT)
    z[3, I_LOC] = 2.0
    output = explained(None, z)
    assert (output.label, output.prediction, output.read_positions) == ("I-LOC: is", "O: is", (3,))
    assert HEAD.top_outputs(z, encoding(), 5) == [output]


def test_a_type_begins_once_and_a_tag_goes_on_inside():
    z = logits(OUT, OUT, OUT, OUT, OUT)
    for target in (("this dog", "PER"), ("this dog", "B-PER"), "0:8=PER"):
        assert explained(target, z).terms == ((0.5, (1, B_PER)), (0.5, (2, I_PER)))
    assert explained(("this dog", "I-PER"), z).terms == ((0.5, (1, I_PER)), (0.5, (2, I_PER)))
    assert explained((2, "B-PER minus O"), z).terms == ((1.0, (2, B_PER)), (-1.0, (2, OUT)))
    assert explained((2, "B-PER minus O"), z).output_kind == "difference of logits"
    assert explained(("this dog", "B-PER minus O"), z).probability is None


def test_a_tag_alone_is_looked_for_where_the_model_is_surest_of_it():
    z = logits(B_PER, OUT, B_LOC, B_PER, OUT, sure=[3])
    assert explained("PER", z).label == "PER: not"
    assert explained("B-LOC", z).label == "B-LOC: is"
    z = logits(OUT, OUT, OUT, OUT, OUT)
    z[5, B_PER] = 1.0
    assert (explained("PER", z).read_positions, explained("PER", z).prediction) == ((5,), "O: bad")


def test_of_several_places_the_one_of_largest_probability_is_meant():
    z = logits(OUT, OUT, OUT)
    z[3, B_PER] = 9.0
    assert explained(("dog", "B-PER"), z, "dog is dog").read_positions == (3,)
    assert explained(("dog", "O"), z, "dog is dog").read_positions == (1,)


def test_an_output_that_is_not_finite_is_an_error():
    with pytest.raises(GaflowError, match="not finite"):
        explained(None, logits(OUT, OUT, OUT, OUT, OUT) + float("nan"))


@pytest.mark.parametrize("text", [SENTENCE, TEXT, "zebra 👍🏽 don't stop"])
def test_entities_are_those_of_the_pipeline_of_transformers(text):
    model, tokenizer = tagger()
    pipe = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple")
    expected = {(e["start"], e["end"], e["entity_group"]): e["score"] for e in pipe(text)}  # type: ignore[index]
    predictions = gaflow.Explainer(pipe).predictions(text, 99)
    for prediction in predictions:
        kind, _, piece = prediction.label.partition(": ")
        scores = [score for (a, b, k), score in expected.items() if k == kind and text[a:b].strip() == piece]
        assert any(score == pytest.approx(prediction.probability, rel=1e-5) for score in scores)
    assert len(predictions) == len(expected)


def test_an_entity_of_several_tokens_is_explained_as_one():
    explainer = gaflow.Explainer(*tagger())
    att = explainer("a catty film", target=("catty", "PER"))
    assert att.label == "PER: catty"
    assert len(att.read_positions) > 1
    logits_of_tokens = [
        explainer("a catty film", target=(k, "I-PER" if i else "B-PER")).output
        for i, k in enumerate(att.read_positions)
    ]
    assert att.output == pytest.approx(sum(logits_of_tokens) / len(logits_of_tokens), rel=1e-5)


def test_a_pair_is_no_input_of_a_tagger():
    with pytest.raises(TypeError, match="one text at a time"):
        gaflow.Explainer(*tagger())(("dog", "film"))
