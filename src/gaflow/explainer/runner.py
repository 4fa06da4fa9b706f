"""A model together with everything that is needed to feed it texts, worked out once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from gaflow.arguments import one_of
from gaflow.errors import Argument, TextError, UnsupportedModelError
from gaflow.explainer.provenance import Snapshots
from gaflow.flow.threads import one_core
from gaflow.inputs.batch import Batch, Padding, batches, collate, neutral_tokens
from gaflow.inputs.encoding import Encoding
from gaflow.methods import Method
from gaflow.methods.base import common_head_means
from gaflow.models.embeddings import word_embedding
from gaflow.models.forward import can_stream, compute_logits, knows_stream, may_stream
from gaflow.models.limits import length_limit, padding_of
from gaflow.models.memory import batch_limit, batch_work, device_of
from gaflow.models.restore import borrow
from gaflow.models.streamed_attention import HeadMean
from gaflow.tasks import TASKS, Input, InputReader
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import AnyHead

Attention = Literal["auto", "eager"]


@dataclass(frozen=True)
class Runner:
    """A model, and how its inputs are read, batched and interpreted."""

    model: Any  # a transformers model, or anything that behaves like one
    tokenizer: Any  # or an image processor, or a feature extractor
    task: str  # a name of TASKS
    head: AnyHead  # the labels, and which logits a target means
    padding: Padding  # how texts of different lengths share a batch
    limit: int | None  # the most tokens a text may have, special tokens included; None: no limit
    attention: Attention  # whether the weights of all heads are held
    snapshots: Snapshots = field(compare=False, repr=False)  # of the model, for the provenance of attributions

    @classmethod
    def of(cls, model: Any, tokenizer: Any, task: str, attention: Attention = "auto") -> Runner:
        """The runner of a loaded model."""
        return cls(
            model=model,
            tokenizer=tokenizer,
            task=task,
            head=TASKS[task].head(model, tokenizer),
            padding=padding_of(model, tokenizer),
            limit=length_limit(model, tokenizer),
            attention=one_of("attention", attention, get_args(Attention)),
            snapshots=Snapshots(model, tokenizer),
        )

    def class_head(self, purpose: str) -> ClassificationHead:
        """The head of a text classifier; `purpose` names in the error what cannot be done with another task."""
        if self.task != "text-classification" or not isinstance(self.head, ClassificationHead):
            raise UnsupportedModelError(
                f"{purpose} is about the classes of whole texts, but {type(self.model).__name__} is for "
                f"{self.task}; use a text classifier, or explain texts one by one"
            )
        return self.head

    def encode(self, items: Sequence[Input], *, names: Sequence[str], truncation: bool = False) -> list[Encoding]:
        """Encodings of texts, pictures or sounds; error messages call them by `names`."""
        reader = InputReader(self.model, self.tokenizer, self.limit, truncation)
        return TASKS[self.task].read(reader, items, names)

    def batches(self, encodings: Sequence[Encoding], size: int, methods: Sequence[Method] = ()) -> Iterator[list[int]]:
        """Indices of the encodings of each batch: at most `size`, and no more than the memory budget allows.

        Batches are made by length: padding never costs more than another batch would.
        """
        streamed = self.needed_means(methods) is not None and may_stream(self.model)
        limit = partial(batch_limit, self.model, methods=methods, streamed=streamed)
        return batches(encodings, size, self.padding, limit, partial(batch_work, self.model))

    def needed_means(self, methods: Sequence[Method]) -> tuple[HeadMean, ...] | None:
        """All that the methods need of attention, if that is less than the weights of all heads."""
        return None if self.attention == "eager" else common_head_means(methods)

    def streams(self, encodings: Sequence[Encoding], methods: Sequence[Method]) -> bool:
        """Whether the pass of a batch is streamed; finding out takes two short passes, once for each model."""
        if self.needed_means(methods) is None or not may_stream(self.model):
            return False
        answer = knows_stream(self.model)
        if answer is not None:
            return answer
        first = self.collate(encodings[:1])
        with one_core(), torch.inference_mode(False), torch.no_grad(), borrow(self.model):
            return can_stream(self.model, first)

    def collate(self, encodings: Sequence[Encoding]) -> Batch:
        """One batch, on the device of the model."""
        self._check_ids(encodings)
        neutral = neutral_tokens(self.tokenizer, self.padding)
        return collate(encodings, self.padding, device_of(self.model), neutral)

    def _check_ids(self, encodings: Sequence[Encoding]) -> None:
        """Refuse tokens that the model has no embedding for, which torch would only call an index out of range."""
        embedding = word_embedding(self.model)
        if not isinstance(embedding, nn.Embedding):
            return
        for encoding in encodings:
            ids = encoding.inputs.get("input_ids", ())
            largest = max(ids, default=-1)
            if largest >= embedding.num_embeddings:
                token = encoding.tokens[list(ids).index(largest)]
                raise TextError(
                    Argument("tokenizer"),
                    f" gives token {token!r} the id {largest}, but the model has embeddings for ids up to "
                    f"{embedding.num_embeddings - 1}; use the tokenizer that belongs to the model, or add embeddings "
                    "by model.resize_token_embeddings and train them",
                )

    def logits(self, encodings: Sequence[Encoding]) -> Tensor:
        """Logits (b, ...) of one batch from a forward pass without gradients."""
        batch = self.collate(encodings)
        with torch.inference_mode(False), torch.no_grad():
            return compute_logits(self.model, batch.inputs)
