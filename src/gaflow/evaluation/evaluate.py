"""The front door: model, texts and methods (or scores from elsewhere) -> Evaluation.

    texts -> target class of each -> scores of every method -> masked texts -> probabilities

The convention this file owns: the class whose probability is measured is the one that was explained, which is the
predicted one unless told; and a control of random scores is always there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.arguments import (
    encode_all,
    methods_of,
    parse_conditions,
    parse_labels,
    parse_scores,
    softmax_head,
    targets_of,
)
from gaflow.evaluation.masking import Answers, Masker, masked_count, masks
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.soft_masking import Soft
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import PreparedText, explain_many
from gaflow.inputs.encoding import Encoding, Padding, Text, collate
from gaflow.methods import Method, Random
from gaflow.progress import Progress, Report, reporting, silent, within
from gaflow.provenance import describe_method, describe_model, versions
from gaflow.tasks.targets import Target

__all__ = ["CONTROL", "LEVELS", "control", "evaluate", "judge", "unmasked"]

CONTROL = "random"
LEVELS = tuple(range(10, 100, 10))


def evaluate(
    explainer: Explainer,
    texts: Sequence[Text],
    labels: Sequence[int | str] | None = None,
    methods: Sequence[AnyMethod] | None = None,
    replacement: str | int = "pad",
    order: str = "both",
    *,
    scores: Mapping[str, Sequence[Any]] | None = None,
    target: Target | list[Target] | list[int] | list[str] = None,
    levels: Sequence[int] = LEVELS,
    eraser: bool = True,
    bounds: Bounds | bool = False,
    soft: Soft | bool = False,
    batch_size: int = 16,
    tokens_per_pass: int | None = None,
    truncation: bool = False,
    seed: int = 0,
    progress: Progress = False,
) -> Evaluation:
    """Judge methods by what the model says of `texts` whose highest- and lowest-scored tokens are masked.

    `labels` are the right classes (indices or names), for accuracy, F1, precision and recall. `methods` are names,
    settings objects or callables (None: all of METHODS, or none if `scores` are given). `replacement` is "pad", "mask",
    "unk", a token id, or "delete"; `order` is "top", "bottom" or "both".

    `scores` are judged too: a name for each list with one entry per text, an Attribution, anything with scores and
    offsets, or an array with a score for every token or every ordinary token. `target` is the class explained (None:
    the predicted one, or that of the Attributions). `levels` are per cents of the tokens. `eraser` adds
    comprehensiveness and sufficiency, `bounds` (True, or settings) Normalized AOPC, which asks the model very often,
    `soft` (True, or settings) Soft-NS and Soft-NC. `seed` is the control's and the soft measures'. `progress` counts
    texts, each once for every method to compute and once for masking.
    """
    started = time.perf_counter()
    search = Bounds() if bounds is True else bounds or None
    softly = Soft(seed=seed) if soft is True else soft or None
    head = softmax_head(explainer)
    encodings = encode_all(explainer, texts, truncation)
    gold = parse_labels(head, labels, len(encodings))
    conditions = parse_conditions(order, levels, eraser)
    chosen = methods_of(methods, scores)
    every = parse_scores(scores, encodings)
    masker = Masker.of(explainer.model, explainer.tokenizer, encodings, replacement, tokens_per_pass)
    count = len(encodings)
    with reporting(progress, count * (len(chosen) + 1), "text") as report:
        base = unmasked(masker)
        aim = targets_of(head, target, scores or {}, base)
        every |= _explain(explainer, encodings, chosen, aim, batch_size, report)
        every.setdefault(CONTROL, control(explainer, encodings, Random(seed)))
        explained = time.perf_counter()
        tell = within(report, count * len(chosen), count)
        found = judge(masker, every, base, aim, conditions, tuple(levels), search, tell, softly)
    timings = {"total": time.perf_counter() - started, "explaining": explained - started, **found.timings}
    manifest = {**_manifest(explainer, chosen, encodings, masker, seed), **found.manifest}
    return replace(found, classes=head.labels, gold=gold, timings=timings, manifest=manifest)


def judge(
    masker: Masker,
    every: Mapping[str, Sequence[np.ndarray]],
    base: np.ndarray,
    aim: np.ndarray,
    conditions: tuple[tuple[str, int], ...],
    levels: tuple[int, ...],
    search: Bounds | None = None,
    report: Report = silent,
    soft: Soft | None = None,
) -> Evaluation:
    """Scores (n,) of every method and text, judged: the texts' log-probabilities `base` (n, classes), what is measured
    `aim` (n,). Class names, gold labels and whose scores they are is for the caller to say.
    """
    started, part = time.perf_counter(), 1 / (1 + (search is not None) + (soft is not None))
    answers = masker(_wanted(every, masker, conditions), within(report, 0, part))
    found, said = _assemble(answers, len(every), masker, conditions, base, aim)
    taken = time.perf_counter() - started
    log_base = np.take_along_axis(base, aim[:, None], 1)[:, 0]
    lost, zero = (None, None) if soft is None else soft(masker, every, log_base, aim, within(report, part, part))
    ends = None if search is None else search(masker, log_base, aim, levels, within(report, 1 - part, part))
    return Evaluation(
        methods=tuple(every),
        conditions=conditions,
        levels=levels,
        classes=tuple(str(k) for k in range(base.shape[1])),
        replacement=masker.name,
        sizes=np.array([len(p) for p in masker.places]),
        target=aim,
        base=log_base,
        base_prediction=base.argmax(1),
        masked=found,
        prediction=said,
        bounds=ends,
        soft=lost,
        zero=zero,
        timings={"masking": taken, "forward": answers.seconds, "forward_share": answers.seconds / taken},
        manifest={"inputs": len(answers.logs)} | ({} if soft is None else {"soft": soft.describe()}),
    )


def unmasked(masker: Masker) -> np.ndarray:
    """Log-probabilities of the texts as they are, (n, classes)."""
    answers = masker([np.zeros((1, len(places)), dtype=bool) for places in masker.places])
    return answers.logs[np.concatenate(answers.where)]


def _explain(
    explainer: Explainer,
    encodings: Sequence[Encoding],
    methods: Mapping[str, Method],
    aim: np.ndarray,
    batch_size: int,
    report: Report,
) -> dict[str, list[np.ndarray]]:
    """Scores (n,) of every text by every method, from one trace for each text."""
    found: dict[str, list[Any]] = {name: [None] * len(encodings) for name in methods}
    traced = [m for m in methods.values() if not isinstance(m, Random)]
    found |= {name: control(explainer, encodings, m) for name, m in methods.items() if isinstance(m, Random)}
    if traced:
        texts = []
        for k, encoding in enumerate(encodings):
            texts.append(PreparedText(f"texts[{k}]", encoding, int(aim[k])))
        for results in explain_many(explainer.runner, texts, traced, batch_size=batch_size, report=report):
            for method in traced:
                attribution = results.attribution(method)
                found[method.name][results.index] = attribution.scores[~attribution.special_mask]
    report(len(encodings) * len(methods))
    return found


def control(explainer: Explainer, encodings: Sequence[Encoding], method: Random) -> list[np.ndarray]:
    """The control needs no model, and so no model that can be traced."""
    padding = Padding.of(explainer.model, explainer.tokenizer)
    found = []
    for encoding in encodings:
        values = method.of(collate([encoding], padding)).values[0].numpy()
        found.append(values[np.array(encoding.segments) >= 0])
    return found


def _wanted(
    every: Mapping[str, Sequence[np.ndarray]], masker: Masker, conditions: Sequence[tuple[str, int]]
) -> Iterator[np.ndarray]:
    """What to mask of each text, (r, n): methods after each other, without conditions that mask nothing."""
    for text in range(len(masker)):
        n = len(masker.places[text])
        chosen = masks(np.stack([scores[text] for scores in every.values()]), conditions)
        yield chosen[:, _masking(n, tuple(conditions))].reshape(-1, n)


@lru_cache(maxsize=4096)
def _masking(n: int, conditions: tuple[tuple[str, int], ...]) -> np.ndarray:
    """Which conditions mask anything of n tokens, (c,)."""
    return np.array([order != "keep" or masked_count(n, k) < n for order, k in conditions])


def _assemble(
    answers: Answers,
    methods: int,
    masker: Masker,
    conditions: Sequence[tuple[str, int]],
    base: np.ndarray,
    aim: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the target, and predictions, (m, n, c) each."""
    shape = (methods, len(masker), len(conditions))
    found, said = np.empty(shape), np.empty(shape, dtype=np.int64)
    for text in range(len(masker)):
        asked = _masking(len(masker.places[text]), tuple(conditions))
        logs = np.broadcast_to(base[text], (methods, len(conditions), base.shape[1])).copy()
        logs[:, asked] = answers[text].reshape(methods, -1, base.shape[1])
        found[:, text], said[:, text] = logs[:, :, aim[text]], logs.argmax(-1)
    return found, said


def _manifest(
    explainer: Explainer, methods: Mapping[str, Method], encodings: Sequence[Encoding], masker: Masker, seed: int
) -> dict[str, Any]:
    """What decides the numbers, in JSON."""
    return {
        "model": describe_model(explainer),
        "methods": [describe_method(m) for m in methods.values()],
        "replacement": masker.name,
        "texts": len(encodings),
        "truncated": sum(e.truncated for e in encodings),
        "seed": seed,
        "versions": versions(),
    }
