"""What a user asks to be evaluated, checked before anything is computed.

The convention this file owns: scores are (n,) arrays over the ordinary tokens of a text, whoever computed them. Scores
of other pieces of the text than the model's tokens (words, or another tokenizer's) are spread over the tokens by
characters: a token gets of every piece the part of it that it covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gaflow.errors import TargetError, UnsupportedModelError
from gaflow.evaluation.metrics import BINS
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.inputs.encoding import Encoding, check_text, encode
from gaflow.methods import METHODS, Method, find_method
from gaflow.tasks.targets import ClassificationHead, parse_all

__all__ = ["encode_all", "methods_of", "parse_conditions", "parse_labels", "parse_scores", "softmax_head", "targets_of"]


def softmax_head(explainer: Explainer) -> ClassificationHead:
    """The model's head, if its classes exclude each other."""
    head = explainer.runner.class_head("evaluate")
    if head.link != "softmax" or len(head.labels) < 2:
        kind = {"none": "a regression", "sigmoid": "a multi-label or one-logit"}.get(head.link, "a one-class")
        raise UnsupportedModelError(
            f"evaluate measures the probability of one class among several, but {type(explainer.model).__name__} has "
            f"{kind} head; use a classifier whose config has problem_type 'single_label_classification'"
        )
    return head


def encode_all(explainer: Explainer, texts: Any, truncation: bool) -> list[Encoding]:
    """Encodings of all texts."""
    if isinstance(texts, str | tuple):
        raise TypeError(f"texts must be a list of texts, not {type(texts).__name__}")
    items = list(texts)
    if not items:
        raise ValueError("texts is empty; give at least one text")
    names = [f"texts[{k}]" for k in range(len(items))]
    checked = [check_text(item, name) for item, name in zip(items, names, strict=True)]
    return encode(explainer.tokenizer, checked, limit=explainer.runner.limit, truncation=truncation, names=names)


def parse_labels(head: ClassificationHead, labels: Any, count: int) -> np.ndarray | None:
    """The right classes (n,), from indices or names; None if there are none."""
    if labels is None:
        return None
    items = list(labels)
    if isinstance(labels, str) or len(items) != count:
        raise ValueError(f"labels must be a list with one label for each of the {count} texts, not {len(items)}")
    found = np.empty(count, dtype=np.int64)
    for k, item in enumerate(items):
        try:
            index = None if item is None else head.parse(item)
        except (TypeError, TargetError):
            index = None
        if not isinstance(index, int):
            raise ValueError(
                f"labels[{k}] is {item!r}, which is no class of the model; its classes are "
                f"{', '.join(f'{i} {name!r}' for i, name in enumerate(head.labels[:20]))}"
            )
        found[k] = index
    return found


def parse_conditions(order: str, levels: Sequence[int], eraser: bool) -> tuple[tuple[str, int], ...]:
    """Every (order, per cent) that is to be masked."""
    if order not in ("top", "bottom", "both"):
        raise ValueError(f"order must be 'top', 'bottom' or 'both', not {order!r}")
    whole = [isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= 100 for k in levels]
    if not whole or not all(whole) or len(set(levels)) < len(whole):
        raise ValueError(f"levels must be different whole per cents from 1 to 100, not {list(levels)!r}")
    orders = ("top", "bottom") if order == "both" else (order,)
    wanted = [(o, k) for o in orders for k in levels]
    if eraser:
        wanted += [(o, k) for o in ("top", "keep") for k in BINS]
    return tuple(dict.fromkeys(wanted))


def methods_of(methods: Sequence[AnyMethod] | None, given: Mapping[str, Any] | None) -> dict[str, Method]:
    """The methods to compute, by name."""
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of methods, not the string {methods!r}")
    if methods is None:
        methods = list(METHODS) if given is None else []
    chosen = [find_method(m) for m in methods]
    names = [*(m.name for m in chosen), *(given or {})]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ValueError(f"methods named {', '.join(twice)} are given twice; results are told apart by name")
    return {m.name: m for m in chosen}


