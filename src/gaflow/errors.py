"""What can go wrong, and what to do about it. Every message names what was given and the next step.

A message may mention arguments: `Argument("truncation", True)`. Python prints them as `truncation=True`; the command
line words the same error with its own options (`error.worded`). The first argument is the one that the error is about.

Another convention this file owns: **what comes from outside is displayed, never obeyed**, wherever gaflow writes it:
pages, figures, terminal and error messages. `visible` writes out characters that control a screen or hide in a text.
Emoji sequences stay as they are, also flags that consist of invisible tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# A black flag with the tags of a region, such as that of Scotland, or one of: C0 but tab and newline, DEL, C1, line
# separators, bidirectional controls, deprecated format controls, annotations, lone surrogates, non-characters, tags
_FLAG_OR_CONTROL = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u206f\ud800-\udfff\ufdd0-\ufdef"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)


@dataclass(frozen=True)
class Argument:
    """An argument of a public function, mentioned in a message."""

    name: str
    value: Any = None  # None: the message is about the argument, whatever its value

    def __str__(self) -> str:
        """As Python's users write it."""
        if self.value is None:
            return self.name
        return f"{self.name}={self.value!r}"


class GaflowError(Exception):
    """Base of every error that gaflow raises on purpose.

    The message is joined without spaces from its parts: strings, and objects of type `Argument`.
    """

    def __init__(self, *message: str | Argument):
        super().__init__(*message)

    def __str__(self) -> str:
        """The message for users of Python."""
        return self.worded(str)

    @property
    def argument(self) -> str | None:
        """The name of the argument that the error is about, if it is about one."""
        for part in self.args:
            if isinstance(part, Argument):
                return part.name
        return None

    def worded(self, wording: Callable[[Argument], str]) -> str:
        """The message, with arguments written as `wording` has it, and nothing in it that a terminal would obey."""
        parts = []
        for part in self.args:
            parts.append(wording(part) if isinstance(part, Argument) else str(part))
        return visible("".join(parts))


class ArgumentError(GaflowError, ValueError):
    """An argument has a value that it must not have."""


class ArgumentTypeError(GaflowError, TypeError):
    """An argument has the wrong type."""


class SolveError(GaflowError):
    """The barrier solver did not reach its certificate; `flow` holds the flagged result, `items` who failed."""

    def __init__(self, message: str | Sequence[str | Argument], flow: Any, items: list[int]):
        parts = [message] if isinstance(message, str) else message
        super().__init__(*parts)
        self.flow = flow  # a `gaflow.Flow`, which this module must not import
        self.items = items


class UnsupportedModelError(GaflowError):
    """The model gives no attention weights of a shape that a layered network can be built from."""


class MissingExtraError(GaflowError, ImportError):
    """An optional dependency is not installed; the message says which extra brings it."""


class UnknownMethodError(GaflowError, ValueError):
    """No method of that name; the message lists the nearest names."""


class TargetError(GaflowError, ValueError):
    """The target is no class, label or contrast of this model."""


class TextError(GaflowError, ValueError):
    """The text is empty, or longer than the model takes."""


class DataError(GaflowError, ValueError):
    """A data set, or stored attributions, cannot be read as asked: no such column, wrong types, damaged files."""


class JobError(GaflowError, ValueError):
    """The folder of a data-set run belongs to another job, or to a process that is still at it."""


class DiskFullError(GaflowError, OSError):
    """A file could not be written because its disk, or the user's share of it, is full."""


class GaflowWarning(UserWarning):
    """Something that you should know about a result. The work continues."""


class TooLargeError(GaflowError, MemoryError):
    """A batch or a text needs more memory than the device has left; the message names what would fit."""


def unsupported(model: object, reason: str) -> UnsupportedModelError:
    """The error for a model that cannot be traced: why not, and which models can."""
    return UnsupportedModelError(
        f"{type(model).__name__} cannot be traced: {reason}. Use a model with softmax self-attention, such as "
        "BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT, MPNet, DeBERTa or ModernBERT"
    )


def visible(text: str) -> str:
    """`text` with control characters written as escapes; newlines (of any system) and tabs stay."""
    if text.isascii() and text.isprintable():  # most of the hundreds of strings on a page
        return text
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _FLAG_OR_CONTROL.sub(lambda match: match[1] or escape(match[0]), lines)


def escape(character: str) -> str:
    """A character as Python writes it: \\\\x1b, \\\\u202e, \\\\U000e0041."""
    code = ord(character)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
