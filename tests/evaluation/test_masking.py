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
    model_and_tokenizer: Any = family() if callable(family) else family
    model, tokenizer = model_and_tokenizer
    encodings = encode(tokenizer, texts)
    return Masker.of(model, tokenizer, encodings, **settings), encodings


def variants(masker, rows=5, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.random((rows, len(places))) < generator.random((rows, 1)) for places in masker.positions]


def by_hand(masker, encoding, hidden):
    """One text alone, by ids: only for models that do not look for padding among them."""
    ids = list(encoding.inputs["input_ids"])
    places = [k for k, s in enumerate(encoding.segments) if s >= 0]
    for position, gone in zip(places, hidden, strict=True):
        if gone:
            ids[position] = masker.token
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
                masked = set(sorted(range(n), key=lambda i, s=sign: (s * scores[i], i))[:m])
                assert masks(scores, [(order, k)])[0].tolist() == [i in masked for i in range(n)]


@pytest.mark.parametrize("replacement", ["pad", "mask", 7])
def test_masked_tokens_are_replaced_in_place(replacement):
    masker, encodings = masker_of(bert, replacement=replacement)
    token_masks = variants(masker)
    outputs = masker(token_masks)
    for text, hidden in enumerate(token_masks):
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
    token_masks = variants(together, rows=3)
    outputs = together(token_masks)
    for text in range(len(encodings)):
        alone, _ = masker_of((together.model, FAMILIES[family]()[1]), [TEXTS[text]], replacement=replacement)
        for row, hidden in enumerate(token_masks[text]):
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
        token_masks = [np.zeros((1, len(p)), dtype=bool) for p in masker.positions]
        token_masks[text] = hidden[None]
        log_probabilities = masker(token_masks)[text][0]
        np.testing.assert_allclose(log_probabilities, right[0].double().log_softmax(-1).numpy(), atol=5e-6)
        assert np.abs(log_probabilities - wrong[0].double().log_softmax(-1).numpy()).max() > 1e-3


@pytest.mark.parametrize("family", [bert, roberta])
def test_deletion_reads_the_text_without_its_tokens(family):
    masker, encodings = masker_of(family, replacement="delete")
    token_masks = variants(masker)
    token_masks[0][0] = True  # nothing but special tokens is left
    outputs = masker(token_masks)
    for text, encoding in enumerate(encodings):
        for row, hidden in enumerate(token_masks[text]):
            gone = set(masker.positions[text][hidden].tolist())
            inputs = {k: [x for i, x in enumerate(v) if i not in gone] for k, v in encoding.inputs.items()}
            with torch.no_grad():
                logits = masker.model(**{k: torch.tensor([v]) for k, v in inputs.items()}).logits
            np.testing.assert_allclose(outputs[text][row], logits[0].double().log_softmax(-1).numpy(), atol=5e-6)


def test_equal_inputs_are_asked_about_once():
    model, tokenizer = bert()
    texts = ["dog dog cat", "dog dog cat", "dog cat cat"]
    shapes = []
    handle = model.register_forward_pre_hook(
        lambda m, a, k: shapes.append(tuple(k["input_ids"].shape)), with_kwargs=True
    )
    none, first, second = [[0, 0, 0, 0, 0]], [[1, 0, 0, 0, 0]], [[0, 1, 0, 0, 0]]
    masker, _ = masker_of((model, tokenizer), texts, tokens_per_pass=14)
    assert [len(p) for p in masker.positions] == [5, 5, 7]
    token_masks = [
        np.array(x, dtype=bool) for x in (none + first + none + second, first + none, [[0] * len(masker.positions[2])])
    ]
    outputs = masker(token_masks)
    assert sum(rows for rows, _ in shapes) == len(outputs.log_probabilities) == 4
    assert outputs.rows[0][0] == outputs.rows[0][2] == outputs.rows[1][1]
    assert outputs.rows[0][1] == outputs.rows[1][0] != outputs.rows[0][3]
    assert all(rows * length <= 14 for rows, length in shapes)
    shapes.clear()
    deleter, _ = masker_of((model, tokenizer), texts, replacement="delete")
    assert len(deleter(token_masks).log_probabilities) == 3  # without one dog or without the other is the same text
    handle.remove()


def test_inputs_are_asked_about_in_the_order_in_which_they_come():
    masker, _ = masker_of(bert)
    token_masks = variants(masker, rows=9)
    outputs = masker(token_masks)
    first = np.unique(np.concatenate(outputs.rows), return_index=True)[1]
    assert (np.diff(first) > 0).all()
    np.testing.assert_array_equal(masker(token_masks).log_probabilities, outputs.log_probabilities)


def test_inputs_that_differ_are_told_apart():
    masker, _ = masker_of(bert, ["good dog", "bad dog"])
    n = len(masker.positions[0])
    everything = np.array([[(j >> i) & 1 for i in range(n)] for j in range(1 << n)], dtype=bool)
    outputs = masker([everything, np.ones((1, len(masker.positions[1])), dtype=bool)])
    assert len(outputs.log_probabilities) == len(everything) + (len(masker.positions[1]) != n)


def test_the_report_goes_from_nothing_to_all():
    reports = []
    masker, _ = masker_of(bert, tokens_per_pass=40)
    masker(variants(masker), reports.append)
    assert reports == sorted(reports)
    assert len(reports) > 5
    assert reports[-1] == 1


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
    with pytest.raises(TextError, match="special"):
        Masker.of(model, tokenizer, [encoding, bare], "delete")


