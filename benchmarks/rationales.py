"""Agreement of scores with what people marked as their reasons: plausibility, which is not faithfulness.

Texts are those that the classifier gets right, since its reasons for another class are no match for people's, cut to
what it takes; the predicted class is explained. AUPRC, and F1 of as many tokens of highest score as are marked. People
mark movie reviews by whole phrases and sentences, so for these sentences are judged too: their scores are the sums of
their tokens', and those with a marked token should rank first.

    python -m benchmarks.sanity --parts rationales --texts 100000 --rationales DATA --classifiers MODELS \\
        --device cuda --output rationales.md

Methods that are not begun when `--seconds` are over are left out, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet

from benchmarks.asking import Subject, markdown, mean_with_error
from benchmarks.deadline import Deadline, missing_lines
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


def read_sentences(file: Path) -> dict[str, list[Span]]:
    """The sentences of each text, as characters; none where the file does not have them."""
    if "sentence_starts" not in pyarrow.parquet.read_schema(file).names:
        return {}
    sentences = {}
    for row in pyarrow.parquet.read_table(file, columns=["tokens", "sentence_starts"]).to_pylist():
        starts = np.cumsum([0, *(len(word) + 1 for word in row["tokens"])])
        ends = [*row["sentence_starts"][1:], len(row["tokens"])]
        spans = []
        for first, end in zip(row["sentence_starts"], ends, strict=True):
            spans.append((int(starts[first]), int(starts[end]) - 1))
        sentences[" ".join(row["tokens"])] = spans
    return sentences


def sentence_auprc(offsets: Sequence[Span], scores: np.ndarray, gold: np.ndarray, sentences: Sequence[Span]) -> float:
    """AUPRC of sentences with a marked token, by the sums of their tokens' scores; NaN if all or none are marked."""
    sums = []
    is_marked = []
    for start, end in sentences:
        inside = [k for k, (first, last) in enumerate(offsets) if start <= first and last <= end]
        if inside:
            sums.append(scores[inside].sum())
            is_marked.append(gold[inside].any())
    if not any(is_marked) or all(is_marked):
        return float("nan")
    return auprc(np.array(sums), np.array(is_marked))


def agreement(
    explainer: Explainer,
    marked: dict[str, tuple[int, list[Span]]],
    methods: Sequence[Method],
    cache: str,
    batch_size: int,
    sentences: Mapping[str, Sequence[Span]] | None = None,
    deadline: Deadline | None = None,
) -> list[str]:
    """Markdown, the method of highest AUPRC first; sentences are judged where they are known."""
    deadline = deadline or Deadline()
    late = len(deadline.left_out)
    all_texts = Subject.of(explainer, list(marked), cache, batch_size)
    right = [att.text for att in all_texts.attributions if att.target == marked[att.text][0]]
    if not right:
        return [f"The classifier gets none of {len(marked)} texts with rationales right; does it know the labels?"]
    subject = Subject.of(explainer, right, cache, batch_size)
    gold = [rationale_mask(att, marked[att.text][1]) for att in subject.attributions]
    marked_rows = [k for k, mask in enumerate(gold) if mask.any() and not mask.all()]
    rows = []
    for method in methods:
        if not subject.has_scores(method) and not deadline.allows(method.name):
            continue
        scores = subject.scores(method)
        pairs = []
        of_sentences = []
        for k in marked_rows:
            text_scores = scores[k]
            if text_scores is None:
                continue
            attribution = subject.attributions[k]
            ordinary = ~attribution.special_mask
            pairs.append((text_scores[ordinary], gold[k]))
            if sentences:
                offsets = [span for span, keep in zip(attribution.offsets, ordinary, strict=True) if keep]
                text_sentences = sentences[attribution.text]
                of_sentences.append(sentence_auprc(offsets, text_scores[ordinary], gold[k], text_sentences))
        area = np.array([auprc(s, mask) for s, mask in pairs])
        f1 = np.array([token_f1(select_top(s, float(mask.mean())), mask) for s, mask in pairs])
        row = [method.name, mean_with_error(area, ".3f"), mean_with_error(f1, ".3f")]
        if sentences:
            row.append(mean_with_error(np.array(of_sentences), ".3f"))
        rows.append([*row, str(len(marked_rows) - len(pairs))])
    rows.sort(key=lambda row: row[1], reverse=True)
    share = np.mean([gold[k].mean() for k in marked_rows]) if marked_rows else 0.0
    header = ["method", "AUPRC", "token F1", *(["AUPRC of sentences"] if sentences else []), "failed"]
    cut = sum(subject.attributions[k].truncated for k in marked_rows)
    return [
        f"{len(all_texts.texts)} texts with rationales, {len(right)} of them classified right; "
        f"{len(marked_rows)} of these have some but not all of the tokens marked that the model reads "
        f"({share:.1%} on average; {cut} texts are cut).",
        "",
        *markdown(header, rows),
        "",
        *missing_lines(deadline.left_out[late:]),
    ]
