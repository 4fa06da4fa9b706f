"""Agreement of scores with what people marked as their reasons: plausibility, which is not faithfulness.

Texts are those that the classifier gets right, since its reasons for another class are no match for people's, cut to
what it takes; the predicted class is explained. AUPRC, and F1 of as many tokens of highest score as are marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet

from benchmarks.asking import Subject, markdown, mean_with_error
from gaflow import Explainer
from gaflow.evaluation import auprc, rationale_mask, select_top, token_f1
from gaflow.inputs.segmentation import Span
from gaflow.methods import Method

SETS = {  # file -> title, column of the marks, classifier
    "hatexplain": ("HateXplain", "rationale", "hatexplain"),
    "movie_rationales": ("Movie reviews (ERASER)", "rationales", "imdb"),
}


def read_marked(file: Path, column: str, count: int, seed: int) -> dict[str, tuple[int, list[Span]]]:
    """Texts in which something is marked, drawn by `seed`, with their class and the characters that are marked."""
    marked_texts: dict[str, tuple[int, list[Span]]] = {}
    for row in pyarrow.parquet.read_table(file, columns=["tokens", "label", column]).to_pylist():
        words, marks = row["tokens"], row[column]
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        marked_words = zip(words, ends.tolist(), marks, strict=True)
        spans = [(end - len(word), end) for word, end, mark in marked_words if mark and word]
        if spans:
            marked_texts[" ".join(words)] = row["label"], spans
    texts = list(marked_texts)
    order = np.random.default_rng(seed).permutation(len(texts))[:count]
    return {texts[k]: marked_texts[texts[k]] for k in order}


def agreement(
    explainer: Explainer,
    marked: dict[str, tuple[int, list[Span]]],
    methods: Sequence[Method],
    cache: str,
    batch_size: int,
) -> list[str]:
    """Markdown, the method of highest AUPRC first."""
    all_texts = Subject.of(explainer, list(marked), cache, batch_size)
    right = [att.text for att in all_texts.attributions if att.target == marked[att.text][0]]
    if not right:
        raise SystemExit(
            f"the classifier gets none of {len(marked)} texts with rationales right; does it know the labels?"
        )
    subject = Subject.of(explainer, right, cache, batch_size)
    gold = [rationale_mask(att, marked[att.text][1]) for att in subject.attributions]
    marked_rows = [k for k, mask in enumerate(gold) if mask.any() and not mask.all()]
    rows = []
    for method in methods:
        scores = subject.scores(method)
        pairs = []
        for k in marked_rows:
            text_scores = scores[k]
            if text_scores is not None:
                pairs.append((text_scores[~subject.attributions[k].special_mask], gold[k]))
        area = np.array([auprc(s, mask) for s, mask in pairs])
        f1 = np.array([token_f1(select_top(s, float(mask.mean())), mask) for s, mask in pairs])
        rows.append(
            [method.name, mean_with_error(area, ".3f"), mean_with_error(f1, ".3f"), len(marked_rows) - len(pairs)]
        )
    rows.sort(key=lambda row: row[1], reverse=True)
    share = np.mean([gold[k].mean() for k in marked_rows]) if marked_rows else 0.0
    cut = sum(subject.attributions[k].truncated for k in marked_rows)
    return [
        f"{len(all_texts.texts)} texts with rationales, {len(right)} of them classified right; "
        f"{len(marked_rows)} of these have some but not all of the tokens marked that the model reads "
        f"({share:.1%} on average; {cut} texts are cut).",
        "",
        *markdown(["method", "AUPRC", "token F1", "failed"], rows),
    ]