def targets_of(
    head: ClassificationHead, target: Any, given: Mapping[str, Sequence[Any]], base: np.ndarray
) -> np.ndarray:
    """The class to measure for every text (n,): as told, else as the attributions say, else the predicted one."""
    told = parse_all(head, target, len(base))
    for name, items in given.items():
        for k, item in enumerate(items):
            aim = getattr(item, "target", None)
            if told[k] is None:
                told[k] = aim
            elif aim is not None and aim != told[k]:
                raise ValueError(
                    f"scores[{name!r}][{k}] explains {aim}, but {told[k]} is to be measured; "
                    "all methods must explain the same class of a text"
                )
    for k, aim in enumerate(told):
        if isinstance(aim, tuple):
            raise TargetError(f"texts[{k}]: a contrast has no probability of its own; give one class as target")
        if aim is not None and not 0 <= aim < len(head.labels):
            raise TargetError(f"texts[{k}]: target {aim} is out of range: the model has {len(head.labels)} classes")
    predicted = base.argmax(1)
    return np.array([p if t is None else t for p, t in zip(predicted, told, strict=True)])


def parse_scores(
    given: Mapping[str, Sequence[Any]] | None, encodings: Sequence[Encoding]
) -> dict[str, list[np.ndarray]]:
    """Scores from elsewhere, as (n,) arrays over the ordinary tokens."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"scores must be a dict of method names to lists, not {type(given).__name__}")
    found = {}
    for name, items in (given or {}).items():
        if len(items) != len(encodings):
            raise ValueError(f"scores[{name!r}] has {len(items)} entries but there are {len(encodings)} texts")
        found[str(name)] = [
            _scores(item, encoding, f"scores[{name!r}][{k}]")
            for k, (item, encoding) in enumerate(zip(items, encodings, strict=True))
        ]
    return found


def _scores(item: Any, encoding: Encoding, name: str) -> np.ndarray:
    ordinary = np.array(encoding.segments) >= 0
    values = np.asarray(getattr(item, "scores", item), dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a list of finite numbers, one per token")
    text = getattr(item, "text", encoding.text)
    if text != encoding.text or getattr(item, "text_pair", encoding.text_pair) != encoding.text_pair:
        raise ValueError(f"{name} is about another text: {_short(text)}, not {_short(encoding.text)}")
    offsets, tokens = getattr(item, "offsets", None), getattr(item, "tokens", None)
    if tokens is not None and tuple(tokens) == encoding.tokens:
        return values[ordinary]
    if offsets is not None:
        return _spread(values, item, encoding)[ordinary]
    if len(values) not in (len(encoding), int(ordinary.sum())):
        raise ValueError(
            f"{name} has {len(values)} scores, but the text has {len(encoding)} tokens, {int(ordinary.sum())} of them "
            "ordinary; give one score for each, or something with offsets"
        )
    return values if len(values) == ordinary.sum() else values[ordinary]


def _spread(values: np.ndarray, item: Any, encoding: Encoding) -> np.ndarray:
    """Scores (t,) of the model's tokens from scores of other pieces of the same text."""
    spans = np.array(item.offsets).reshape(-1, 2)
    given = getattr(item, "segments", None)
    segments = np.zeros(len(spans), dtype=np.int64) if given is None else np.array(given)
    mine = np.array(encoding.offsets)
    both = np.minimum(mine[:, None, 1], spans[None, :, 1]) - np.maximum(mine[:, None, 0], spans[None, :, 0])
    same = (np.array(encoding.segments)[:, None] == segments) & (segments >= 0)
    share = np.where(same, both.clip(min=0), 0) / np.maximum(spans[:, 1] - spans[:, 0], 1)
    return share @ values


def _short(text: Any) -> str:
    return repr(text if len(str(text)) <= 40 else f"{str(text)[:37]}...")
