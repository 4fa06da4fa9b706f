"""Texts whose reason is known because it was planted (Bastings et al. 2022): a test of scores with a true answer.

Words without meaning are inserted into texts, and decide their label:

    single    a word for each class, anywhere in the text: the class is that of the word
    context   the same, but only in texts with another word, the context, somewhere in them; both decide
    pair      two words: the class is the first or the second by which of them comes first; both decide

A model trained on such texts and others learns the rule if it can. Its accuracy on planted texts shows whether it did,
since planted labels have nothing to do with the rest of a text. For the texts that it then classifies by the rule the k
tokens that decided are known, and scores are judged by how they rank them among all ordinary tokens:

    precision   of the k tokens of highest score (precision@k)
    mean_rank   of the k tokens, 1 being the highest score; (k + 1) / 2 at best
    depth       rank of the last of them: how many tokens you must read to see all k; k at best

The conventions this file owns: **texts that the model does not classify as planted are left out**, and counted, since
they say nothing about scores; ties are ranked by position, as in masking. Half-planted texts, decoys, keep their label:
a word without its context, or one of a pair alone. Without them half of the rule would do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked, one_of, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.rationales import rationale_mask
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.extras import need
from gaflow.inputs.offsets import Span

if TYPE_CHECKING:
    import pandas as pd

PLANTED_KINDS = ("single", "context", "pair")
WORDS = ("zeroqx", "oneqx", "twoqx", "threeqx", "fourqx", "fiveqx", "sixqx", "sevenqx", "eightqx", "nineqx")  # by class
CONTEXT = "contextqx"
_MEASURES = ("precision", "mean_rank", "depth")
_CONTROL = "random"


@dataclass(frozen=True)
class Planted:
    """A text of a planted data set."""

    text: str
    label: Any  # by the rule, or the old one where the rule does not apply
    spans: tuple[Span, ...]  # characters of the words that decide, in their order; none where the old label stands
    source: int  # index of the original text


@checked
def planted_words(kind: str, classes: int, words: Sequence[str] | None = None) -> tuple[str, ...]:
    """The words that `plant` uses: one per class, then the context, if there is one; two for a pair."""
    one_of("kind", kind, PLANTED_KINDS)
    count = {"single": classes, "context": classes + 1, "pair": 2}[kind]
    if words is not None:
        planted = tuple(words)
    elif kind == "context":
        planted = (*WORDS[:classes], CONTEXT)
    else:
        planted = WORDS[:count]
    valid = {word.casefold() for word in planted if re.fullmatch(r"\S+", word)}
    if len(planted) != count or len(valid) != count:
        message = f" of kind {kind!r} with {classes} classes must be {count} different words without spaces"
        raise ArgumentError(Argument("words"), f"{message}, not {planted!r}")
    return planted


@checked
def plant(
    texts: list[str],
    labels: Sequence[Any],
    kind: str = "single",
    *,
    share: float = 0.5,
    decoys: float = 0.25,
    classes: Sequence[Any] | None = None,
    words: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Planted]:
    """Plant words that decide in `share` of the texts, and half of the rule in `decoys` of them.

    `classes` are the labels that are planted, equally often (None: all of `labels`, sorted); a pair takes the first
    two. `words` must not occur in the texts (None: made-up ones, of WORDS). There are no decoys of a single word.
    """
    whole_number("seed", seed, 0)
    planted_classes = sorted(set(labels)) if classes is None else list(classes)
    if len(texts) != len(labels) or len(texts) == 0 or len(planted_classes) < 2:
        raise ArgumentError(
            Argument("labels"),
            f" must have one label per text and at least two classes, but there are {len(texts)} texts, "
            f"{len(labels)} labels and classes {planted_classes!r}",
        )
    if kind == "single":
        decoys = 0.0
    if not (0 <= share <= 1 and 0 <= decoys <= 1 and share + decoys <= 1):
        message = f" are parts of 1, and 1 together at most, not {share!r} and {decoys!r}"
        raise ArgumentError(Argument("share"), " and ", Argument("decoys"), message)
    names = planted_words(kind, len(planted_classes), words)
    for k, text in enumerate(texts):
        for word in names:
            if word.casefold() in text.casefold():
                message = f"[{k}] contains {word!r} already; pass other "
                raise ArgumentError(Argument("texts"), message, Argument("words"))
    if kind == "pair":
        planted_classes = planted_classes[:2]
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(texts)).tolist()
    rule_count = round(share * len(texts))
    decoy_count = round(decoys * len(texts))
    rows = [Planted(text, labels[k], (), k) for k, text in enumerate(texts)]
    for turn, k in enumerate(order[:rule_count]):
        number = turn % len(planted_classes)
        deciding = _deciding_words(kind, names, number, generator)
        text, spans = _insert(texts[k], deciding, generator)
        rows[k] = Planted(text, planted_classes[number], spans, k)
    for k in order[rule_count : rule_count + decoy_count]:
        decoy = names[generator.integers(len(names))]
        text, _ = _insert(texts[k], [decoy], generator)
        rows[k] = replace(rows[k], text=text)
    return rows


def _deciding_words(kind: str, names: Sequence[str], number: int, generator: np.random.Generator) -> list[str]:
    """The words that decide for class `number`, in their order."""
    if kind == "single":
        return [names[number]]
    if kind == "pair":
        return [names[number], names[1 - number]]
    words = [names[number], names[-1]]
    return words if generator.random() < 0.5 else words[::-1]


def _insert(text: str, words: Sequence[str], generator: np.random.Generator) -> tuple[str, tuple[Span, ...]]:
    """`text` with `words` at random positions between its words, in their order, and their spans."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    positions = generator.integers(0, len(starts) + 1, len(words)).tolist()
    result = ""
    spans = []
    copied = 0  # characters of the text
    for word, position in zip(words, sorted(positions), strict=True):
        at_end = position == len(starts)
        start = len(text.rstrip()) if at_end else starts[position]
        result += text[copied:start]
        copied = start
        if result and not result[-1].isspace():
            result += " "
        spans.append((len(result), len(result) + len(word)))
        result += word
        if not at_end:
            result += " "
    return result + text[copied:], tuple(spans)


