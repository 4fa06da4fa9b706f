import pytest
import torch
from torch import nn

from gaflow.errors import GaflowError, UnsupportedModelError
from gaflow.inputs.batch import collate, neutral_tokens
from gaflow.inputs.encoding import encode
from gaflow.methods.token_removal import TokenRemoval
from gaflow.models.limits import padding_of
from gaflow.models.tracing import TracedModel
from tests.support.models import SENTENCE, bert, gpt2
from tests.support.tracing import logit_terms, state

SHORT = "this dog is very smart"


def ask(texts=(SENTENCE, SHORT), build=bert, **changes):
    model, tokenizer = build(**changes)
    padding = padding_of(model, tokenizer)
    encodings = encode(tokenizer, texts)
    batch = collate(encodings, padding, neutral=neutral_tokens(tokenizer, padding))
    return TracedModel(model.double(), batch, logit_terms(batch, 1))


def subset(text, *absent):
    vector = text.uniform_inclusion(1.0)
    vector[0, list(absent)] = 0
    return vector


def test_a_removed_token_is_padding_written_in():
    question = ask()
    text = TokenRemoval(question, 1, None, None)
    ids = question.batch.inputs["input_ids"][1:2, :7].clone()
    ids[0, [1, 4]] = 0
    with torch.no_grad():
        expected = question.model(ids).logits[0, 1]
        assert torch.allclose(text(subset(text, 0, 3))[0], expected, rtol=1e-12, atol=0)
        unmasked = question.model(question.batch.inputs["input_ids"][1:2, :7]).logits[0, 1]
        assert torch.equal(text(text.uniform_inclusion(1.0))[0], unmasked)
    assert len(text) == 5


def test_gradients_are_those_of_finite_differences():
    text = TokenRemoval(ask(), 1, "mask", None)
    point = text.uniform_inclusion(0.4).requires_grad_()
    (gradient,) = torch.autograd.grad(text(point).sum(), point)
    for k in range(len(text)):
        step = torch.zeros_like(point)
        step[0, k] = 1e-5
        with torch.no_grad():
            slope = (text(point + step) - text(point - step))[0] / 2e-5
        assert slope.item() == pytest.approx(gradient[0, k].item(), rel=1e-5, abs=1e-8)


def test_values_are_in_order_and_each_different_one_is_computed_once():
    text = TokenRemoval(ask(), 0, None, 2)
    rows, reported = [], []
    handle = text.traced_model.model.register_forward_hook(lambda module, args, output: rows.append(len(output.logits)))
    vectors = torch.cat([subset(text, 1), subset(text), subset(text, 1), subset(text, 2), subset(text)])
    outputs = text.outputs(vectors, reported.append)
    handle.remove()
    assert rows == [2, 1]
    assert reported == [pytest.approx(2 / 3), 1]
    assert not outputs.requires_grad
    with torch.no_grad():
        for vector, value in zip(vectors, outputs, strict=True):
            assert text(vector[None])[0].item() == pytest.approx(value.item(), rel=1e-12)


def test_nothing_of_the_model_is_changed():
    question = ask()
    before = state(question.model)
    text = TokenRemoval(question, 0, None, None)
    text(text.uniform_inclusion(0.5))
    assert state(question.model) == before


def test_as_many_texts_go_in_one_pass_as_their_length_allows():
    assert TokenRemoval(ask(), 1, None, None).batch_size == 4096 // 7
    assert TokenRemoval(ask(), 1, None, 3).batch_size == 3
    long = ask(["dog " * 400], max_position_embeddings=512)
    assert TokenRemoval(long, 0, None, None).batch_size == (1 << 19) // 402**2
    alone = ask([SHORT], gpt2, pad_token_id=None)  # which takes no more than one text without a padding token
    assert TokenRemoval(alone, 0, None, 8).batch_size == 1


def test_a_replacement_without_an_embedding_is_refused():
    with pytest.raises(GaflowError, match=r"'token 9999'.*9999.* 0 to"):
        TokenRemoval(ask(), 0, 9999, None)
    traced_model = ask()
    vocabulary = bert()[0].config.vocab_size
    with pytest.raises(GaflowError, match=str(vocabulary)):
        TokenRemoval(traced_model, 0, vocabulary, None)
    assert TokenRemoval(traced_model, 0, vocabulary - 1, None).replacement == f"token {vocabulary - 1}"


class Odd(nn.Module):
    """A model whose use of its word embeddings `read` decides."""

    def __init__(self, read):
        super().__init__()
        self.embedding = nn.Embedding(200, 4, dtype=torch.float64)
        self.read = read

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids):
        return type("Output", (), {"logits": self.read(self.embedding, input_ids).sum(1)})


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda embedding, ids: embedding(ids) + embedding(ids), "more than once"),
        (lambda embedding, ids: embedding(ids[:, :2]), "not token by token"),
        (lambda embedding, ids: embedding.weight[ids], "word embeddings"),
    ],
)
def test_a_model_whose_words_cannot_be_replaced_is_refused_and_left_as_found(read, message):
    question = ask()
    odd = TracedModel(Odd(read), question.batch, question.terms)
    text = TokenRemoval(odd, 0, None, None)
    with pytest.raises(UnsupportedModelError, match=message):
        text(text.uniform_inclusion(0.5))
    assert not odd.model.embedding._forward_hooks  # type: ignore[union-attr]


def test_a_model_without_word_embeddings_is_refused():
    question = ask()
    with pytest.raises(UnsupportedModelError, match=r"Linear.*word embeddings"):
        TokenRemoval(TracedModel(nn.Linear(2, 2), question.batch, question.terms), 0, None, None)


def test_a_model_whose_word_embeddings_are_no_tensor_is_refused():
    question = ask()
    model = Odd(lambda embedding, ids: embedding(ids)[0])
    model.embedding.register_forward_hook(lambda _module, _given, output: (output, 1.0))  # as quantised embeddings give
    odd = TracedModel(model, question.batch, question.terms)
    with pytest.raises(UnsupportedModelError, match=r"Odd.*word embeddings"):
        TokenRemoval(odd, 0, None, None)
    with pytest.raises(UnsupportedModelError, match="not token by token"):
        odd.output([0], embeddings=torch.zeros(1, question.batch.mask.shape[1], 4).double())
    assert len(model.embedding._forward_hooks) == 1
