"""From a model, texts and methods (or scores from elsewhere) to an Evaluation.

    texts -> target class of each -> scores of every method -> masked texts -> probabilities

The convention this file owns: the class whose probability is measured is the explained one, which is the predicted one
unless another is requested; and a control of random scores is always included.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from gaflow.arguments import checked, distinct, one_of, plain_number
from gaflow.errors import Argument, ArgumentError
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
from gaflow.evaluation.masking import DELETE, MaskedOutputs, Masker, at_most, masks
from gaflow.evaluation.outputs import LOCATED_LABELS, LOCATED_TASKS, Readout, check_task, located_outputs, read_classes
from gaflow.evaluation.ranking import CONTROL
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.several import Evaluations
from gaflow.evaluation.soft_masking import Soft
from gaflow.evaluation.tokens import ScoresByMethod
from gaflow.evaluation.units import UNITS, first_of_unit, sum_by_unit
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.explainer.many import PreparedText, explain_many
from gaflow.explainer.provenance import describe_environment, describe_method, describe_model
from gaflow.explainer.windows import Window
from gaflow.inputs.batch import collate
from gaflow.inputs.columns import ArrowFrame
from gaflow.inputs.encoding import Encoding, Text
from gaflow.methods import Method, Random
from gaflow.methods.text_random import token_generator
from gaflow.models.limits import padding_of
from gaflow.progress import Progress, Report, reporting, within
from gaflow.tasks.targets import Target


@overload
def evaluate(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    labels: Sequence[int | str] | None = None,
    methods: Sequence[AnyMethod] | None = None,
    replacement: str | int = "pad",
    order: str = "both",
    **options: Any,
) -> Evaluation: ...


@overload
def evaluate(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    labels: Sequence[int | str] | None = None,
    methods: Sequence[AnyMethod] | None = None,
    *,
    replacement: list[str] | list[int] | list[str | int] | tuple[str | int, ...],
    order: str = "both",
    **options: Any,
) -> Evaluations: ...


@checked
def evaluate(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    labels: Sequence[int | str] | None = None,
    methods: Sequence[AnyMethod] | None = None,
    replacement: str | int | Sequence[str | int] = "pad",
    order: str = "both",
    *,
    scores: GivenScores | None = None,
    target: Target | list[Target] | list[int] | list[str] = None,
    levels: Sequence[int] = DEFAULT_LEVELS,
    eraser: bool = True,
    bounds: Bounds | bool = False,
    soft: Soft | bool = False,
    unit: str = "token",
    max_share: float | None = None,
    draws: int = 10,
    batch_size: int = 16,
    tokens_per_pass: int | None = None,
    truncation: bool = False,
    seed: int = 0,
    progress: Progress = None,
) -> Evaluation | Evaluations:
    """Measure how the model's probabilities change when the highest- or lowest-scored tokens of `texts` are masked.

    `labels` are the true classes (indices or names), for accuracy, F1, precision and recall. `methods` are names,
    settings objects or callables (None: all of METHODS, or none if you pass `scores`). `replacement` is "pad", "mask",
    "unk", a token id, or "delete", or a list of these: then you get `Evaluations`, one for each. `order` is "top",
    "bottom" or "both".

    `scores` are judged too: for each name a list with one entry per text, which is an Attribution, anything with scores
    and offsets, or an array with a score for every token or every ordinary token. `target` is the explained class
    (None: the predicted one, or that of the Attributions). `levels` are per cents of the tokens. `eraser` adds
    comprehensiveness and sufficiency, `bounds` (True, or settings) Normalized AOPC, which needs very many forward
    passes, `soft` (True, or settings) Soft-NS and Soft-NC. `unit="word"` masks whole words. `max_share` masks no more
    than this share of a text at once: of what a level would mask, `draws` random parts are masked instead, and their
    probabilities averaged (F-Fidelity). `seed` is that of the control, the draws and the soft measures. `progress`
    counts texts, each once for every method to compute and once for every replacement.

    Taggers and question answering models are evaluated by the probability of the explained tag or answer.

        scores = gaflow.evaluate(explainer, texts, labels, methods=["agf", "ig"])
        scores.table()
    """
    if isinstance(replacement, str) or not isinstance(replacement, Iterable):
        is_single = True
        replacements = [replacement]
    else:
        is_single = False
        replacements = [plain_number(item) for item in replacement]
    if not replacements:
        raise ArgumentError(Argument("replacement"), " is an empty list; name at least one replacement")
    distinct("replacement", list(map(str, replacements)), "each is evaluated once")
    settings = EvaluationSettings(
        replacement=replacements[0],
        order=order,
        levels=tuple(levels),
        eraser=eraser,
        bounds=Bounds() if bounds is True else bounds or None,
        soft=Soft(seed=seed) if soft is True else soft or None,
        batch_size=batch_size,
        tokens_per_pass=tokens_per_pass,
        truncation=truncation,
        seed=seed,
        unit=one_of("unit", unit, UNITS),
        max_share=max_share,
        draws=draws,
    )
    methods_by_name = parse_methods(methods, scores)
    results = judge_each(
        explainer,
        texts,
        settings,
        replacements,
        methods=methods_by_name,
        scores=scores,
        labels=labels,
        target=target,
        progress=progress,
    )
    model = describe_model(explainer)
    evaluations = {}
    for evaluation in results:
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
        evaluations[evaluation.replacement] = replace(evaluation, manifest=manifest)
    if is_single:
        return next(iter(evaluations.values()))
    return Evaluations(evaluations)


def judge_texts(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    settings: EvaluationSettings,
    *,
    scores: GivenScores | None = None,
    labels: Sequence[object] | None = None,
    target: Any = None,
    progress: Progress,
) -> Evaluation:
    """Measure `scores` and a random control with the replacement of the settings."""
    replacements = [settings.replacement]
    (evaluation,) = judge_each(
        explainer, texts, settings, replacements, scores=scores, labels=labels, target=target, progress=progress
    )
    return evaluation


def judge_each(
    explainer: Explainer,
    texts: Sequence[Text] | ArrowFrame,
    settings: EvaluationSettings,
    replacements: Sequence[str | int],
    *,
    methods: Mapping[str, Method] | None = None,
    scores: GivenScores | None = None,
    labels: Sequence[object] | None = None,
    target: Any = None,
    progress: Progress,
) -> list[Evaluation]:
    """Explain `texts` by `methods`, add `scores` from elsewhere and a random control, and measure all of them.

    There is one result for each of the `replacements`. Its manifest has counts only: the caller knows where model,
    texts and scores come from.
    """
    started = time.perf_counter()
    methods = methods or {}
    measured = _measured_texts(explainer, texts, labels, target, scores, settings)
    scores_by_method = parse_scores(scores, measured.encodings)
    count = len(measured.encodings)
    maskers = []
    for replacement in replacements:
        masker = Masker.of(
            explainer.model,
            explainer.tokenizer,
            measured.encodings,
            replacement,
            settings.tokens_per_pass,
            unit=settings.unit,
            never_masked=measured.never_masked,
            readout=measured.readout,
        )
        if masker.token is None and measured.resolved is not None:
            raise ArgumentError(
                Argument("replacement", DELETE),
                " moves the tokens whose output is measured; pass 'pad', 'mask', 'unk' or a token id",
            )
        maskers.append(masker)
    with reporting(progress, count * (len(methods) + len(replacements)), "text") as report:
        unmasked = maskers[0](maskers[0].no_masks(1))
        original = unmasked.log_probabilities[np.concatenate(unmasked.rows)]  # (n, classes)
        targets = original.argmax(1)
        for k, requested_class in enumerate(measured.requested):
            if requested_class is not None:
                targets[k] = requested_class
        explained_targets = targets.tolist() if measured.resolved is None else measured.resolved
        scores_by_method |= _explain(
            explainer, measured.encodings, methods, explained_targets, settings.batch_size, report
        )
        if CONTROL not in scores_by_method:
            scores_by_method[CONTROL] = _control_scores(explainer, measured.encodings, Random(settings.seed))
        unit_scores = _scores_of_units(scores_by_method, measured.encodings, maskers[0])
        explaining = time.perf_counter() - started
        evaluations = []
        for number, masker in enumerate(maskers):
            masking_report = within(report, count * (len(methods) + number), count)
            evaluation = _mask(masker, unit_scores, measured, original, targets, settings, masking_report)
            timings = {**evaluation.timings, "explaining": explaining}
            timings["total"] = explaining + timings["total"]
            evaluations.append(replace(evaluation, timings=timings))
    return evaluations


@dataclass(frozen=True)
class _MeasuredTexts:
    """The texts of an evaluation, and which output of each is measured."""

    encodings: list[Encoding]
    labels: tuple[str, ...]  # of the classes that are measured
    gold: np.ndarray | None  # (n,)
    requested: list[int | None]  # (n,) class to measure; None: the predicted one
    resolved: list[object] | None = None  # (n,) what methods explain, if it is not the class
    never_masked: list[tuple[int, ...]] | None = None  # per text: tokens that are never masked
    readout: Readout = read_classes


def _measured_texts(
    explainer: Explainer,
    texts: Any,
    labels: Sequence[object] | None,
    target: Any,
    scores: GivenScores | None,
    settings: EvaluationSettings,
) -> _MeasuredTexts:
    """Encode the texts, and find out what is measured of each."""
    check_task(explainer)
    if explainer.runner.task in LOCATED_TASKS:
        if labels is not None:
            message = f" are classes of whole texts, but the model is for {explainer.runner.task}; leave them out"
            raise ArgumentError(Argument("labels"), message)
        located = located_outputs(explainer, texts, target, scores, settings.truncation, settings.batch_size)
        return _MeasuredTexts(
            encodings=located.encodings,
            labels=LOCATED_LABELS,
            gold=None,
            requested=[LOCATED_LABELS.index("the explained output")] * len(located.encodings),
            resolved=located.resolved,
            never_masked=located.never_masked,
            readout=located.readout,
        )
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, texts, settings.truncation)
    return _MeasuredTexts(
        encodings=encodings,
        labels=head.labels,
        gold=parse_labels(head, labels, len(encodings)),
        requested=parse_targets(head, target, scores, len(encodings)),
    )


def _scores_of_units(scores_by_method: ScoresByMethod, encodings: Sequence[Encoding], masker: Masker) -> ScoresByMethod:
    """Scores (u,) of what is masked together, for every method and text, from those of the ordinary tokens."""
    by_method: ScoresByMethod = {}
    for name, text_scores in scores_by_method.items():
        combine = first_of_unit if name == CONTROL else sum_by_unit
        by_method[name] = []
        for text, (encoding, scores) in enumerate(zip(encodings, text_scores, strict=True)):
            by_token = np.zeros(len(encoding))
            by_token[np.array(encoding.segments) >= 0] = scores
            by_method[name].append(combine(by_token[masker.positions[text]], masker.units[text]))
    return by_method


def _mask(
    masker: Masker,
    scores_by_method: ScoresByMethod,
    measured: _MeasuredTexts,
    original: np.ndarray,
    targets: np.ndarray,
    settings: EvaluationSettings,
    report: Report,
) -> Evaluation:
    """Mask texts by the scores (u,) of all methods, and measure the outputs; `original` (n, classes) without masks."""
    started = time.perf_counter()
    base = original[np.arange(len(masker)), targets]
    part = 1 / (1 + (settings.bounds is not None) + (settings.soft is not None))  # of the masking
    outputs, rows = _mask_texts(masker, scores_by_method, settings, original.shape[1], within(report, 0, part))
    masking = time.perf_counter() - started
    soft = None
    zero = None
    if settings.soft is not None:
        soft_report = within(report, part, part)
        soft, zero = settings.soft(masker, scores_by_method, base, targets, soft_report)
    bounds = None
    if settings.bounds is not None:
        bounds_report = within(report, 1 - part, part)
        bounds = settings.bounds(masker, base, targets, settings.levels, bounds_report)
    log_probabilities = np.concatenate([original, outputs.log_probabilities])
    masked, prediction = _averaged(log_probabilities, rows, targets)
    manifest: dict[str, Any] = {"truncated": sum(encoding.truncated for encoding in measured.encodings)}
    manifest["inputs"] = len(outputs.log_probabilities)
    if settings.soft is not None:
        manifest["soft"] = settings.soft.describe()
    if settings.max_share is not None:
        manifest["draws"] = settings.draws
    return Evaluation(
        methods=tuple(scores_by_method),
        conditions=settings.conditions,
        levels=settings.levels,
        classes=measured.labels,
        replacement=masker.replacement,
        sizes=masker.sizes,
        target=targets,
        base=base,
        base_prediction=original.argmax(1),
        masked=masked,
        prediction=prediction,
        gold=measured.gold,
        bounds=bounds,
        soft=soft,
        zero=zero,
        unit=settings.unit,
        max_share=settings.max_share,
        timings={
            "total": time.perf_counter() - started,
            "masking": masking,
            "forward": outputs.seconds,
            "forward_share": outputs.seconds / masking,
        },
        manifest=manifest,
    )


def _averaged(log_probabilities: np.ndarray, rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of the targets and prediction (m, n, c) each, from the rows (m, n, c, d) of all draws."""
    if rows.shape[-1] == 1:
        rows = rows[..., 0]
        return log_probabilities[rows, targets[:, None]], log_probabilities.argmax(1)[rows]
    masked = np.empty(rows.shape[:-1])
    prediction = np.empty(rows.shape[:-1], dtype=np.int64)
    for text, target in enumerate(targets):
        probabilities = np.exp(log_probabilities[rows[:, text]]).mean(-2)  # (m, c, classes)
        masked[:, text] = np.log(probabilities[..., target])
        prediction[:, text] = probabilities.argmax(-1)
    return masked, prediction