@pytest.mark.parametrize("replacement", ["blank", -1, True, None, 2.5])
def test_an_unknown_replacement_is_refused(replacement):
    with pytest.raises(ValueError, match="replacement"):
        masker_of(bert, replacement=replacement)


def test_a_replacement_that_the_tokenizer_lacks_is_refused():
    with pytest.raises(GaflowError, match="mask"):
        masker_of(FAMILIES["albert"], replacement="mask")
    with pytest.raises(GaflowError, match="word embeddings"):
        masker_of(bert, replacement=10**6)


def batches_of(lengths, tokens_per_pass, **padding):
    masker, _ = masker_of(bert, tokens_per_pass=tokens_per_pass)
    masker = replace(masker, padding=replace(masker.padding, **padding))
    return [batch.tolist() for batch in masker.batches(np.array(lengths))]


def test_rows_of_similar_length_run_together_the_longest_first():
    lengths = [2, 5, 4, 5, 1, 2]
    assert batches_of(lengths, 10) == [[1, 3], [2, 0], [5, 4]]
    assert batches_of(lengths, 9) == [[1], [3], [2, 0], [5, 4]]
    assert batches_of(lengths, 1) == [[1], [3], [2], [0], [5], [4]]
    assert batches_of(lengths, 10, left=True) == [[1, 3], [2], [0, 5], [4]]
    assert batches_of(lengths, 100, token=None) == [[1], [3], [2], [0], [5], [4]]


def test_a_text_is_described_by_its_length_and_its_ordinary_tokens():
    masker, encodings = masker_of(bert)
    assert len(masker) == len(TEXTS)
    assert masker.lengths.tolist() == [len(encoding) for encoding in encodings]
    assert masker.sizes.tolist() == [len(encoding) - 2 for encoding in encodings]  # all but [CLS] and [SEP]
    assert [positions.tolist() for positions in masker.positions] == [list(range(1, n + 1)) for n in masker.sizes]
    assert [masks.shape for masks in masker.no_masks(3)] == [(3, n) for n in masker.sizes]
    assert not any(masks.any() for masks in masker.no_masks(3))


@pytest.mark.parametrize(("replacement", "name"), [("pad", "pad"), ("mask", "mask"), (0, "token 0"), (7, "token 7")])
def test_a_replacement_has_the_name_and_the_id_of_its_token(replacement, name):
    masker, _ = masker_of(bert, replacement=replacement)
    tokenizer = bert()[1]
    ids = {"pad": tokenizer.pad_token_id, "mask": tokenizer.mask_token_id}
    assert (masker.replacement, masker.token) == (name, ids.get(replacement, replacement))


def test_deletion_has_no_token():
    masker, _ = masker_of(bert, replacement="delete")
    assert (masker.replacement, masker.token) == ("delete", None)


def test_a_text_without_one_word_is_padded_as_its_batch_is():
    """Rows of different lengths after deletion, in one pass: each as if it ran alone."""
    masker, _ = masker_of(bert, ["this film is good", "bad"], replacement="delete", tokens_per_pass=10**6)
    first, second = masker.sizes
    rows = [np.eye(first, dtype=bool), np.eye(second, dtype=bool)]
    outputs = masker(rows)
    for text, text_rows in enumerate(rows):
        for k, row in enumerate(text_rows):
            alone = masker.no_masks(0)
            alone[text] = row[None]
            np.testing.assert_allclose(outputs[text][k], masker(alone)[text][0], atol=5e-6)
    assert outputs.seconds > 0


@pytest.mark.parametrize(
    ("replacement", "expected"), [("delete", [(1, 6), (1, 5), (2, 4)]), ("pad", [(1, 6), (1, 6), (1, 6), (1, 6)])]
)
def test_passes_are_as_full_as_the_text_without_its_masked_tokens_allows(replacement, expected):
    model, tokenizer = bert()
    masker, _ = masker_of((model, tokenizer), ["this film is good"], replacement=replacement, tokens_per_pass=9)
    shapes = []
    handle = model.register_forward_pre_hook(
        lambda _module, _arguments, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    masker([np.tri(4, 4, -1, dtype=bool)])  # none, one, two and three of its four words
    handle.remove()
    assert shapes == expected


def test_a_short_text_without_tokens_is_not_padded_to_its_old_length():
    model, tokenizer = bert()
    masker, _ = masker_of((model, tokenizer), ["this film is good", "bad film"], replacement="delete")
    shapes = []
    handle = model.register_forward_pre_hook(
        lambda _module, _arguments, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    token_masks = masker.no_masks(0)
    token_masks[1] = np.array([[True, False]])
    masker(token_masks)
    handle.remove()
    assert shapes == [(1, 3)]  # one word and two special tokens


@pytest.mark.parametrize("classes", [[0], [0, 1, 2]])
def test_an_output_that_is_not_finite_is_an_error_also_of_one_class(classes):
    model, tokenizer = bert()
    with torch.no_grad():
        model.classifier.bias[classes] = float("nan")
    masker, _ = masker_of((model, tokenizer))
    with pytest.raises(GaflowError, match="not finite"):
        masker(masker.no_masks(1))


def test_an_accelerator_gets_more_tokens_in_one_pass():
    model, tokenizer = bert()
    on_cpu, _ = masker_of((model, tokenizer))
    elsewhere, _ = masker_of((model.to("meta"), tokenizer))
    assert on_cpu.tokens_per_pass < elsewhere.tokens_per_pass
