"""The similarity of two texts: what each gets of it, side by side, and which words match."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import gaflow
from gaflow.errors import ArgumentError, ArgumentTypeError, GaflowError, TargetError, TextError, UnsupportedModelError
from gaflow.explainer.many import explain_many, prepare_each
from gaflow.methods import METHODS, FlowMethod
from tests.support.task_models import sentence_encoder

PAIR = ("although this dog is not cute, it is very smart.", "a smart dog")


@cache
def explainer(pooling="mean") -> Any:
    model, tokenizer = sentence_encoder(pooling)
    return gaflow.Explainer(model.double(), tokenizer)


def embedding(ids):
    """The mean of the hidden states, from a plain call of the encoder."""
    with torch.no_grad():
        tokens = torch.tensor([ids])
        hidden = explainer().model.encoder(tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
    return hidden[0].mean(0)


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


def test_occlusion_gives_each_token_half_of_what_the_similarity_loses_without_it():
    tokenizer = explainer().tokenizer
    ids = [tokenizer(text)["input_ids"] for text in PAIR]
    att = explainer()(PAIR, "occlusion")
    whole_texts = cosine(*map(embedding, ids))
    assert att.output == pytest.approx(whole_texts)
    expected = []
    for number, text_ids in enumerate(ids):
        fixed = embedding(ids[1 - number])
        for k, token in enumerate(text_ids):
            changed = [*text_ids]
            if token not in tokenizer.all_special_ids:
                changed[k] = tokenizer.pad_token_id
            expected.append((whole_texts - cosine(embedding(changed), fixed)) / 2)
    assert att.scores == pytest.approx(np.array(expected), abs=1e-9)


def test_balanced_gradients_of_a_model_without_biases_add_up_to_the_similarity():
    model, tokenizer = sentence_encoder()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
    subject: Any = gaflow.Explainer(model.double(), tokenizer)
    for target in ("cosine", "dot"):
        method = FlowMethod(preset="relevance_flow", gradients="balanced_cp")
        att = subject(PAIR, method, target)
        assert abs(att.diagnostics["left_to_biases"]) <= 1e-9 * abs(att.output)
        lrp = subject(PAIR, "attnlrp", target)
        first = len(tokenizer(PAIR[0])["input_ids"])
        assert np.isfinite(lrp.scores[:first]).all()


def test_the_flow_of_a_pair_is_that_of_both_texts_side_by_side():
    att = explainer()(PAIR, "peeled_flow")
    n = len(explainer().tokenizer(PAIR[0])["input_ids"])
    for flow in (att.flow, att.flow_against):
        assert flow is not None
        assert flow.capacity is not None
        for tensor in (flow.edges, flow.capacity):
            assert (tensor[..., :n, n:] == 0).all()
            assert (tensor[..., n:, :n] == 0).all()
        flow.check_possible()
    assert att.flow is not None
    assert att.flow_against is not None
    through = att.flow.through() - att.flow_against.through()
    assert att.layers == pytest.approx(through[0].numpy())
    assert att.layers.sum(1) == pytest.approx(att.scores.sum())
    pytest.importorskip("ortools")
    assert gaflow.min_cut(att.flow).value == pytest.approx(float(att.flow.value), rel=1e-4)


def test_the_texts_can_be_exchanged():
    forth = explainer()(PAIR)
    back = explainer()(PAIR[::-1])
    n = len(explainer().tokenizer(PAIR[0])["input_ids"])
    assert forth.output == pytest.approx(back.output)
    assert forth.scores == pytest.approx(np.concatenate([back.scores[-n:], back.scores[:-n]]), abs=1e-9)
    assert forth.token_matches == pytest.approx(back.token_matches.T)


@pytest.mark.parametrize("pooling", ["mean", "max", "weightedmean"])
@pytest.mark.parametrize("target", ["cosine", "dot"])
def test_token_matches_add_up_to_the_similarity(pooling, target):
    att = explainer(pooling)(PAIR, "agf", target)
    assert att.token_matches is not None
    assert att.token_matches.sum() == pytest.approx(att.output)


def test_token_matches_are_products_of_hidden_states():
    tokenizer = explainer().tokenizer
    hidden = []
    for text in PAIR:
        with torch.no_grad():
            states = explainer().model.encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        hidden.append(states.numpy())
    a, b = hidden
    norms = np.linalg.norm(a.mean(0)) * np.linalg.norm(b.mean(0))
    expected = a @ b.T / (len(a) * len(b) * norms)
    assert explainer()(PAIR, "agf").token_matches == pytest.approx(expected)


def test_matches_of_words_are_sums_over_their_tokens():
    att = explainer()(PAIR, "agf")
    table = att.matches()
    words = att.words()
    first = len(att.token_matches)
    assert len(table) == sum(w.segment == 0 for w in words) * sum(w.segment == 1 for w in words)
    assert (table["score"].diff().dropna() <= 0).all()
    for row in table.itertuples():
        tokens = next(w.tokens for w in words if (w.segment, w.start) == (0, row.start))
        others = next(w.tokens for w in words if (w.segment, w.start) == (1, row.pair_start))
        expected = sum(att.token_matches[i, j - first] for i in tokens for j in others)
        assert row.score == pytest.approx(expected)


def test_without_a_sum_over_tokens_there_are_no_matches():
    att = explainer("cls")(PAIR, "agf")
    assert att.token_matches is None
    with pytest.raises(GaflowError, match="mean pooling"):
        att.matches()
    assert 'class="matches"' not in att.to_html()


def test_matches_are_stored_and_checked(tmp_path):
    att = explainer()(PAIR, "agf")
    for name in ("pair.safetensors", "pair.json"):
        att.save(tmp_path / name)
        again: Any = gaflow.load(tmp_path / name)
        assert again == att
        assert np.array_equal(again.token_matches, att.token_matches)
    for matches in (np.zeros((2, 2)), np.full_like(att.token_matches, np.nan), att.token_matches.T):
        with pytest.raises(ArgumentError, match="token_matches"):
            replace(att, token_matches=matches)


def test_pages_and_figures_show_the_matches_and_escape_words():
    att = explainer()(("<b>dog</b> & film", "a <script>dog</script>"), "agf")
    page = att.to_html()
    assert page.count('<div class="matches">') == 1
    assert "<script>" not in page
    assert "&lt;" in page
    rows, columns = (sum(word.segment == k for word in att.words()) for k in (0, 1))
    table = page.partition('<div class="matches">')[2].partition("</table>")[0]
    assert table.count("<tr>") == rows + 1
    assert table.count('<th scope="col">') == columns
    texts = [text.get_text() for text in att.plot_matches().axes[0].texts]
    assert texts.count("dog") == 2


@pytest.mark.parametrize("text", ["dog", ("a", "b", "c"), (("a", "b"), "c"), ("a", 3)])
def test_a_similarity_is_that_of_two_strings(text):
    with pytest.raises((ArgumentTypeError, GaflowError), match="text"):
        explainer()(text)


def test_an_empty_text_is_named():
    with pytest.raises(TextError, match=r"texts\[1\]\[0\]"):
        explainer()([PAIR, (" ", "dog")])


def test_a_target_is_a_measure():
    with pytest.raises(TargetError, match="cosine, dot"):
        explainer()(PAIR, target="positive")


def test_long_texts_are_truncated_one_by_one_and_not_read_in_windows():
    long = "dog " * 100
    with pytest.raises(TextError, match=r"text\[0\]"):
        explainer()((long, "dog"))
    att = explainer()((long, "dog"), "agf", truncation=True)
    assert att.truncated
    assert len(att.tokens) == 64 + 3
    with pytest.raises(UnsupportedModelError, match="windows"):
        explainer()((long, "dog"), windows=True)


def test_the_default_method_is_the_leading_one():
    assert explainer().default.name == "peeled_flow"


def test_a_batch_of_pairs_gives_what_single_pairs_give():
    pairs = [PAIR, ("dog", "this dog is not cute, although it is very very smart."), ("a cute dog", "smart")]
    for method in ("agf", "attcat", "relevance_flow", "peeled_flow", "occlusion", "ig"):
        together = explainer()(pairs, method, batch_size=8)
        for pair, att in zip(pairs, together, strict=True):
            alone = explainer()(pair, method)
            assert att.output == pytest.approx(alone.output, rel=1e-9)
            assert att.scores == pytest.approx(alone.scores, rel=1e-6, abs=1e-9)


def test_scores_of_equal_texts_that_are_only_rounding_errors_are_flagged():
    equal = (PAIR[0], PAIR[0])
    for method in ("agf", "attcat", "grads"):
        assert "warning" in explainer()(equal, method).diagnostics
        assert "warning" not in explainer()(equal, method, "dot").diagnostics
        assert "warning" not in explainer()(PAIR, method).diagnostics
    assert "warning" not in explainer()(equal, "occlusion").diagnostics


def test_a_pair_has_the_same_scores_whichever_pairs_are_done_already():
    runner = explainer().runner
    words = ["a", "good", "film", "is", "not", "bad", "at", "all", "said", "the", "dog"]
    pairs = [(" ".join(words[: k % 7 + 1]), " ".join(words[k % 5 :])) for k in range(9)]
    prepared = prepare_each(runner, pairs, None)
    methods = [METHODS["agf"]]

    def scores(done) -> dict[int, Any]:
        results = explain_many(runner, prepared, methods, batch_size=4, on_error="collect", done=done)
        attributions: dict[int, Any] = {of_text.index: of_text.by_method["agf"] for of_text in results}
        return {index: attribution.scores for index, attribution in attributions.items()}

    everything = scores(done=())
    rest = scores(done=frozenset(range(0, 9, 2)))
    assert sorted(rest) == [1, 3, 5, 7]
    for index, values in rest.items():
        np.testing.assert_array_equal(values, everything[index])
