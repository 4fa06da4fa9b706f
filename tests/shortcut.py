"""A classifier whose reason is known, since its weights are set by hand."""

from types import SimpleNamespace

import torch
from transformers import BertConfig


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
        seen = (self.embedding(input_ids)[..., 0] * attention_mask).amax(1)
        return SimpleNamespace(logits=torch.stack([torch.zeros_like(seen), 4 * seen - 2], 1))
