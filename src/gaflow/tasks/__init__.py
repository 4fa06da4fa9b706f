"""What models do: how each task reads its input, and which number of its output is explained.

A task is three things: how an input becomes an `Encoding` (`read`), how its logits become the explained scalar
(`head`), and which classes of Transformers load its models and read their input. All else (the trace, the methods, the
flow, the result) is the same for every task.

The convention this package owns: a model's task is told by the end of its class's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import ModelConfig, PretrainedModel
from gaflow.plugins import Registry
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.input_reader import InputReader
from gaflow.tasks.language_modelling import LanguageModelHead
from gaflow.tasks.media_inputs import name_tokens, read_pictures, read_sounds
from gaflow.tasks.question_answering import QuestionAnsweringHead
from gaflow.tasks.similarity import SimilarityHead, read_pairs, similarity_head
from gaflow.tasks.targets import AnyHead, ExplainedOutput, Head, ResolvedTarget, Target
from gaflow.tasks.text_inputs import read_masked, read_prompts, read_questions, read_single, read_texts
from gaflow.tasks.token_classification import TokenClassificationHead

__all__ = [
    "TASKS",
    "AnyHead",
    "ClassificationHead",
    "ExplainedOutput",
    "Head",
    "Input",
    "InputReader",
    "LanguageModelHead",
    "QuestionAnsweringHead",
    "ResolvedTarget",
    "SimilarityHead",
    "Target",
    "Task",
    "TokenClassificationHead",
    "name_tokens",
    "task_of",
]


class PillowImage(Protocol):
    """A picture of the library Pillow."""

    def convert(self, mode: str) -> Any:
        """The same in other colours."""


Input = str | tuple[Any, Any] | Mapping[str, Any] | PathLike[str] | np.ndarray | Tensor | PillowImage


_PROBE_PIXELS = 64  # of the side of a picture
_PROBE_SECONDS = 0.5  # of a sound


def _two_words(_tokenizer: object) -> Input:
    return "one two"


def _question_and_context(_tokenizer: object) -> Input:
    return "one?", "one two"


def _two_texts(_tokenizer: object) -> Input:
    return "one two", "two"


def _text_with_mask(tokenizer: object) -> Input:
    return f"one {getattr(tokenizer, 'mask_token', '')}"


def _small_picture(_processor: object) -> Input:
    pixels = np.arange(_PROBE_PIXELS * _PROBE_PIXELS * 3) % 256
    return pixels.reshape(_PROBE_PIXELS, _PROBE_PIXELS, 3).astype(np.uint8)


def _short_sound(processor: object) -> Input:
    rate = getattr(processor, "sampling_rate", 16000)
    samples = np.sin(np.arange(int(_PROBE_SECONDS * rate)))
    return samples.astype(np.float32), rate


@dataclass(frozen=True)
class Task:
    """What sets a task apart."""

    loader: str  # the class of transformers that loads its models
    endings: tuple[str, ...]  # of the names of their classes
    read: Callable[[InputReader, Sequence[Any], Sequence[str]], list[Encoding]]  # inputs, and their names in errors
    head: Callable[[Any, Any], AnyHead]  # model, tokenizer -> how logits are read
    processor: str = "AutoTokenizer"  # the class of transformers that loads what reads the input
    probe: Callable[[Any], Input] = _two_words  # tokenizer -> a tiny input, to see whether a method can follow a model


def _classification_head(model: PretrainedModel, _tokenizer: object) -> ClassificationHead:
    return ClassificationHead.of(_head_config(model))


def _tagging_head(model: PretrainedModel, _tokenizer: object) -> TokenClassificationHead:
    return TokenClassificationHead.of(_head_config(model))


def _head_config(model: PretrainedModel) -> ModelConfig:
    """The config with the labels of a model, which a custom model does not share with its encoder."""
    return getattr(model, "head_config", model.config)


_OWN: dict[str, Task] = {
    "text-classification": Task(
        loader="AutoModelForSequenceClassification",
        endings=("ForSequenceClassification",),
        read=read_texts,
        head=_classification_head,
    ),
    "token-classification": Task(
        loader="AutoModelForTokenClassification",
        endings=("ForTokenClassification",),
        read=read_single,
        head=_tagging_head,
    ),
    "question-answering": Task(
        loader="AutoModelForQuestionAnswering",
        endings=("ForQuestionAnswering",),
        read=read_questions,
        head=lambda _, __: QuestionAnsweringHead(),
        probe=_question_and_context,
    ),
    "fill-mask": Task(
        loader="AutoModelForMaskedLM",
        endings=("ForMaskedLM",),
        read=read_masked,
        head=lambda _, tokenizer: LanguageModelHead(tokenizer, masked=True),
        probe=_text_with_mask,
    ),
    "text-generation": Task(
        loader="AutoModelForCausalLM",
        endings=("ForCausalLM", "LMHeadModel"),
        read=read_prompts,
        head=lambda _, tokenizer: LanguageModelHead(tokenizer, masked=False),
    ),
    "similarity": Task(
        loader="AutoModel",
        endings=("SentenceEncoder",),
        read=read_pairs,
        head=similarity_head,
        probe=_two_texts,
    ),
    "image-classification": Task(
        loader="AutoModelForImageClassification",
        endings=("ForImageClassification", "ForImageClassificationWithTeacher"),
        read=read_pictures,
        head=_classification_head,
        processor="AutoImageProcessor",
        probe=_small_picture,
    ),
    "audio-classification": Task(
        loader="AutoModelForAudioClassification",
        endings=("ForAudioClassification",),
        read=read_sounds,
        head=_classification_head,
        processor="AutoFeatureExtractor",
        probe=_short_sound,
    ),
}


def _check_plugin(_name: str, task: object) -> None:
    if not isinstance(task, Task):
        raise TypeError("it is no gaflow.tasks.Task")


TASKS: Registry[Task] = Registry(_OWN, "gaflow.tasks", _check_plugin)


def task_of(architecture: str, main_input: str = "input_ids") -> str | None:
    """The task of a class of models, by its name; None if the name does not tell.

    Some classifiers of sounds are `ForSequenceClassification` too; only their main input sets them apart.
    """
    if architecture.endswith("ForSequenceClassification") and main_input in ("input_values", "input_features"):
        return "audio-classification"
    for tasks in (_OWN, TASKS):  # plug-ins are imported only if gaflow itself does not know the class
        for name, task in tasks.items():
            if architecture.endswith(task.endings):
                return name
    return None
