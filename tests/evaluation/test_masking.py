import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from gaflow.errors import GaflowError, TextError
from gaflow.evaluation.masking import Masker, masked_count, masks
from gaflow.inputs.encoding import encode
from tests.support.models import FAMILIES, TEXTS, bert, gpt2, roberta

LEVELS = range(10, 100, 10)


def masker_of(family: Any, texts=TEXTS, **settings):
    made: Any = family() if callable(family) else family
    model, tokenizer = made
    encodings = encode(tokenizer, texts)
    return Masker.of(model, tokenizer, encodings, **settings), encodings


def variants(masker, rows=5, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.random((rows, len(places))) < generator.random((rows, 1)) for places in masker.positions]


def by_hand(masker, encoding, hidden):
    """One text alone, by ids: only for models that do not look for padding among them."""
    ids = list(encoding.inputs["input_ids"])
    places = [k for k, s in enumerate(encoding.segments) if s >= 0]
    for place, gone in zip(places, hidden, strict=True):
        if gone:
            ids[place] = masker.token
    with torch.no_grad():
        logits = masker.model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long()).logits
    return logits.double().log_softmax(-1)[0].numpy()


def test_how_many_tokens_are_masked():
    for n in range(1, 60):
        for k in range(1, 101):
            assert masked_count(n, k) == max(1, math.floor(Fraction(k * n, 100) + Fraction(1, 2)))
    assert [masked_count(5, k) for k in LEVELS] == [1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_masks_follow_the_scores_and_ties_go_by_position():
    scores = np.array([0.5, 2.0, 0.5, -1.0, 2.0])
    top, bottom, keep = masks(scores, [("top", 60), ("bottom", 60), ("keep", 60)])
    assert top.tolist() == [True, True, False, False, True]
    assert bottom.tolist() == [True, False, True, True, False]
    assert keep.tolist() == [False, False, True, True, False]
    equal = np.zeros(4)
    assert masks(equal, [("top", 50), ("bottom", 50), ("keep", 50)]).tolist() == [
        [True, True, False, False],
        [True, True, False, False],
        [False, False, True, True],
    ]
    assert masks(np.array([3.0]), [("top", 10), ("keep", 90)]).tolist() == [[True], [False]]


def test_masks_agree_with_sorting_in_plain_python():
    generator = np.random.default_rng(1)
    for n in (1, 2, 3, 7, 20):
        scores = generator.integers(-2, 3, n).astype(float)
        for k in LEVELS:
            m = max(1, math.floor(k * n / 100 + 0.5))
            for order, sign in (("top", -1), ("bottom", 1)):
                chosen = set(sorted(range(n), key=lambda i, s=sign: (s * scores[i], i))[:m])
                assert masks(scores, [(order, k)])[0].tolist() == [i in chosen for i in range(n)]


@pytest.mark.parametrize("replacement", ["pad", "mask", 7])
def test_masked_tokens_are_replaced_in_place(replacement):
    masker, encodings = masker_of(bert, replacement=replacement)
    wanted = variants(masker)
    outputs = masker(wanted)
    for text, hidden in enumerate(wanted):
        alone = np.array([by_hand(masker, encodings[text], row) for row in hidden])
        np.testing.assert_allclose(outputs[text], alone, atol=2e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_masked_is_what_the_model_says(family):
    masker, encodings = masker_of(FAMILIES[family])
    outputs = masker([np.zeros((1, len(p)), dtype=bool) for p in masker.positions])
    for text, encoding in enumerate(encodings):
        with torch.no_grad():
            logits = masker.model(**{k: torch.tensor([v]) for k, v in encoding.inputs.items()}).logits
        np.testing.assert_allclose(outputs[text][0], logits[0].double().log_softmax(-1).numpy(), atol=5e-6)


@pytest.mark.parametrize("replacement", ["pad", "unk", "delete"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_gives_what_each_text_alone_gives(family, replacement):
    together, encodings = masker_of(FAMILIES[family], replacement=replacement)
    wanted = variants(together, rows=3)
    outputs = together(wanted)
    for text in range(len(encodings)):
        alone, _ = masker_of((together.model, FAMILIES[family]()[1]), [TEXTS[text]], replacement=replacement)
        for row, hidden in enumerate(wanted[text]):
            np.testing.assert_allclose(outputs[text][row], alone([hidden[None]])[0][0], atol=5e-6)


def test_positions_stay_those_of_the_text_where_models_count_them_by_padding():
    masker, encodings = masker_of(roberta)
    pad = 1
    assert masker.token == pad
    for text, encoding in enumerate(encodings):
        n, t = len(masker.positions[text]), len(encoding)
        hidden = np.arange(n) % 2 == 0
        ids = torch.tensor([encoding.inputs["input_ids"]])
        ids[0, masker.positions[text][hidden]] = pad
        positions = torch.arange(t)[None] + pad + 1
        with torch.no_grad():
            right = masker.model(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions).logits
            wrong = masker.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        wanted = [np.zeros((1, len(p)), dtype=bool) for p in masker.positions]
        wanted[text] = hidden[None]
        found = masker(wanted)[text][0]
        np.testing.assert_allclose(found, right[0].double().log_softmax(-1).numpy(), atol=5e-6)
        assert np.abs(found - wrong[0].double().log_softmax(-1).numpy()).max() > 1e-3


@pytest.mark.parametrize("family", [bert, roberta])
def test_deletion_reads_the_text_without_its_tokens(family):
    masker, encodings = masker_of(family, replacement="delete")
    wanted = variants(masker)
    wanted[0][0] = True  # nothing but special tokens is left
    outputs = masker(wanted)
    for text, encoding in enumerate(encodings):
        for row, hidden in enumerate(wanted[text]):
            gone = set(masker.positions[text][hidden].tolist())
            kept = {k: [x for i, x in enumerate(v) if i not in gone] for k, v in encoding.inputs.items()}
            with torch.no_grad():
                logits = masker.model(**{k: torch.tensor([v]) for k, v in kept.items()}).logits
            np.testing.assert_allclose(outputs[text][row], logits[0].double().log_softmax(-1).numpy(), atol=5e-6)


def test_equal_inputs_are_asked_about_once():
    model, tokenizer = bert()
    texts = ["dog dog cat", "dog dog cat", "dog cat cat"]
    seen = []
    handle = model.register_forward_pre_hook(lambda m, a, k: seen.append(tuple(k["input_ids"].shape)), with_kwargs=True)
    none, first, second = [[0, 0, 0, 0, 0]], [[1, 0, 0, 0, 0]], [[0, 1, 0, 0, 0]]
    masker, _ = masker_of((model, tokenizer), texts, tokens_per_pass=14)
    assert [len(p) for p in masker.positions] == [5, 5, 7]
    wanted = [
        np.array(x, dtype=bool) for x in (none + first + none + second, first + none, [[0] * len(masker.positions[2])])
    ]
    outputs = masker(wanted)
    assert sum(rows for rows, _ in seen) == len(outputs.log_probabilities) == 4
    assert outputs.rows[0][0] == outputs.rows[0][2] == outputs.rows[1][1]
    assert outputs.rows[0][1] == outputs.rows[1][0] != outputs.rows[0][3]
    assert all(rows * length <= 14 for rows, length in seen)
    seen.clear()
    deleter, _ = masker_of((model, tokenizer), texts, replacement="delete")
    assert len(deleter(wanted).log_probabilities) == 3  # without one dog or without the other is the same text
    handle.remove()


def test_inputs_are_asked_about_in_the_order_in_which_they_come():
    masker, _ = masker_of(bert)
    wanted = variants(masker, rows=9)
    outputs = masker(wanted)
    first = np.unique(np.concatenate(outputs.rows), return_index=True)[1]
    assert (np.diff(first) > 0).all()
    np.testing.assert_array_equal(masker(wanted).log_probabilities, outputs.log_probabilities)


def test_inputs_that_differ_are_told_apart():
    masker, _ = masker_of(bert, ["good dog", "bad dog"])
    n = len(masker.positions[0])
    everything = np.array([[(j >> i) & 1 for i in range(n)] for j in range(1 << n)], dtype=bool)
    outputs = masker([everything, np.ones((1, len(masker.positions[1])), dtype=bool)])
    assert len(outputs.log_probabilities) == len(everything) + (len(masker.positions[1]) != n)


def test_the_report_goes_from_nothing_to_all():
    told = []
    masker, _ = masker_of(bert, tokens_per_pass=40)
    masker(variants(masker), told.append)
    assert told == sorted(told)
    assert len(told) > 5
    assert told[-1] == 1


def test_the_model_is_left_as_found():
    model, tokenizer = bert()
    model.train()
    next(model.parameters()).requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    hooks = [len(m._forward_hooks) for m in model.modules()]
    masker, _ = masker_of((model, tokenizer))
    state = torch.random.get_rng_state()
    first = masker(variants(masker)).log_probabilities
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.training
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert hooks == [len(m._forward_hooks) for m in model.modules()]
    np.testing.assert_array_equal(first, masker(variants(masker)).log_probabilities)


def test_decoders_run_with_and_without_a_token_for_padding():
    model, tokenizer = gpt2()
    masker, _ = masker_of((model, tokenizer), ["a good film", "bad"], replacement="unk")
    hidden = [np.array([[False] * len(p), [True] + [False] * (len(p) - 1)]) for p in masker.positions]
    together = masker(hidden)
    model.config.pad_token_id = None
    alone, _ = masker_of((model, tokenizer), ["a good film", "bad"], replacement="unk")
    for text in range(2):
        np.testing.assert_allclose(together[text], alone(hidden)[text], atol=5e-6)


def test_deletion_that_may_leave_nothing_is_refused():
    model, tokenizer = gpt2()
    (encoding,) = encode(tokenizer, ["a good film"])
    bare = replace(encoding, segments=(0,) * len(encoding))
    with pytest.raises(TextError, match="special"):
        Masker.of(model, tokenizer, [bare], "delete")


@pytest.mark.parametrize("replacement", ["blank", -1, True, None, 2.5])
def test_an_unknown_replacement_is_refused(replacement):
    with pytest.raises(ValueError, match="replacement"):
        masker_of(bert, replacement=replacement)


def test_a_replacement_that_the_tokenizer_lacks_is_refused():
    with pytest.raises(GaflowError, match="mask"):
        masker_of(FAMILIES["albert"], replacement="mask")
    with pytest.raises(GaflowError, match="word embeddings"):
        masker_of(bert, replacement=10**6)
