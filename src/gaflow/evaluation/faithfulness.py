"""From a model, texts and methods (or scores from elsewhere) to an Evaluation.

    texts -> target class of each -> scores of every method -> masked texts -> probabilities

The convention this file owns: the class whose probability is measured is the explained one, which is the predicted one
unless another is requested; and a control of random scores is always included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gaflow.arguments import checked
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
from gaflow.evaluation.masking import Condition, MaskedOutputs, Masker, masks
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.soft_masking import Soft
from gaflow.evaluation.tokens import ScoresByMethod
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import PreparedText, explain_many
from gaflow.explainer.provenance import describe_environment, describe_method, describe_model
from gaflow.explainer.windows import Window
from gaflow.inputs.batch import collate
from gaflow.inputs.columns import ArrowFrame
from gaflow.inputs.encoding import Encoding, Text
from gaflow.methods import Method, Random
from gaflow.models.limits import padding_of
from gaflow.progress import Progress, Report, reporting, within
from gaflow.tasks.targets import Target

CONTROL = "random"


@checked
def evaluate(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
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
    progress: Progress = None,
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
    model = describe_model(explainer)
    manifest = {
        "model": model,
        "methods": [describe_method(method) for method in methods_by_name.values()],
        "replacement": evaluation.replacement,
        "texts": len(evaluation.sizes),
        "truncated": evaluation.manifest["truncated"],
        "seed": seed,
        **describe_environment(model["device"]),
        **evaluation.manifest,
    }
    return replace(evaluation, manifest=manifest)


def judge_texts(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    settings: EvaluationSettings,
    *,
    methods: Mapping[str, Method] | None = None,
    scores: GivenScores | None = None,
    labels: Sequence[object] | None = None,
    target: Any = None,
    progress: Progress,
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
        unmasked = masker(masker.no_masks(1))
        original = unmasked.log_probabilities[np.concatenate(unmasked.rows)]  # (n, classes)
        predictions = original.argmax(1)
        targets = predictions.copy()
        for k, requested_class in enumerate(requested):
            if requested_class is not None:
                targets[k] = requested_class
        base = original[np.arange(count), targets]
        scores_by_method |= _explain(explainer, encodings, methods, targets, settings.batch_size, report)
        if CONTROL not in scores_by_method:
            scores_by_method[CONTROL] = _control_scores(explainer, encodings, Random(settings.seed))
        explained = time.perf_counter()
        masking_report = within(report, count * len(methods), count)
        part = 1 / (1 + (settings.bounds is not None) + (settings.soft is not None))  # of the masking
        outputs, rows = _mask_texts(masker, scores_by_method, settings.conditions, within(masking_report, 0, part))
        masking = time.perf_counter() - explained
        soft = None
        zero = None
        if settings.soft is not None:
            soft_report = within(masking_report, part, part)
            soft, zero = settings.soft(masker, scores_by_method, base, targets, soft_report)
        bounds = None
        if settings.bounds is not None:
            bounds_report = within(masking_report, 1 - part, part)
            bounds = settings.bounds(masker, base, targets, settings.levels, bounds_report)
    ended = time.perf_counter()
    log_probabilities = np.concatenate([original, outputs.log_probabilities])
    manifest: dict[str, Any] = {"truncated": sum(encoding.truncated for encoding in encodings)}
    manifest["inputs"] = len(outputs.log_probabilities)
    if settings.soft is not None:
        manifest["soft"] = settings.soft.describe()
    return Evaluation(
        methods=tuple(scores_by_method),
        conditions=settings.conditions,
        levels=settings.levels,
        classes=head.labels,
        replacement=masker.replacement,
        sizes=masker.sizes,
        target=targets,
        base=base,
        base_prediction=predictions,
        masked=log_probabilities[rows, targets[:, None]],
        prediction=log_probabilities.argmax(1)[rows],
        gold=gold,
        bounds=bounds,
        soft=soft,
        zero=zero,
        timings={
            "total": ended - started,
            "explaining": explained - started,
            "masking": masking,
            "forward": outputs.seconds,
            "forward_share": outputs.seconds / masking,
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
) -> ScoresByMethod:
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
            texts.append(PreparedText(f"texts[{k}]", encoding, target, (Window.full(encoding),)))
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


def _mask_texts(
    masker: Masker,
    scores_by_method: ScoresByMethod,
    conditions: Sequence[Condition],
    report: Report,
) -> tuple[MaskedOutputs, np.ndarray]:
    """The model's outputs for all masked texts, and the row (m, n, c) of each method, text and condition.

    The first n rows are those of the texts as they are, where a condition masks nothing; then come the outputs.
    """
    masking = [masks(np.zeros(n), conditions).any(-1) for n in masker.sizes]  # per text (c,): masks anything

    def masks_by_text() -> Iterator[np.ndarray]:
        for text, n in enumerate(masker.sizes):
            scores = np.stack([text_scores[text] for text_scores in scores_by_method.values()])
            by_condition = masks(scores, conditions)[:, masking[text]]
            yield by_condition.reshape(-1, n)

    outputs = masker(masks_by_text(), report)
    rows = np.empty((len(scores_by_method), len(masker), len(conditions)), dtype=np.int64)
    for text, text_rows in enumerate(outputs.rows):
        rows[:, text] = text
        masked_rows = len(masker) + text_rows
        rows[:, text, masking[text]] = masked_rows.reshape(len(rows), -1)
    return outputs, rows
