"""What a user wants to have evaluated, checked before anything is computed.

The convention this file owns: scores are (n,) arrays over the ordinary tokens of a text, whoever computed them. Scores
of other pieces of the text than the model's tokens (words, or another tokenizer's) are spread over the tokens by
characters: a token gets the fraction of each piece's score that it covers of the piece.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gaflow.arguments import distinct, is_whole_number, one_of, open_fraction, plain_number, whole_number
from gaflow.data.sources import open_data
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, TargetError, UnsupportedModelError
from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.masking import Condition
from gaflow.evaluation.metrics import BINS
from gaflow.evaluation.soft_masking import Soft
from gaflow.evaluation.tokens import ScoresByMethod, check_counts, finite_numbers, ordinary_values, span_overlap
from gaflow.evaluation.units import UNITS, MaskingUnit
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.inputs.columns import ArrowFrame, all_items, is_frame
from gaflow.inputs.encoding import Encoding, Text, encode
from gaflow.methods import METHODS, Method, find_method
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import parse_all

# By name a list with one entry per text: an Attribution, anything with scores and offsets, or an array of scores.
GivenScores = Mapping[str, Sequence[object]]

ORDERS = {"top": ("top",), "bottom": ("bottom",), "both": ("top", "bottom")}
DEFAULT_LEVELS = tuple(range(10, 100, 10))  # per cent of the ordinary tokens


@dataclass(frozen=True)
class EvaluationSettings:
    """How texts are masked and measured."""

    replacement: str | int = "pad"  # "pad", "mask", "unk", a token id, or "delete"
    order: str = "both"  # of ORDERS
    levels: tuple[int, ...] = DEFAULT_LEVELS
    eraser: bool = True  # comprehensiveness and sufficiency too
    bounds: Bounds | None = None  # Normalized AOPC too
    soft: Soft | None = None  # Soft-NS and Soft-NC too
    batch_size: int = 16  # of texts to explain
    tokens_per_pass: int | None = None  # of masked texts; None: what suits the device
    truncation: bool = False
    seed: int = 0  # of the control
    unit: MaskingUnit = "token"  # what is masked together
    max_share: float | None = None  # of the tokens or words, masked at once; None: as many as the level says
    draws: int = 10  # of random parts of what a level would mask, where that is more than `max_share`

    def __post_init__(self) -> None:
        one_of("order", self.order, ORDERS)
        one_of("unit", self.unit, UNITS)
        whole_number("batch_size", self.batch_size)
        whole_number("draws", self.draws)
        if self.max_share is not None:
            open_fraction("max_share", self.max_share)
            if self.bounds is not None:
                message = " measures all orders of masking, which have no limit; leave out "
                raise ArgumentError(Argument("bounds", True), message, Argument("max_share"))
        object.__setattr__(self, "levels", check_levels(self.levels))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every (order, per cent) to mask."""
        conditions: list[Condition] = list(product(ORDERS[self.order], self.levels))
        if self.eraser:
            conditions += product(("top", "keep"), BINS)
        return tuple(dict.fromkeys(conditions))


def check_levels(levels: Iterable[object]) -> tuple[int, ...]:
    """Different whole per cents, of which NumPy's numbers become Python's."""
    items = [plain_number(level) for level in levels]
    per_cents = [level for level in items if is_whole_number(level) and 1 <= level <= 100]
    if not per_cents or len(set(per_cents)) < len(items):
        message = f" must be different whole per cents from 1 to 100, not {reprlib.repr(items)}"
        raise ArgumentError(Argument("levels"), message)
    return tuple(per_cents)


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


def encode_texts(explainer: Explainer, texts: Sequence[Text] | ArrowFrame, truncation: bool) -> list[Encoding]:
    """Encodings of all texts."""
    if is_frame(texts):
        texts = [row_text for row_text, _, _ in open_data(texts).read()]
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ArgumentTypeError(Argument("texts"), f" must be a list of texts, not {type(texts).__name__}")
    items = all_items(texts)
    if not items:
        raise ArgumentError(Argument("texts"), " is empty; pass at least one text")
    return encode(explainer.tokenizer, items, limit=explainer.runner.limit, truncation=truncation)


