"""Whether two descriptions are those of the same run, and plain words for what differs.

The convention this file owns: what the user has chosen decides. Another model, data set, method or setting, and another
release of a library that computes, make **another run, which is refused**. What comes with the machine (threads,
processor, patches of libraries) changes the last digits at most: the run **continues with a warning**, and its manifest
lists the environments. What an earlier version of gaflow did not record is no difference.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaflow.errors import Argument, GaflowWarning, JobError, visible

Words = tuple[str | Argument, ...]  # parts of a message

ENVIRONMENT = ("versions", "threads", "processor")
_COMPUTING_LIBRARIES = ("versions.torch", "versions.transformers", "versions.tokenizers")
_MAY_DIFFER = ("model.name", "model.revision", "data.name")  # because the hashes decide
_RECORDED_LATER = (  # earlier versions did not; without a row here, runs that they began could not go on
    "model.config", "model.modules", "model.code", "model.attention", "model.autocast", "model.tokenizer.settings",
    "threads", "processor",
)  # fmt: skip
_FOLLOWING = (  # entries that differ only if others do
    "texts", "skipped", "unlabelled", "sample.mode", "sample.shorter", "sample.longer", "sample.equal",
)  # fmt: skip
_ARGUMENTS = {  # entries that are arguments under another name
    "columns.text": "text_column",
    "columns.pair": "pair_column",
    "columns.label": "label_column",
    "data.limit": "limit",
    "sample.size": "sample",
    "sample.seed": "seed",
    "model.device": "device",
    "model.dtype": "dtype",
}
_PHRASES = {  # for entries that are no arguments
    "schema": "the format of the stored rows",
    "stored": "whether attributions were stored before",
    "name": "the name of the data set",
    "data.rows": "the number of rows",
    "batch_memory": "the memory of a batch",
    "model.class": "the class of the model",
    "model.labels": "the list of labels",
    "model.limit": "the longest input of the model",
    "model.config": "the model's config",
    "model.modules": "the layers of the model",
    "model.code": "the code that came with the model",
    "model.attention": "the model's attention implementation",
    "model.autocast": "the automatic precision of torch",
    "model.tokenizer.class": "the class of the tokenizer",
    "model.tokenizer.settings": "the settings of the tokenizer",
    "threads": "the number of threads",
    "processor": "the processor",
}
_GROUPS = {  # prefixes of entries that are settings of something
    "model.config.": "in the model's config",
    "model.tokenizer.settings.": "of the tokenizer",
    "bounds.": "of bounds",
    "soft.": "of soft",
    "windows.": "of windows",
    "versions.": "",
}
_HASHES = {
    "data.sha256": "the texts or the labels of the data set differ",
    "model.weights": "the weights of the model differ",
    "model.modules": "the layers of the model differ",
    "model.code": "the code that came with the model differs",
    "model.tokenizer.sha256": "the vocabulary or the rules of the tokenizer differ",
    "attributions": "the attributions differ",
}
_LISTED_DIFFERENCES = 3  # in an error message
_LONGEST_VALUE = 60  # characters, in an error message


@dataclass(frozen=True)
class Comparison:
    """How the description stored in a folder differs from that of the current run."""

    decisive: list[Words] = field(default_factory=list)  # make it another run
    following: list[Words] = field(default_factory=list)  # make it another run, but something else is the cause
    rounding: list[Words] = field(default_factory=list)  # change the last digits
    unrecorded: list[str] = field(default_factory=list)  # cannot be compared

    def refuse(self, folder: str | Path) -> None:
        """Raise an error if the folder holds another run."""
        by_arguments_first = sorted(self.decisive, key=lambda words: not isinstance(words[0], Argument))
        listed = [*by_arguments_first, *self.following][:_LISTED_DIFFERENCES]
        if not listed:
            return
        parts: list[str | Argument] = [f"{str(folder)!r} holds another run: ", *listed[0]]
        for words in listed[1:]:
            parts += ["; ", *words]
        more = len(self.decisive) - len(listed)
        if more > 0:
            parts.append(f"; and {more} more")
        advice = "Continue it with the model and the settings that it was begun with, or give a new folder"
        raise JobError(*parts, f". {advice}")

    def warn(self, folder: str | Path) -> None:
        """Warn if what is computed now may differ from what the folder holds."""
        if self.rounding:
            listed = "; ".join("".join(map(str, words)) for words in self.rounding)
            message = f"what is computed now equals the rest of {str(folder)!r} only up to rounding: {listed}"
            warnings.warn(visible(message), GaflowWarning, stacklevel=2)
        if self.unrecorded:
            message = (
                f"{str(folder)!r} was begun by another version of gaflow. Make sure that these are still the same, "
                f"because it cannot be checked: {', '.join(self.unrecorded)}"
            )
            warnings.warn(message, GaflowWarning, stacklevel=2)


def compare(stored: Mapping[str, Any], current: Mapping[str, Any]) -> Comparison:
    """Compare a description that was read from a file with that of the current run."""
    comparison = Comparison()
    _compare_records("", stored, json.loads(json.dumps(current)), comparison)
    return comparison


def _compare_records(
    prefix: str, stored: Mapping[str, Any], current: Mapping[str, Any], comparison: Comparison
) -> None:
    for name in dict.fromkeys([*stored, *current]):
        entry = f"{prefix}{name}"
        before = stored.get(name)
        now = current.get(name)
        if entry in _MAY_DIFFER or _text(before) == _text(now):
            continue
        if name not in stored and entry in _RECORDED_LATER:
            comparison.unrecorded.append(_PHRASES.get(entry, entry))
        elif entry == "versions.gaflow":
            comparison.unrecorded.append("the methods (see CHANGELOG.md)")
        elif entry == "methods":
            _compare_methods(before, now, comparison)
        elif isinstance(before, Mapping) and isinstance(now, Mapping):
            _compare_records(f"{entry}.", before, now, comparison)
        else:
            words = _words(entry, before, now)
            if entry in _FOLLOWING:
                comparison.following.append(words)
            elif entry.partition(".")[0] in ENVIRONMENT and not _is_other_release(entry, before, now):
                comparison.rounding.append(words)
            else:
                comparison.decisive.append(words)


def _text(value: object) -> str:
    """JSON, in which even a NaN equals itself."""
    return json.dumps(value, sort_keys=True)


def _compare_methods(stored: Any, current: Any, comparison: Comparison) -> None:
    names_before = _method_names(stored)
    names_now = _method_names(current)
    if names_before != names_now:
        difference = f": {names_before} there, but {names_now} here"
        comparison.decisive.append((Argument("methods"), difference))
        return
    for before, now in zip(stored, current, strict=True):
        code_before = before.get("code")
        code_now = now.get("code")
        if code_before != code_now:
            phrase = f"the code of method {now['name']}"
            if code_before is None:
                comparison.unrecorded.append(phrase)
            else:
                comparison.decisive.append((f"{phrase} differs",))
        settings_before = before.get("settings", {})
        for setting, value in now.get("settings", {}).items():
            if setting not in settings_before:
                comparison.unrecorded.append(f"{setting} of method {now['name']}")
            elif _text(value) != _text(settings_before[setting]):
                phrase = f"{setting} of method {now['name']}"
                comparison.decisive.append((phrase, _values(settings_before[setting], value)))


def _method_names(methods: Sequence[Mapping[str, Any] | str] | None) -> str:
    """The methods of a description: records, names of stored ones, or None for all that are stored."""
    if not methods:
        return "all"
    return ", ".join(method["name"] if isinstance(method, Mapping) else method for method in methods)


def _is_other_release(entry: str, before: object, now: object) -> bool:
    """Whether a library that computes has another version, of which the first two numbers count."""
    if entry not in _COMPUTING_LIBRARIES:
        return False
    return str(before).split(".")[:2] != str(now).split(".")[:2]


def _words(entry: str, before: object, now: object) -> Words:
    """One difference, in words of the user."""
    if entry in _HASHES:
        return (_HASHES[entry],)
    values = _values(before, now)
    if entry in _PHRASES:
        return _PHRASES[entry], values
    for prefix, owner in _GROUPS.items():
        if entry.startswith(prefix):
            return f"{entry.removeprefix(prefix)} {owner}".strip(), values
    return Argument(_ARGUMENTS.get(entry, entry)), values


def _values(before: object, now: object) -> str:
    return f" is {_shortened(before)} there, {_shortened(now)} here"


def _shortened(value: object) -> str:
    if isinstance(value, Mapping):  # of settings that are off on the other side
        return str(value.get("size") or "set")
    text = repr(value)
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[: _LONGEST_VALUE - 3]}..."
