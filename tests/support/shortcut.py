"""Classifiers whose reason is known, since their weights are set by hand."""

from types import SimpleNamespace
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from tests.support.models import wordpiece


class Shortcut(torch.nn.Module):
    """Looks for one word and nothing else: positive by 2 logits with it, negative by 2 without."""

    def __init__(self, word, size):
        super().__init__()
        self.config = BertConfig(vocab_size=size, id2label={0: "negative", 1: "positive"})
        self.embedding = torch.nn.Embedding(size, 1)
        with torch.no_grad():
            self.embedding.weight.zero_()
            self.embedding.weight[word] = 1

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, attention_mask=None):
        strongest = (self.embedding(input_ids)[..., 0] * attention_mask).amax(1)
        return SimpleNamespace(logits=torch.stack([torch.zeros_like(strongest), 4 * strongest - 2], 1))


PLAIN = torch.tensor([1.0, -1, 1, -1])
SPEAKING = torch.tensor([1.0, 1, -1, -1])
HEARD = torch.tensor([1.0, -1, -1, 1])


def one_word_bert(positive: Any = "good", negative: Any = "bad") -> tuple[Any, Any]:
    """A BERT of one layer that classifies by two words and nothing else, and its tokenizer; in float64.

    The three vectors above are at right angles and have mean 0 and variance 1, so that layer norms leave them alone.
    All words are PLAIN but two, which are SPEAKING and -SPEAKING. Attention is uniform; its values turn SPEAKING into
    HEARD. With s = (positive - negative words) / (all tokens, special ones included), [CLS] becomes
    (PLAIN + s HEARD) / sqrt(1 + s^2), and the logits are -z and z with z = 3 tanh(8 s / sqrt(1 + s^2)).
    """
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        layer_norm_eps=1e-30,
        id2label={0: "negative", 1: "positive"},
    )
    model: Any = BertForSequenceClassification(config).double().eval()
    weights = dict(model.named_parameters())
    words = weights["bert.embeddings.word_embeddings.weight"]
    attention = "bert.encoder.layer.0.attention"
    with torch.no_grad():
        for name, value in weights.items():
            value.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        words[:] = PLAIN
        words[tokenizer.convert_tokens_to_ids(positive)] = SPEAKING.double()
        words[tokenizer.convert_tokens_to_ids(negative)] = -SPEAKING.double()
        weights[f"{attention}.self.value.weight"][:] = torch.outer(HEARD, SPEAKING) / 4
        weights[f"{attention}.output.dense.weight"][:] = torch.eye(4)
        weights["bert.pooler.dense.weight"][0] = 8 * HEARD / 4
        weights["classifier.weight"][:, 0] = torch.tensor([-3.0, 3.0])
    return model, tokenizer