def parse_labels(head: ClassificationHead, labels: Sequence[object] | None, count: int) -> np.ndarray | None:
    """The true classes (n,), from indices or names; None if there are none."""
    if labels is None:
        return None
    items = all_items(labels)
    if len(items) != count:
        message = f" must be a list with one label for each of the {count} texts, not {len(items)}"
        raise ArgumentError(Argument("labels"), message)
    classes = np.empty(count, dtype=np.int64)
    for k, item in enumerate(items):
        try:
            index = head.parse(item)
        except (TypeError, TargetError):
            index = None
        if not isinstance(index, int):
            names = ", ".join(f"{i} {name!r}" for i, name in enumerate(head.labels[:20]))
            message = f"[{k}] is {item!r}, which is no class of the model; its classes are {names}"
            raise ArgumentError(Argument("labels"), message)
        classes[k] = index
    return classes


def parse_methods(methods: Sequence[AnyMethod] | None, scores: GivenScores | None) -> dict[str, Method]:
    """The methods to compute, by name."""
    if methods is None:
        methods = list(METHODS) if scores is None else []
    resolved = [find_method(method, "methods") for method in methods]
    names = [method.name for method in resolved]
    distinct("methods", [*names, *(scores or {})], "results are stored by name")
    return dict(zip(names, resolved, strict=True))


def parse_targets(head: ClassificationHead, target: Any, scores: GivenScores | None, count: int) -> list[int | None]:
    """The class (n,) that `target` or else the Attributions among `scores` explain; None where neither names one."""
    targets = parse_all(head, target, count)
    check_counts(scores, count)
    for name, items in (scores or {}).items():
        for k, item in enumerate(items):
            explained = head.parse(getattr(item, "target", None))
            if targets[k] is None:
                targets[k] = explained
            elif explained is not None and explained != targets[k]:
                raise ArgumentError(
                    Argument("scores"),
                    f"[{name!r}][{k}] explains class {explained}, but class {targets[k]} is to be measured; "
                    "all methods must explain the same class of a text",
                )
    classes = []
    for k, requested in enumerate(targets):
        if isinstance(requested, tuple):
            message = f" of texts[{k}] is a contrast, which has no probability of its own; pass one class"
            raise TargetError(Argument("target"), message)
        classes.append(requested)
    return classes


def parse_scores(scores: GivenScores | None, encodings: Sequence[Encoding]) -> ScoresByMethod:
    """Scores from elsewhere, as (n,) arrays over the ordinary tokens."""
    check_counts(scores, len(encodings))
    by_method = {}
    for name, items in (scores or {}).items():
        arrays = []
        for k, (item, encoding) in enumerate(zip(items, encodings, strict=True)):
            arrays.append(_ordinary_scores(item, encoding, f"[{name!r}][{k}]"))
        by_method[str(name)] = arrays
    return by_method


def _ordinary_scores(item: Any, encoding: Encoding, entry: str) -> np.ndarray:
    """The scores of one text (n,); `entry` is the place in `scores` that errors name."""
    values = finite_numbers(getattr(item, "scores", item))
    if values is None or values.ndim != 1:
        raise ArgumentError(Argument("scores"), f"{entry} must be a list of finite numbers, one per token")
    text = getattr(item, "text", encoding.text)
    if text != encoding.text or getattr(item, "text_pair", encoding.text_pair) != encoding.text_pair:
        message = f"{entry} is about another text: {reprlib.repr(text)}, not {reprlib.repr(encoding.text)}"
        raise ArgumentError(Argument("scores"), message)
    ordinary = np.array(encoding.segments) >= 0
    tokens = getattr(item, "tokens", None)
    if tokens is not None and tuple(tokens) == encoding.tokens:
        return values[ordinary]
    if getattr(item, "offsets", None) is not None:
        return _spread_over_tokens(values, item, encoding)[ordinary]
    return ordinary_values(values, ordinary, "scores", entry, "something with offsets")


def _spread_over_tokens(values: np.ndarray, item: Any, encoding: Encoding) -> np.ndarray:
    """Scores (t,) of the model's tokens from scores of other pieces of the same text."""
    pieces = np.array(item.offsets).reshape(-1, 2)
    segments = getattr(item, "segments", None)
    if segments is None:
        segments = [0] * len(pieces)
    piece_segments = np.array(segments)
    token_segments = np.array(encoding.segments)[:, None]
    same_segment = (token_segments == piece_segments) & (piece_segments >= 0)
    overlap = span_overlap(np.array(encoding.offsets), pieces)
    covered = np.where(same_segment, overlap.clip(min=0), 0)
    lengths = np.diff(pieces)[:, 0].clip(min=1)
    return (covered / lengths) @ values
