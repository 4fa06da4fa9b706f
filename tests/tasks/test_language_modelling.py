import json
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast, pipeline

import gaflow
from gaflow.errors import TargetError, TextError, UnsupportedModelError
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.language_modelling import LanguageModelHead, ResolvedTokens
from gaflow.tasks.text_inputs import read_masked, read_prompts
from tests.support.models import SENTENCE, byte_bpe, unigram, wordpiece
from tests.support.task_models import byte_filler, filler, writer

MASKED = "this [MASK] is good."


def ids(tokenizer, *pieces):
    return tuple(tokenizer.convert_tokens_to_ids(list(pieces)))


def resolve(target, text=MASKED, tokenizer=None, masked=True, truncation=False):
    tokenizer = tokenizer or wordpiece()
    head, read = LanguageModelHead(tokenizer, masked), read_masked if masked else read_prompts
    (encoding,) = read(InputReader(None, tokenizer, 64, truncation), [text], ["text"])
    return head.resolve(head.parse(target), encoding, "text")


@pytest.mark.parametrize(
    ("target", "pieces"),
    [
        (None, ()),
        ("dog", ("dog",)),
        ("Dog", ("dog",)),
        (" film ", ("film",)),
        ("##ing", ("##ing",)),
        ("[SEP]", ("[SEP]",)),
        ("dog minus good", ("dog", "good")),
        (("dog", "##ing"), ("dog", "##ing")),
        ("#2", ()),
        ("#2=dog", ("dog",)),
    ],
)
def test_a_word_is_the_token_that_would_stand_there(target, pieces):
    assert resolve(target) == (2, ids(wordpiece(), *pieces))


def test_numbers_are_tokens_and_their_digits_as_text_are_words():
    assert resolve(17) == (2, (17,))
    assert resolve((17, 18)) == resolve((np.int64(17), np.uint8(18))) == (2, (17, 18))
    assert all(type(token) is int for token in resolve((np.int64(17), 18))[1])
    assert resolve("3") == (2, ids(wordpiece(), "3"))


def like_roberta():
    """The mask takes in the space before it, as RoBERTa's does."""
    settings = json.loads(byte_bpe().backend_tokenizer.to_str())
    for token in settings["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    inner = Tokenizer.from_str(json.dumps(settings))
    mask: Any = AddedToken("<mask>", lstrip=True, special=True)
    return PreTrainedTokenizerFast(tokenizer_object=inner, mask_token=mask, unk_token="<unk>")


def test_a_word_inside_a_text_has_a_space_before_it_where_the_tokenizer_says_so():
    tokenizer = like_roberta()
    pieces = tokenizer.get_vocab()
    plain = sorted(p for p in pieces if p.isascii() and p.isalpha() and len(p) > 1)  # a vocabulary has no order
    word = next(p for p in plain if f"Ġ{p}" in pieces)
    assert resolve(word, "a <mask> one", tokenizer)[1] == ids(tokenizer, f"Ġ{word}")
    assert resolve(word, "<mask> one", tokenizer)[1] == ids(tokenizer, word)
    assert resolve(word, "a <mask> one", byte_bpe())[1] == ids(tokenizer, word)  # the space is a token of its own there
    assert resolve(word, "a <mask> one" + " film" * 99, tokenizer, truncation=True)[1] == ids(tokenizer, f"Ġ{word}")
    assert resolve(word, "it", tokenizer, masked=False)[1] == ids(tokenizer, f"Ġ{word}")
    assert resolve(f"Ġ{word}", "it", tokenizer, masked=False)[1] == ids(tokenizer, f"Ġ{word}")
    assert resolve(".", "it", tokenizer, masked=False)[1] == ids(tokenizer, ".")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("catty", r"target.*'catty'.*5 tokens.*c, ##a, "),
        ("xylophone", "'xylophone'"),
        ("dog minus xylophone", "'xylophone' is no token"),
        ("dog minus Dog", "contrasts 'dog' with itself"),
        ("#3", "target.*text, #2"),
        ("", "target is empty"),
        ((1, 2, 3), "a contrast is a pair"),
    ],
)
def test_a_word_that_is_no_token_is_named(target, message):
    with pytest.raises(TargetError, match=message):
        resolve(target)


