"""The front door: model + tokenizer + text -> Attribution, whatever the model's task.

    text -> Encoding -> Batch -> Trace -> method -> Scores -> Attribution

The task decides what a text and a target are (`gaflow.tasks`); the loop over texts is `gaflow.explainer.many`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Unpack, overload

import torch
from torch import Tensor

from gaflow.arguments import checked, distinct, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.explainer.arguments import AnyMethod, Options
from gaflow.explainer.cheaper_method import CheaperMethod
from gaflow.explainer.default_method import default_method
from gaflow.explainer.many import explain_many, prepare, prepare_one
from gaflow.explainer.runner import Attention, Runner
from gaflow.explainer.token_ids import attribute_token_ids, find_attention_mask
from gaflow.explainer.windows import Windows, mean_logits
from gaflow.inputs.columns import as_items
from gaflow.methods import METHODS, Method, find_method
from gaflow.models.loading import DeviceMap, LoadOptions, load_model
from gaflow.progress import Progress, reporting
from gaflow.tasks import Input
from gaflow.tasks.targets import ExplainedOutput, Head, Target, parse_all


class Explainer:
    """Explains the predictions of one model.

    Args:
        model: a hub id, a path, a transformers model (with its tokenizer) or a pipeline. None is the demo model.
        tokenizer: of a model object; an image processor or a feature extractor for pictures and sounds.
        task: a name such as "text-classification" or "fill-mask". None takes it from the model's class.
        device, dtype: of a model that is loaded by name. None is the GPU if there is one, and float32.
        revision, device_map, quantization_config: as in Transformers, for a model that is loaded by name.
        trust_remote_code: run the code that a model or tokenizer brings along. Without it, such a model is refused.
        attention: "auto" never holds the attention of all heads if the methods and the model allow it, which takes far
            less memory. "eager" always does.

    A model object stays where it is, and every call leaves it exactly as it was. Labels, padding and length limit are
    read once: make a new explainer if you change the model's config or the tokenizer.

        >>> explainer = gaflow.Explainer("distilbert-base-uncased-finetuned-sst-2-english")
        >>> explainer("although this dog is not cute, it is very smart.").words()
    """

    @checked
    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        *,
        task: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        revision: str | None = None,
        device_map: DeviceMap | None = None,
        quantization_config: object = None,
        trust_remote_code: bool = False,
        attention: Attention = "auto",
    ):
        options = LoadOptions(device, dtype, revision, device_map)
        options = replace(options, quantization_config=quantization_config, trust_remote_code=trust_remote_code)
        loaded = load_model(model, tokenizer, task, options)
        self.runner = Runner.of(loaded.model, loaded.tokenizer, loaded.task, attention)
        self._cheaper_method = CheaperMethod()

    def __repr__(self) -> str:
        parts = [type(self.model).__name__, self.task]
        labels = self.head.labels[:5]
        if labels:
            parts.append(f"labels {', '.join(labels)}")
        return f"Explainer({', '.join(parts)})"

    @property
    def model(self) -> Any:
        """The model, as loaded."""
        return self.runner.model

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, image processor or feature extractor, as loaded."""
        return self.runner.tokenizer

    @property
    def task(self) -> str:
        """The name of the model's task."""
        return self.runner.task

    @property
    def head(self) -> Head:
        """The labels of the model, and which of its logits a target means."""
        return self.runner.head

    @cached_property
    def default(self) -> Method:
        """The method that explains if you name none; the first use may run the model on two words."""
        return default_method(self.runner)

    @overload
    def __call__(
        self,
        text: list[Any],
        method: AnyMethod | None = None,
        target: Target | list[Target] = None,
        **options: Unpack[Options],
    ) -> list[Attribution]: ...

    @overload
    def __call__(
        self, text: Input, method: AnyMethod | None = None, target: Target = None, **options: Unpack[Options]
    ) -> Attribution: ...

    @checked
    def __call__(
        self,
        text: Any,
        method: AnyMethod | None = None,
        target: Any = None,
        *,
        batch_size: int = 16,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = None,
        keep_flow: bool = True,
    ) -> Attribution | list[Attribution]:
        """Explain the prediction for a text, or for each text of a list.

        Args:
            text: a string, a (text, text_pair) or (question, context) tuple, a picture or a sound; or a list of these,
                an array of strings, a Series or a column. A tuple of two strings is always a pair.
            method: a name of `gaflow.METHODS`, a settings object, a callable (attention, gradient) -> (b, l, t, t), or
                None for the `default`.
            target: the output to explain. None is the prediction. Classifiers take a class index, a label, or a
                contrast ("A minus B" or a tuple); taggers (where, tag); question answering an answer; language models a
                word. `predictions` lists the choices. A list of texts takes a list of targets too.
            batch_size: the most texts of a batch.
            truncation: explain only the beginning of texts that are longer than the model takes.
            windows: read longer texts in overlapping windows, and merge the scores. True, or a `gaflow.Windows`.
            progress: None shows a bar after two seconds, in a terminal or notebook. True always shows one, False never.
                A function is called with (texts done, texts in all), fractions included.
            keep_flow: False drops only the edge flows, which are l * t * t numbers for each text.

        Returns an `Attribution` for one text, a list of them for a list.

            >>> explainer("a very smart dog", "agf", target="positive").scores
            >>> explainer(["a good film", "a bad one"], batch_size=32)[1].label
        """
        named = None if method is None else find_method(method)
        whole_number("batch_size", batch_size)
        items = as_items(text)
        if items is not None:
            targets = parse_all(self.head, target, len(items))
            names = [f"texts[{index}]" for index in range(len(items))]
            texts = prepare(self.runner, items, targets, names, truncation, windows)
        else:
            texts = [prepare_one(self.runner, text, target, truncation=truncation, windows=windows)]
        used = named or self.default  # which may run the model: only when all arguments are checked
        advice = self._cheaper_method.advice(used, lambda: self.default, progress)
        with reporting(progress, len(texts), "text", advice=advice) as report:
            results = explain_many(
                self.runner, texts, [used], batch_size=batch_size, keep_flow=keep_flow, report=report
            )
            by_index = {result.index: result.attribution(used) for result in results}
        return by_index[0] if items is None else [by_index[index] for index in range(len(texts))]

    @checked
    def attribute(
        self,
        inputs: Tensor,
        target: Target | list[Target] | Tensor = None,
        additional_forward_args: Tensor | tuple[Tensor, ...] | None = None,
        *,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        method: AnyMethod | None = None,
        batch_size: int = 16,
    ) -> Tensor:
        """Scores (b, t) of token ids (b, t), as the `attribute` of Captum's methods; text classifiers only.

        `target` is a class, or a list or tensor of them (None: the predictions). `additional_forward_args` may be the
        attention mask, or a tuple that begins with it. Padding must be on the right; its scores are 0.

            >>> batch = tokenizer(["a good film", "not good"], padding=True, return_tensors="pt")
            >>> explainer.attribute(batch["input_ids"], target=1, attention_mask=batch["attention_mask"]).shape
        """
        whole_number("batch_size", batch_size)
        used = self.default if method is None else find_method(method)
        mask = find_attention_mask(attention_mask, additional_forward_args)
        return attribute_token_ids(self.runner, inputs, mask, token_type_ids, target, used, batch_size)

    @checked
    def compare(
        self,
        text: Input,
        methods: Sequence[AnyMethod | None] | None = None,
        target: Target = None,
        *,
        truncation: bool = False,
        windows: bool | Windows = False,
        progress: Progress = None,
        keep_flow: bool = True,
    ) -> dict[str, Attribution]:
        """Explain one text by several methods, from a single trace of the model.

        `methods` are as in a call; None runs all of `gaflow.METHODS`. `progress` counts methods.

            >>> for name, attribution in explainer.compare("a very smart dog", ["agf", "attcat"]).items():
            ...     print(name, attribution.top(3))
        """
        compared = []
        for method in METHODS if methods is None else methods:
            compared.append(self.default if method is None else find_method(method, "methods"))
        if not compared:
            raise ArgumentError(Argument("methods"), " is empty; name at least one, or leave it out to compare all")
        distinct("methods", [method.name for method in compared], "results are stored by name")
        prepared = prepare_one(self.runner, text, target, truncation=truncation, windows=windows)
        with reporting(progress, len(compared), "method") as report:
            (results,) = explain_many(self.runner, [prepared], compared, keep_flow=keep_flow, report=report)
        return {method.name: results.attribution(method) for method in compared}

    @checked
    def predictions(
        self, text: Input, count: int = 5, *, truncation: bool = False, windows: bool | Windows = False
    ) -> list[ExplainedOutput]:
        """The outputs that you can explain for a text, the most probable first: classes, entities, answers or words.

        Each has a `label` and a `probability`, and can be passed as a `target`.

            >>> for output in explainer.predictions("a very smart dog"):
            ...     print(output.label, output.probability)
        """
        prepared = prepare_one(self.runner, text, None, truncation=truncation, windows=windows)
        if prepared.is_pair:
            logits = torch.empty(0)  # which measures there are depends on no output
        elif prepared.in_parts:
            logits = mean_logits(self.runner, prepared.windows, batch_size=16)
        else:
            logits = self.runner.logits([prepared.encoding])[0]
        return self.head.top_outputs(logits, prepared.encoding, count)
