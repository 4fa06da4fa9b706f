"""BERT in plain numpy, with relevance and balanced gradients layer by layer, for one text without padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

TINY = 1e-9


def div(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, a / np.where(b == 0, 1, b + TINY))


def linear(x: Any, w: Any, relevance: Any) -> Any:
    plus = np.maximum(x, 0) @ np.maximum(w, 0).T + np.minimum(x, 0) @ np.minimum(w, 0).T
    s = div(relevance, plus)
    return np.maximum(x, 0) * (s @ np.maximum(w, 0)) + np.minimum(x, 0) * (s @ np.minimum(w, 0))


def add(x: Any, y: Any, relevance: Any) -> tuple[Any, Any]:
    s = div(relevance, x + y)
    a, b, total = x * s, y * s, relevance.sum()
    both = abs(a.sum()) + abs(b.sum())
    return a * div(total * abs(a.sum()) / both, a.sum()), b * div(total * abs(b.sum()) / both, b.sum())


def product(x: Any, y: Any, relevance: Any) -> tuple[Any, Any]:
    s = div(relevance, x @ y)
    return x * (s @ y.swapaxes(-1, -2)) / 2, y * (x.swapaxes(-1, -2) @ s) / 2


def norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


class Bert:
    """A BertForSequenceClassification, read from its weights, run on `ids` (t,)."""

    def __init__(self, model: Any, ids: Any) -> None:
        self.w = {name: value.double().numpy() for name, value in model.state_dict().items()}
        self.eps, self.heads = model.config.layer_norm_eps, model.config.num_attention_heads
        word = self.w["bert.embeddings.word_embeddings.weight"][ids]
        position = self.w["bert.embeddings.position_embeddings.weight"][: len(ids)]
        kind = self.w["bert.embeddings.token_type_embeddings.weight"][0]
        self.hidden = [self._norm("bert.embeddings", word + position + kind)]
        self.layers = [self._layer(k) for k in range(model.config.num_hidden_layers)]
        self.pooled = np.tanh(self._apply("bert.pooler.dense", self.hidden[-1][0]))
        self.logits = self._apply("classifier", self.pooled)

    def relevance(self, readout: Any) -> tuple[list[Any], list[Any]]:
        """R of every layer's attention (h, t, t) and of every hidden state (t, d), for `y = readout · logits`."""
        weight = readout @ self.w["classifier.weight"]
        top = linear(self.pooled, weight[None], np.ones(1))
        r = np.zeros_like(self.hidden[-1])
        r[0] = linear(self.hidden[-1][0], self.w["bert.pooler.dense.weight"], top)
        attention, hidden = [], [r]
        for k in reversed(range(len(self.layers))):
            of_attention, r = self._layer_relevance(k, r)
            attention.insert(0, of_attention)
            hidden.insert(0, r)
        return attention, hidden

    def balanced(self, readout: Any, half: bool = True) -> tuple[list[Any], list[Any], list[Any]]:
        """Balanced gradients of attention (h, t, t), hidden states (t, d) and residual sums (t, d)."""
        w, before = self.w, self._apply("bert.pooler.dense", self.hidden[-1][0])
        g = np.zeros_like(self.hidden[-1])
        g[0] = (readout @ w["classifier.weight"] * self.pooled / before) @ w["bert.pooler.dense.weight"]
        attention, hidden, sums = [], [g], []
        for k in reversed(range(len(self.layers))):
            of_attention, of_sum, g = self._layer_balanced(k, g, half)
            attention.insert(0, of_attention)
            sums.insert(0, of_sum)
            hidden.insert(0, g)
        return attention, hidden, sums

    def _layer_balanced(self, k: int, g: Any, half: bool) -> tuple[Any, Any, Any]:
        name, x, s, w = f"bert.encoder.layer.{k}", self.hidden[k], self.layers[k], self.w
        g_fed = self._norm_balanced(f"{name}.output", s["fed"] + s["middle"], g)
        g_inner = g_fed @ w[f"{name}.output.dense.weight"] * s["inner"] / s["before_gelu"]
        g_middle = g_fed + g_inner @ w[f"{name}.intermediate.dense.weight"]
        g_sum = self._norm_balanced(f"{name}.attention.output", s["attended"] + x, g_middle)
        g_context = self._split(g_sum @ w[f"{name}.attention.output.dense.weight"])
        share = 0.5 if half else 1.0
        g_a = share * g_context @ s["v"].swapaxes(1, 2)
        parts = {"value": share * s["a"].swapaxes(1, 2) @ g_context}
        if half:
            g_scores = s["a"] * (g_a - (s["a"] * g_a).sum(-1, keepdims=True)) / math.sqrt(s["q"].shape[-1])
            parts |= {"query": 0.5 * g_scores @ s["key"], "key": 0.5 * g_scores.swapaxes(1, 2) @ s["q"]}
        g_x = g_sum
        for part, g_part in parts.items():
            g_x = g_x + self._join(g_part) @ w[f"{name}.attention.self.{part}.weight"]
        return g_a, g_sum, g_x

    def output_without(self, k: int, token: int) -> Any:
        """The output (t, d) of layer `k` on its usual input, if the values of one token are zero."""
        name, x, s = f"bert.encoder.layer.{k}", self.hidden[k], self.layers[k]
        v = s["v"].copy()
        v[:, token] = 0
        middle = self._norm(f"{name}.attention.output", x + self._attended(k, self._join(s["a"] @ v)))
        inner = gelu(self._apply(f"{name}.intermediate.dense", middle))
        return self._norm(f"{name}.output", middle + self._apply(f"{name}.output.dense", inner))

    def parts_of_attention(self, k: int) -> tuple[Any, Any]:
        """What comes from each token j in the output of the attention block of layer `k` (t, j, d), and that output."""
        name, x, s = f"bert.encoder.layer.{k}", self.hidden[k], self.layers[k]
        norm_name, w = f"{name}.attention.output.LayerNorm", self.w
        by_head = w[f"{name}.attention.output.dense.weight"].reshape(x.shape[1], self.heads, -1)
        parts = np.einsum("hij,hjv,dhv->ijd", s["a"], s["v"], by_head) + np.eye(len(x))[:, :, None] * x
        deviation = np.sqrt((s["attended"] + x).var(-1) + self.eps)[:, None, None]
        return (parts - parts.mean(-1, keepdims=True)) / deviation * w[f"{norm_name}.weight"], s["middle"]

    def _attended(self, k: int, context: Any) -> Any:
        return self._apply(f"bert.encoder.layer.{k}.attention.output.dense", context)

    def _norm_balanced(self, name: str, x: Any, g: Any) -> Any:
        g = g * self.w[f"{name}.LayerNorm.weight"]
        return (g - g.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.eps)

    def _apply(self, name: str, x: Any) -> Any:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def _norm(self, name: str, x: Any) -> Any:
        return norm(x, self.w[f"{name}.LayerNorm.weight"], self.w[f"{name}.LayerNorm.bias"], self.eps)

    def _split(self, x: Any) -> Any:
        return x.reshape(len(x), self.heads, -1).swapaxes(0, 1)

    def _join(self, x: Any) -> Any:
        return x.swapaxes(0, 1).reshape(x.shape[1], -1)

    def _layer(self, k: int) -> dict[str, Any]:
        name, x = f"bert.encoder.layer.{k}", self.hidden[-1]
        q, key, v = (self._split(self._apply(f"{name}.attention.self.{p}", x)) for p in ("query", "key", "value"))
        scores = q @ key.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        a = softmax(scores)
        context = self._join(self._read(k, a, v))
        attended = self._apply(f"{name}.attention.output.dense", context)
        middle = self._norm(f"{name}.attention.output", attended + x)
        before_gelu = self._apply(f"{name}.intermediate.dense", middle)
        inner = gelu(before_gelu)
        fed = self._apply(f"{name}.output.dense", inner)
        self.hidden.append(self._norm(f"{name}.output", fed + middle))
        return {
            "q": q,
            "key": key,
            "v": v,
            "a": a,
            "context": context,
            "attended": attended,
            "middle": middle,
            "before_gelu": before_gelu,
            "inner": inner,
            "fed": fed,
        }

    def _read(self, k: int, a: Any, v: Any) -> Any:
        """What the heads of layer `k` read (h, t, d) through attention `a` (h, t, t)."""
        return a @ v

    def _layer_relevance(self, k: int, r: Any) -> tuple[Any, Any]:
        name, x, s = f"bert.encoder.layer.{k}", self.hidden[k], self.layers[k]
        r_fed, r_middle = add(s["fed"], s["middle"], r)
        r_inner = linear(s["inner"], self.w[f"{name}.output.dense.weight"], r_fed)
        r_middle = r_middle + linear(s["middle"], self.w[f"{name}.intermediate.dense.weight"], r_inner)
        r_attended, r_x = add(s["attended"], x, r_middle)
        r_context = linear(s["context"], self.w[f"{name}.attention.output.dense.weight"], r_attended)
        r_a, r_v = product(s["a"], s["v"], self._split(r_context))
        r_q, r_key = product(s["q"], s["key"].swapaxes(1, 2), r_a)
        for part, r_part in (("query", r_q), ("key", r_key.swapaxes(1, 2)), ("value", r_v)):
            r_x = r_x + linear(x, self.w[f"{name}.attention.self.{part}.weight"], self._join(r_part))
        return r_a, r_x