@pytest.mark.parametrize("target", [1.5, True, (True, 1), b"dog", {"a": 1}])
def test_a_target_of_the_wrong_type_is_a_type_error(target):
    with pytest.raises(TypeError, match="target must be a word"):
        resolve(target)


def test_of_several_masks_one_must_be_named():
    text = "a [MASK] dog is [MASK]"
    with pytest.raises(TargetError, match=r"target.*text, #2, #5.*'#2', or '#2=word'"):
        resolve(None, text)
    assert resolve("#5", text) == (5, ())
    assert resolve("#5=good", text) == (5, ids(wordpiece(), "good"))
    explainer = gaflow.Explainer(*filler())
    assert explainer(text, target="#5=good").read_positions == (5,)


def test_a_text_without_a_mask_is_told_how_to_write_one():
    explainer = gaflow.Explainer(*filler())
    with pytest.raises(TextError, match=r"texts\[1\].*'this dog'.*\[MASK\]"):
        explainer([MASKED, "this dog"])
    with pytest.raises(TextError, match=r"\[MASK\].*64 tokens"):
        explainer("dog " * 70 + "[MASK]", truncation=True)


def test_a_tokenizer_without_a_mask_cannot_ask():
    with pytest.raises(gaflow.GaflowError, match="no mask token"):
        gaflow.Explainer(filler()[0], unigram())("a dog")


def test_a_token_that_the_model_does_not_have_is_out_of_range():
    with pytest.raises(TargetError, match=r"target 9999.* 0 to"):
        gaflow.Explainer(*filler())(MASKED, target=9999)


def test_an_output_of_another_shape_is_refused():
    (encoding,) = read_prompts(InputReader(None, wordpiece()), ["a dog"], ["text"])
    with pytest.raises(UnsupportedModelError, match="vocabulary"):
        LanguageModelHead(wordpiece(), False).outputs(torch.zeros(1, 3), [encoding], [ResolvedTokens(0, ())])


def test_a_mask_is_no_word_of_the_text():
    att = gaflow.Explainer(*filler())("a good [MASK].", target="film")
    assert [w.text for w in att.words()] == ["a", "good", "."]
    assert [t for t, special in zip(att.tokens, att.special_mask, strict=True) if special] == [
        "[CLS]", "[MASK]", "[SEP]",
    ]  # fmt: skip
    assert att.offsets[att.read_positions[0]] == (7, 13)


@pytest.mark.parametrize("make", [filler, byte_filler])
def test_words_are_those_of_the_pipeline_of_transformers(make):
    model, tokenizer = make()
    text = SENTENCE.replace("cute", tokenizer.mask_token)
    expected = pipeline("fill-mask", model=model, tokenizer=tokenizer)(text, top_k=4)
    predictions = gaflow.Explainer(model, tokenizer).predictions(text, 4)
    assert [p.target for p in predictions] == [e["token"] for e in expected]  # type: ignore[index]
    for prediction, e in zip(predictions, expected, strict=True):
        assert prediction.probability == pytest.approx(e["score"], rel=1e-4)  # type: ignore[index]


def test_the_next_token_comes_after_the_text_and_not_after_what_the_tokenizer_adds():
    model, tokenizer = writer()
    att = gaflow.Explainer(model, tokenizer)("a good film")
    input_ids = tokenizer("a good film")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(input_ids[-1:]) == ["</s>"]
    with torch.no_grad():
        expected = model(torch.tensor([input_ids[:-1]])).logits[0, -1]
    assert att.target == int(expected.argmax())
    assert att.output == pytest.approx(expected.max().item(), rel=1e-5)
    assert att.read_positions == (len(input_ids) - 2,)
    assert att.tokens[-1] != "</s>"


def test_no_flow_comes_from_tokens_that_the_next_one_is_not_predicted_at():
    att = gaflow.Explainer(*writer())("although this dog is not cute, it is very")
    assert att.layers is not None
    assert att.layers[-1].nonzero()[0].tolist() == list(att.read_positions)


def test_a_text_to_be_continued_is_not_cut_at_its_end():
    with pytest.raises(TextError, match="beginning"):
        gaflow.Explainer(*writer())("dog " * 90, truncation=True)
    with pytest.raises(TypeError, match="one text at a time"):
        gaflow.Explainer(*writer())(("a", "b"))
