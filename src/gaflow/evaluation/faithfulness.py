"""From a model, texts and methods (or scores from elsewhere) to an Evaluation.

    texts -> target class of each -> scores of every method -> masked texts -> probabilities

The convention this file owns: the class whose probability is measured is the explained one, which is the predicted one
unless another is requested; and a control of random scores is always included.
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
    DEFAULT_LEVELS,
    EvaluationSettings,
    GivenScores,
    encode_texts,
    parse_labels,
    parse_methods,
    parse_scores,
    parse_targets,
    softmax_head,
)
from gaflow.evaluation.masking import Condition, MaskedOutputs, Masker, masked_count, masks
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.soft_masking import Soft
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import PreparedText, explain_many
from gaflow.inputs.batch import collate
from gaflow.inputs.encoding import Encoding, Text
from gaflow.methods import Method, Random
from gaflow.models.limits import padding_of
from gaflow.progress import Progress, Report, reporting, silent, within
from gaflow.provenance import describe_method, describe_model, versions
from gaflow.tasks.targets import Target

__all__ = ["CONTROL", "evaluate", "judge_texts"]

CONTROL = "random"


def evaluate(
    explainer: Explainer,
    texts: Sequence[Text],
    labels: Sequence[int | str] | None = None,
    methods: Sequence[AnyMethod] | None = None,
    replacement: str | int = "pad",
    order: str = "both",
    *,
    scores: GivenScores | None = None,
    target: Target | list[Target] | list[int] | list[str] = None,
    levels: Sequence[int] = DEFAULT_LEVELS,
    eraser: bool = True,
    bounds: Bounds | bool = False,
    soft: Soft | bool = False,
    batch_size: int = 16,
    tokens_per_pass: int | None = None,
    truncation: bool = False,
    seed: int = 0,
    progress: Progress = False,
) -> Evaluation:
    """Measure how the model's probabilities change when the highest- or lowest-scored tokens of `texts` are masked.

    `labels` are the true classes (indices or names), for accuracy, F1, precision and recall. `methods` are names,
    settings objects or callables (None: all of METHODS, or none if you pass `scores`). `replacement` is "pad", "mask",
    "unk", a token id, or "delete"; `order` is "top", "bottom" or "both".

    `scores` are judged too: for each name a list with one entry per text, which is an Attribution, anything with scores
    and offsets, or an array with a score for every token or every ordinary token. `target` is the explained class
    (None: the predicted one, or that of the Attributions). `levels` are per cents of the tokens. `eraser` adds
    comprehensiveness and sufficiency, `bounds` (True, or settings) Normalized AOPC, which needs very many forward
    passes, `soft` (True, or settings) Soft-NS and Soft-NC. `seed` is that of the control and the soft measures.
    `progress` counts texts, each once for every method to compute and once for masking.

        scores = gaflow.evaluate(explainer, texts, labels, methods=["agf", "ig"])
        scores.table()
    """
    settings = EvaluationSettings(
        replacement=replacement,
        order=order,
        levels=tuple(levels),
        eraser=eraser,
        bounds=Bounds() if bounds is True else bounds or None,
        soft=Soft(seed=seed) if soft is True else soft or None,
        batch_size=batch_size,
        tokens_per_pass=tokens_per_pass,
        truncation=truncation,
        seed=seed,
    )
    methods_by_name = parse_methods(methods, scores)
    evaluation = judge_texts(
        explainer,
        texts,
        settings,
        methods=methods_by_name,
        scores=scores,
        labels=labels,
        target=target,
        progress=progress,
    )
    manifest = {
        "model": describe_model(explainer),
        "methods": [describe_method(method) for method in methods_by_name.values()],
        "replacement": evaluation.replacement,
        "texts": len(evaluation.sizes),
        "truncated": evaluation.manifest["truncated"],
        "seed": seed,
        "versions": versions(),
        **evaluation.manifest,
    }
    return replace(evaluation, manifest=manifest)


def judge_texts(
    explainer: Explainer,
    texts: Sequence[Text],
    settings: EvaluationSettings,
    *,
    methods: Mapping[str, Method] | None = None,
    scores: GivenScores | None = None,
    labels: Sequence[object] | None = None,
    target: Any = None,
    progress: Progress = False,
) -> Evaluation:
    """Explain `texts` by `methods`, add `scores` from elsewhere and a random control, and measure all of them.

    The manifest of the result has counts only: the caller knows where model, texts and scores come from.
    """
    started = time.perf_counter()
    methods = methods or {}
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, texts, settings.truncation)
    count = len(encodings)
    gold = parse_labels(head, labels, count)
    scores_by_method = parse_scores(scores, encodings)
    requested = parse_targets(head, target, scores, count)
    masker = Masker.of(explainer.model, explainer.tokenizer, encodings, settings.replacement, settings.tokens_per_pass)
    with reporting(progress, count * (len(methods) + 1), "text") as report:
        original = original_log_probabilities(masker)
        targets = original.argmax(1)
        for k, requested_class in enumerate(requested):
            if requested_class is not None:
                targets[k] = requested_class
        scores_by_method |= _explain(explainer, encodings, methods, targets, settings.batch_size, report)
        if CONTROL not in scores_by_method:
            scores_by_method[CONTROL] = _control_scores(explainer, encodings, Random(settings.seed))
        explained = time.perf_counter()
        masking_report = within(report, count * len(methods), count)
        evaluation = score_masked_texts(masker, scores_by_method, original, targets, settings, masking_report)
    return replace(
        evaluation,
        classes=head.labels,
        gold=gold,
        timings={"total": time.perf_counter() - started, "explaining": explained - started, **evaluation.timings},
        manifest={"truncated": sum(encoding.truncated for encoding in encodings), **evaluation.manifest},
    )


def original_log_probabilities(masker: Masker) -> np.ndarray:
    """Log-probabilities of the texts with nothing masked, (n, classes)."""
    no_tokens = [np.zeros((1, len(positions)), dtype=bool) for positions in masker.positions]
    outputs = masker(no_tokens)
    return outputs.log_probabilities[np.concatenate(outputs.rows)]


def score_masked_texts(
    masker: Masker,
    scores_by_method: Mapping[str, Sequence[np.ndarray]],
    original: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings,
    report: Report = silent,
) -> Evaluation:
    """Measure scores (n,) of every method and text under all conditions.

    `original` (n, classes) are the log-probabilities of the texts as they are, `targets` (n,) the measured classes.
    The caller adds names of classes and gold labels.
    """
    conditions = settings.conditions
    measures = 1 + (settings.bounds is not None) + (settings.soft is not None)
    part = 1 / measures
    started = time.perf_counter()
    outputs = masker(_masks_to_score(scores_by_method, masker, conditions), within(report, 0, part))
    masked, predictions = _by_condition(outputs, len(scores_by_method), masker, conditions, original, targets)
    masking_seconds = time.perf_counter() - started
    base = original[np.arange(len(targets)), targets]
    manifest: dict[str, Any] = {"inputs": len(outputs.log_probabilities)}
    soft = None
    zero = None
    if settings.soft is not None:
        soft_report = within(report, part, part)
        soft, zero = settings.soft(masker, scores_by_method, base, targets, soft_report)
        manifest["soft"] = settings.soft.describe()
    bounds = None
    if settings.bounds is not None:
        bounds_report = within(report, 1 - part, part)
        bounds = settings.bounds(masker, base, targets, settings.levels, bounds_report)
    return Evaluation(
        methods=tuple(scores_by_method),
        conditions=conditions,
        levels=settings.levels,
        classes=tuple(str(k) for k in range(original.shape[1])),
        replacement=masker.replacement,
        sizes=np.array([len(positions) for positions in masker.positions]),
        target=targets,
        base=base,
        base_prediction=original.argmax(1),
        masked=masked,
        prediction=predictions,
        bounds=bounds,
        soft=soft,
        zero=zero,
        timings={
            "masking": masking_seconds,
            "forward": outputs.seconds,
            "forward_share": outputs.seconds / masking_seconds,
        },
        manifest=manifest,
    )


def _explain(
    explainer: Explainer,
    encodings: Sequence[Encoding],
    methods: Mapping[str, Method],
    targets: np.ndarray,
    batch_size: int,
    report: Report,
) -> dict[str, list[np.ndarray]]:
    """Scores (n,) of every text by every method, from one trace for each text."""
    scores: dict[str, list[Any]] = {}
    traced = []
    for name, method in methods.items():
        if isinstance(method, Random):
            scores[name] = _control_scores(explainer, encodings, method)
        else:
            scores[name] = [None] * len(encodings)
            traced.append(method)
    if traced:
        texts = []
        for k, (encoding, target) in enumerate(zip(encodings, targets.tolist(), strict=True)):
            texts.append(PreparedText(f"texts[{k}]", encoding, target))
        for results in explain_many(explainer.runner, texts, traced, batch_size=batch_size, report=report):
            for method in traced:
                attribution = results.attribution(method)
                scores[method.name][results.index] = attribution.scores[~attribution.special_mask]
    report(len(encodings) * len(methods))
    return scores


def _control_scores(explainer: Explainer, encodings: Sequence[Encoding], method: Random) -> list[np.ndarray]:
    """Random scores (n,) of every text. They need no model, and so no model that can be traced."""
    padding = padding_of(explainer.model, explainer.tokenizer)
    scores = []
    for encoding in encodings:
        values = method.of(collate([encoding], padding)).values[0].numpy()
        scores.append(values[np.array(encoding.segments) >= 0])
    return scores


def _masks_to_score(
    scores_by_method: Mapping[str, Sequence[np.ndarray]], masker: Masker, conditions: tuple[Condition, ...]
) -> Iterator[np.ndarray]:
    """The masks of each text, (r, n): method by method, without conditions that mask nothing."""
    for text in range(len(masker)):
        n = len(masker.positions[text])
        scores = np.stack([text_scores[text] for text_scores in scores_by_method.values()])
        by_condition = masks(scores, conditions)
        masking = by_condition[:, _masks_anything(n, conditions)]
        yield masking.reshape(-1, n)


@lru_cache(maxsize=4096)
def _masks_anything(n: int, conditions: tuple[Condition, ...]) -> np.ndarray:
    """Which conditions mask anything of n tokens, (c,)."""
    return np.array([order != "keep" or masked_count(n, level) < n for order, level in conditions])


def _by_condition(
    outputs: MaskedOutputs,
    methods: int,
    masker: Masker,
    conditions: tuple[Condition, ...],
    original: np.ndarray,
    targets: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the targets, and predictions, (m, n, c) each."""
    shape = (methods, len(masker), len(conditions))
    classes = original.shape[1]
    log_probabilities = np.empty(shape)
    predictions = np.empty(shape, dtype=np.int64)
    for text in range(len(masker)):
        unmasked = np.broadcast_to(original[text], (methods, len(conditions), classes))
        text_logs = unmasked.copy()
        scored = _masks_anything(len(masker.positions[text]), conditions)
        text_logs[:, scored] = outputs[text].reshape(methods, -1, classes)
        log_probabilities[:, text] = text_logs[:, :, targets[text]]
        predictions[:, text] = text_logs.argmax(-1)
    return log_probabilities, predictions