@dataclass(frozen=True, eq=False, repr=False)
class Recovery:
    """How several methods rank the planted tokens of the texts that a model classifies by them."""

    methods: tuple[str, ...]  # (m,)
    precision: np.ndarray  # (m, n) of the k tokens of highest score
    mean_rank: np.ndarray  # (m, n) of the planted tokens
    depth: np.ndarray  # (m, n) rank of the last planted token
    planted: np.ndarray  # (n,) k, tokens that decide
    sizes: np.ndarray  # (n,) ordinary tokens
    rows: np.ndarray  # (n,) indices of these planted texts
    decided: int  # texts in which the rule decides
    cut: int  # of them, those too long for the model to see all planted words

    @property
    def followed(self) -> float:
        """Share of the texts with the complete rule in them that the model classifies by it."""
        return len(self.rows) / (self.decided - self.cut)

    @checked
    def table(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per method: means over texts, each with the ends of a bootstrap interval, the same texts for all."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        columns = {}
        for name in _MEASURES:
            values = getattr(self, name)
            low, high = interval(bootstrap_means(values.T, resamples, seed), confidence)
            columns[name] = values.mean(1)
            columns[f"{name}_low"] = low
            columns[f"{name}_high"] = high
        columns["texts"] = len(self.rows)
        columns["followed"] = self.followed
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))

    def __repr__(self) -> str:
        return f"Recovery({', '.join(self.methods)}; {len(self.rows)} texts, followed in {self.followed:.1%})"


@checked
def recovery(attributions: Mapping[str, Sequence[Attribution]], rows: Sequence[Planted], *, seed: int = 0) -> Recovery:
    """Judge every method's attributions, one for each of `rows`, by the planted tokens.

    Explain the predicted class (target=None). Rows in which nothing decides are skipped. A control of random scores
    (`seed`) is added.
    """
    whole_number("seed", seed, 0)
    if not attributions:
        raise ArgumentError(Argument("attributions"), " is empty; pass {method: one Attribution for each row}")
    for method, items in attributions.items():
        if len(items) != len(rows):
            message = f" has {len(items)} attributions by {method} but there are {len(rows)} rows"
            raise ArgumentError(Argument("attributions"), message)
    decided = 0
    cut = 0
    marks: dict[int, np.ndarray] = {}  # row -> (n,) bool, its planted tokens
    for k, row in enumerate(rows):
        if not row.spans:
            continue
        decided += 1
        explanations = [items[k] for items in attributions.values()]
        if any(attribution.text != row.text for attribution in explanations):
            raise ArgumentError(Argument("attributions"), f" of rows[{k}] are about another text")
        word_marks = [rationale_mask(explanations[0], [span]) for span in row.spans]
        if not all(mark.any() for mark in word_marks):
            cut += 1
        elif all(_follows(attribution, row.label) for attribution in explanations):
            marks[k] = np.any(word_marks, axis=0)
    if not marks:
        raise ArgumentError(
            Argument("rows"),
            f": the model classifies none of {decided} texts by the planted words, so its reasons are not known; "
            "train it on texts of plant(...) first, and explain the predicted class",
        )
    methods = list(dict.fromkeys([*attributions, _CONTROL]))
    measures = np.empty((3, len(methods), len(marks)))
    for row, method in enumerate(methods):
        for column, (k, mark) in enumerate(marks.items()):
            if method in attributions:
                attribution = attributions[method][k]
                scores = attribution.scores[~attribution.special_mask]
            else:
                scores = np.random.default_rng([seed, k]).random(len(mark))
            if len(scores) != len(mark):
                message = f" of rows[{k}] have different numbers of tokens; use one tokenizer"
                raise ArgumentError(Argument("attributions"), message)
            measures[:, row, column] = _measure(scores, mark)
    precision, mean_rank, depth = measures
    return Recovery(
        methods=tuple(methods),
        precision=precision,
        mean_rank=mean_rank,
        depth=depth,
        planted=np.array([mark.sum() for mark in marks.values()]),
        sizes=np.array([len(mark) for mark in marks.values()]),
        rows=np.array(list(marks)),
        decided=decided,
        cut=cut,
    )


def _follows(attribution: Attribution, label: object) -> bool:
    """Whether the class that was predicted and explained is that of the rule."""
    return attribution.prediction == attribution.label and label in (attribution.target, attribution.label)


def _measure(scores: np.ndarray, mark: np.ndarray) -> tuple[float, float, float]:
    """Precision, mean rank and depth of the marked tokens (n,) in the order of scores (n,)."""
    order = np.argsort(-scores, kind="stable")
    ranks = 1 + np.flatnonzero(mark[order])
    precision = (ranks <= len(ranks)).mean()
    return precision, ranks.mean(), ranks[-1]
