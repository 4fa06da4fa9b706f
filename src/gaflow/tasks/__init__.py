"""What models do: how each task reads its input, and which number of its output is explained.

A task is three things: how an input becomes an `Encoding` (`read`), how its logits become the explained scalar
(`head`), and by which class and whose names Transformers knows its models. All else (the trace, the methods, the flow,
the result) is the same for every task.

The convention this file owns: a model's task is seen from the end of its class's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from gaflow.inputs.encoding import Encoding
from gaflow.tasks.language_modelling import WordHead
from gaflow.tasks.media_inputs import read_pictures, read_sounds
from gaflow.tasks.question_answering import AnswerHead
from gaflow.tasks.targets import ClassificationHead, Head
from gaflow.tasks.text_inputs import read_masked, read_prompts, read_questions, read_single, read_texts
from gaflow.tasks.token_classification import TagHead

__all__ = ["TASKS", "Input", "Task", "task_of"]


class HasPixels(Protocol):
    """A picture of Pillow's."""

    def convert(self, mode: str) -> Any:
        """The same in other colours."""
        ...


Input = str | tuple[Any, Any] | Mapping[str, Any] | PathLike[str] | np.ndarray | Tensor | HasPixels
Read = Callable[[Any, Any, Sequence[Any], bool, Sequence[str]], list[Encoding]]


@dataclass(frozen=True)
class Task:
    """What sets a task apart."""

    loader: str  # the class of transformers that loads its models
    endings: tuple[str, ...]  # of the names of their classes
    read: Read  # model, tokenizer, inputs, truncation, what errors call the inputs -> encodings
    head: Callable[[Any, Any], Head]  # model, tokenizer -> how logits are read
    reader: str = "AutoTokenizer"  # the class of transformers that loads what reads the input


TASKS: dict[str, Task] = {
    "text-classification": Task(
        "AutoModelForSequenceClassification",
        ("ForSequenceClassification",),
        read_texts,
        lambda model, _: ClassificationHead.of(model.config),
    ),
    "token-classification": Task(
        "AutoModelForTokenClassification",
        ("ForTokenClassification",),
        read_single,
        lambda model, _: TagHead.of(model.config),
    ),
    "question-answering": Task(
        "AutoModelForQuestionAnswering",
        ("ForQuestionAnswering",),
        read_questions,
        lambda _, __: AnswerHead(),
    ),
    "fill-mask": Task(
        "AutoModelForMaskedLM",
        ("ForMaskedLM",),
        read_masked,
        lambda _, tokenizer: WordHead(tokenizer, masked=True),
    ),
    "text-generation": Task(
        "AutoModelForCausalLM",
        ("ForCausalLM", "LMHeadModel"),
        read_prompts,
        lambda _, tokenizer: WordHead(tokenizer, masked=False),
    ),
    "image-classification": Task(
        "AutoModelForImageClassification",
        ("ForImageClassification", "ForImageClassificationWithTeacher"),
        read_pictures,
        lambda model, _: ClassificationHead.of(model.config),
        "AutoImageProcessor",
    ),
    "audio-classification": Task(
        "AutoModelForAudioClassification",
        ("ForAudioClassification",),
        read_sounds,
        lambda model, _: ClassificationHead.of(model.config),
        "AutoFeatureExtractor",
    ),
}
_INPUTS = {"input_values": "audio-classification", "input_features": "audio-classification"}


def task_of(architecture: str, main_input: str = "input_ids") -> str | None:
    """The task of a class of models, by its name; None if that does not tell.

    Sounds are classified by models `ForSequenceClassification`, which only their main input tells from others.
    """
    if architecture.endswith("ForSequenceClassification") and main_input in _INPUTS:
        return _INPUTS[main_input]
    return next((name for name, task in TASKS.items() if architecture.endswith(task.endings)), None)