def _explain(
    explainer: Explainer,
    encodings: Sequence[Encoding],
    methods: Mapping[str, Method],
    targets: Sequence[object],
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
        for k, (encoding, target) in enumerate(zip(encodings, targets, strict=True)):
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
    settings: EvaluationSettings,
    classes: int,
    report: Report,
) -> tuple[MaskedOutputs, np.ndarray]:
    """The model's outputs for all masked texts, and the row (m, n, c, d) of each method, text, condition and draw.

    The first n rows are those of the texts as they are, where a condition masks nothing; then come the outputs.
    """
    conditions = settings.conditions
    draws = 1 if settings.max_share is None else settings.draws
    masking = [masks(np.zeros(n), conditions).any(-1) for n in masker.sizes]  # per text (c,): masks anything

    def masks_by_text() -> Iterator[np.ndarray]:
        for text, n in enumerate(masker.sizes):
            scores = np.stack([text_scores[text] for text_scores in scores_by_method.values()])
            by_condition = masks(scores, conditions)[:, masking[text]]
            if settings.max_share is not None:
                ids = masker.inputs["input_ids"][text, : masker.lengths[text]].tolist()
                keys = token_generator(settings.seed, 0, ids).random((draws, n))  # the same ones for every method
                by_condition = at_most(by_condition, settings.max_share, keys)
            yield by_condition.reshape(math.prod(by_condition.shape[:-1]), n)

    if any(text_masking.any() for text_masking in masking):
        outputs = masker(masks_by_text(), report)
    else:  # nothing of any text may be masked
        empty = np.zeros(0, dtype=np.int64)
        outputs = MaskedOutputs(np.zeros((0, classes)), (empty,) * len(masker), 0.0)
    rows = np.empty((len(scores_by_method), len(masker), len(conditions), draws), dtype=np.int64)
    for text, text_rows in enumerate(outputs.rows):
        rows[:, text] = text
        masked_rows = len(masker) + text_rows
        rows[:, text, masking[text]] = masked_rows.reshape(len(rows), int(masking[text].sum()), draws)
    return outputs, rows
