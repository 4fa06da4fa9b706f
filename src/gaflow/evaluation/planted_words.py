"""Texts whose reason is known because it was planted (Bastings et al. 2022): the one test of scores with a true answer.

Words that mean nothing are put into texts, and decide their label:

    single    a word for each class, anywhere in the text: the class is that of the word
    context   the same, but only in texts with another word, the context, somewhere in them; both decide
    pair      two words: the class is the first or the second by which of them comes first; both decide

A model trained on such texts and others learns the rule if it can, which its accuracy on planted texts shows, since
planted labels have nothing to do with the rest of a text. For the texts that it then classifies by the rule the k
tokens that decided are known, and scores are judged by how they rank them among all ordinary tokens:

    precision   of the k tokens of highest score (precision@k)
    mean_rank   of the k tokens, 1 being the highest score; (k + 1) / 2 at best
    depth       rank of the last of them: how far down one must read to have seen all; k at best

The conventions this file owns: **texts that the model does not classify as planted are left out**, and counted, for
they say nothing of scores; ties are ranked by position, as in masking. Half-planted texts, decoys, keep their label: a
word without its context, or one of a pair alone. Without them half of the rule would do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.errors import MissingExtraError
from gaflow.evaluation.rationales import rationale_mask
from gaflow.evaluation.significance import bootstrap_means
from gaflow.inputs.segmentation import Span

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONTEXT", "KINDS", "WORDS", "Planted", "Recovery", "plant", "planted_words", "recovery"]

KINDS = ("single", "context", "pair")
WORDS = ("zeroqx", "oneqx", "twoqx", "threeqx", "fourqx", "fiveqx", "sixqx", "sevenqx", "eightqx", "nineqx")  # by class
CONTEXT = "contextqx"
_MEASURES = ("precision", "mean_rank", "depth")
_CONTROL = "random"


@dataclass(frozen=True)
class Planted:
    """A text of a planted data set."""

    text: str
    label: Any  # that of the rule, or the old one where the rule says nothing
    spans: tuple[Span, ...]  # characters of the words that decide, in their order; none where the old label stands
    source: int  # which of the given texts it was


def planted_words(kind: str, classes: int, words: Sequence[str] | None = None) -> tuple[str, ...]:
    """The words that `plant` uses: one per class, then the context, if there is one; two for a pair."""
    if kind not in KINDS:
        raise ValueError(f"kind must be {', '.join(map(repr, KINDS))}, not {kind!r}")
    need = {"single": classes, "context": classes + 1, "pair": 2}[kind]
    chosen = tuple(words) if words is not None else WORDS[: need - (kind == "context")]
    if words is None and kind == "context":
        chosen += (CONTEXT,)
    plain = [w for w in chosen if isinstance(w, str) and w and not re.search(r"\s", w)]
    if len(chosen) != need or len({w.casefold() for w in plain}) != need:
        raise ValueError(f"{kind!r} with {classes} classes needs {need} different words without spaces, not {chosen!r}")
    return chosen


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
    """Texts as they are, but that `share` of them have words planted that decide, and `decoys` of them half of these.

    `classes` are the labels that are planted, equally often (None: all of `labels`, sorted); a pair takes the first
    two. `words` must not occur in the texts (None: made-up ones, of WORDS). There are no decoys of a single word.
    """
    chosen = list(classes) if classes is not None else sorted(set(labels))
    if len(texts) != len(labels) or not len(texts) or len(chosen) < 2:
        raise ValueError(
            f"plant needs as many labels as texts and at least two classes, but got {len(texts)} texts, "
            f"{len(labels)} labels and classes {chosen!r}"
        )
    if kind == "single":
        decoys = 0.0
    if not (0 <= share <= 1 and 0 <= decoys <= 1 and share + decoys <= 1):
        raise ValueError(f"share and decoys must be parts of 1, and 1 together at most, not {share!r} and {decoys!r}")
    names = planted_words(kind, len(chosen), words)
    _check_absent(texts, names)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(texts))
    decided, half = round(share * len(texts)), round(decoys * len(texts))
    found = [Planted(text, label, (), k) for k, (text, label) in enumerate(zip(texts, labels, strict=True))]
    for turn, k in enumerate(order[: decided + half].tolist()):
        if turn < decided:
            which = turn % (2 if kind == "pair" else len(chosen))
            text, spans = _insert(texts[k], _deciding(kind, names, which, generator), generator)
            found[k] = Planted(text, chosen[which], spans, k)
        else:
            text, _ = _insert(texts[k], [names[generator.integers(len(names))]], generator)
            found[k] = Planted(text, labels[k], (), k)
    return found


def _deciding(kind: str, names: Sequence[str], which: int, generator: np.random.Generator) -> list[str]:
    """The words that decide for class number `which`, in their order."""
    if kind == "pair":
        return [names[which], names[1 - which]]
    if kind == "single":
        return [names[which]]
    both = [names[which], names[-1]]
    return both if generator.random() < 0.5 else both[::-1]


def _insert(text: str, words: Sequence[str], generator: np.random.Generator) -> tuple[str, tuple[Span, ...]]:
    """`text` with `words` at random places between its words, in their order, and where they are."""
    starts = [m.start() for m in re.finditer(r"\S+", text)]
    end = len(text.rstrip())
    found, spans, done = "", [], 0
    for word, place in zip(words, sorted(generator.integers(0, len(starts) + 1, len(words)).tolist()), strict=True):
        at = starts[place] if place < len(starts) else end
        found, done = found + text[done:at], at
        if found and not found[-1].isspace():
            found += " "
        spans.append((len(found), len(found) + len(word)))
        found += word + (" " if place < len(starts) else "")
    return found + text[done:], tuple(spans)


def _check_absent(texts: Sequence[str], words: Sequence[str]) -> None:
    sought = {word.casefold() for word in words}
    for k, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{k}] must be a string, not {type(text).__name__}; pairs of texts cannot be planted")
        folded = text.casefold()
        there = [word for word in sought if word in folded]
        if there:
            raise ValueError(f"texts[{k}] has {there[0]!r} in it already; give other words=")


@dataclass(frozen=True, eq=False, repr=False)
class Recovery:
    """How several methods rank the planted tokens of the texts that a model classifies by them."""

    methods: tuple[str, ...]  # (m,)
    precision: np.ndarray  # (m, n) of the k tokens of highest score
    mean_rank: np.ndarray  # (m, n) of the planted tokens
    depth: np.ndarray  # (m, n) rank of the last planted token
    planted: np.ndarray  # (n,) k, tokens that decide
    sizes: np.ndarray  # (n,) ordinary tokens
    rows: np.ndarray  # (n,) which of the planted texts these are
    decided: int  # texts in which the rule decides, of those given
    cut: int  # of them, those too long for the model to see all planted words

    @property
    def followed(self) -> float:
        """Share of the texts with the whole rule in them that the model classifies by it."""
        return len(self.rows) / (self.decided - self.cut)

    def table(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per method: means over texts, each with the ends of a bootstrap interval, the same texts for all."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtraError(f"cannot import pandas ({error}); run: pip install 'gaflow[data]'") from error
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must lie between 0 and 1, not {confidence!r}")
        tail = (1 - confidence) / 2
        columns: dict[str, Any] = {}
        for name in _MEASURES:
            values = getattr(self, name)
            low, high = np.quantile(bootstrap_means(values.T, resamples, seed), (tail, 1 - tail), axis=0)
            columns |= {name: values.mean(1), f"{name}_low": low, f"{name}_high": high}
        columns |= {"texts": len(self.rows), "followed": self.followed}
        return pandas.DataFrame(columns, index=pandas.Index(self.methods, name="method"))

    def __repr__(self) -> str:
        return f"Recovery({', '.join(self.methods)}; {len(self.rows)} texts, followed in {self.followed:.1%})"


def recovery(attributions: Mapping[str, Sequence[Attribution]], rows: Sequence[Planted], *, seed: int = 0) -> Recovery:
    """Judge every method's attributions, one for each of `rows`, by the planted tokens.

    Explain the predicted class (target=None). Rows in which nothing decides are passed over. A control of random scores
    (`seed`) is added.
    """
    if not attributions:
        raise ValueError("attributions is empty; give {method: one Attribution for each row}")
    for method, items in attributions.items():
        if len(items) != len(rows):
            raise ValueError(f"{method} has {len(items)} attributions but there are {len(rows)} rows")
    deciding = [k for k, row in enumerate(rows) if row.spans]
    cut, kept, marks = 0, [], []
    for k in deciding:
        mine = [items[k] for items in attributions.values()]
        if any(att.text != rows[k].text for att in mine):
            raise ValueError(f"the attributions of rows[{k}] are about another text")
        each = [rationale_mask(mine[0], [span]) for span in rows[k].spans]
        if not all(mask.any() for mask in each):
            cut += 1
        elif all(_follows(att, rows[k].label) for att in mine):
            kept.append(k)
            marks.append(np.any(each, axis=0))
    if not kept:
        raise ValueError(
            f"the model classifies none of {len(deciding)} texts by the planted words, so that nothing is known of its "
            "reasons; train it on texts of plant(...) first, and explain the predicted class"
        )
    found = {name: list(_judged(items, kept, marks)) for name, items in attributions.items()}
    if _CONTROL not in found:
        found[_CONTROL] = list(_random(kept, marks, seed))
    values = np.array(list(found.values()))  # (m, n, 3)
    return Recovery(
        methods=tuple(found),
        **{name: values[:, :, k] for k, name in enumerate(_MEASURES)},
        planted=np.array([int(mark.sum()) for mark in marks]),
        sizes=np.array([len(mark) for mark in marks]),
        rows=np.array(kept),
        decided=len(deciding),
        cut=cut,
    )


def _follows(attribution: Attribution, label: Any) -> bool:
    """Whether the class that was predicted and explained is that of the rule."""
    predicted = attribution.prediction == attribution.label
    return predicted and bool(attribution.target == label or attribution.label == label)


def _judged(
    items: Sequence[Attribution], kept: Sequence[int], marks: Sequence[np.ndarray]
) -> Iterator[tuple[float, float, float]]:
    for k, mark in zip(kept, marks, strict=True):
        scores = items[k].scores[~items[k].special_mask]
        if len(scores) != len(mark):
            raise ValueError(f"the attributions of rows[{k}] have different numbers of tokens; use one tokenizer")
        yield _ranked(scores, mark)


def _random(kept: Sequence[int], marks: Sequence[np.ndarray], seed: int) -> Iterator[tuple[float, float, float]]:
    for k, mark in zip(kept, marks, strict=True):
        yield _ranked(np.random.default_rng([seed, k]).random(len(mark)), mark)


def _ranked(scores: np.ndarray, mark: np.ndarray) -> tuple[float, float, float]:
    """Precision, mean rank and depth of the marked tokens (n,) in the order of scores (n,)."""
    ranks = 1 + np.flatnonzero(mark[np.argsort(-scores, kind="stable")])
    return float((ranks <= len(ranks)).mean()), float(ranks.mean()), float(ranks[-1])
