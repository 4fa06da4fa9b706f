"""Labels of a data set as classes of a model.

A number is a class index, a string is one of the model's labels. Label names translate the numbers of the data set to
labels of the model: the caller's names, or else those that come with the data set. The data set's names are ignored if
the model calls its classes LABEL_0, LABEL_1, ...

The convention this file owns: **None and -1 mean that a row has no label**. Any other label that is not a class of the
model is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from gaflow.data.sources import DataSet, LabelNames
from gaflow.errors import Argument, DataError, TargetError
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import as_integer

_LABEL_NAMES = Argument("label_names")


@dataclass(frozen=True)
class Classes:
    """The translation of labels to class indices."""

    head: ClassificationHead
    names: LabelNames | None = None

    @classmethod
    def of(cls, data: DataSet, head: ClassificationHead) -> Classes:
        """The translation for a data set and a model."""
        names = data.label_names
        if names is None and data.class_names:
            nameless = all(re.fullmatch(r"LABEL_\d+", label) for label in head.labels)
            names = None if nameless else data.class_names
        return cls(head, names)

    @cached_property
    def _by_label(self) -> dict[str, str | int]:
        """The names by label, if they are a mapping."""
        if not isinstance(self.names, Mapping):
            return {}
        return {str(_normalized(label)): name for label, name in self.names.items()}

    def index(self, label: object, location: str) -> int | None:
        """The class index of a label, or None for no label; errors begin with `location`."""
        value = _normalized(label)
        if str(value) in self._by_label:
            return self._class_index(self._by_label[str(value)], label, location)
        if value is None or value == -1 or value == "":
            return None
        if isinstance(self.names, Mapping):
            listed = ", ".join(self._by_label)
            raise DataError(f"{location}: label {label!r} is not among ", _LABEL_NAMES, f", which has {listed}")
        if self.names is not None and isinstance(value, int):
            if not 0 <= value < len(self.names):
                raise DataError(f"{location}: label {label!r}, but there are {len(self.names)} label names")
            value = self.names[value]
        return self._class_index(value, label, location)

    def _class_index(self, name: object, label: object, location: str) -> int:
        try:
            index = self.head.parse(name)
            if not isinstance(index, int):
                raise TargetError(f"{name!r} is no single class")
        except (TargetError, TypeError) as error:
            message = f"{location}: label {label!r} is no class of the model: {error}. Say what labels mean by "
            raise DataError(message, _LABEL_NAMES) from None
        return index


def _normalized(label: object) -> object:
    """Whole numbers as int, in whichever way a file or NumPy writes them: 1, 1.0, true, "1"; NaN as None."""
    if isinstance(label, bool):
        return int(label)
    number = as_integer(label)
    if number is not None:
        return number
    if isinstance(label, float):
        if label != label:
            return None
        return int(label) if label.is_integer() else label
    if isinstance(label, str):
        stripped = label.strip()
        return int(stripped) if re.fullmatch(r"-?[0-9]{1,9}", stripped) else stripped
    return label
