"""Labels of a data set as classes of a model.

A number is a class index, a string one of the model's labels. Names turn the data set's numbers into the model's
labels: those the caller gives, else those the data set brings along, unless the model calls its classes LABEL_0,
LABEL_1, ... and names would say nothing. The convention this file owns: **None and -1 mean that a row has no
label**; any other label that is no class of the model is an error, never a gap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaflow.data.sources import DataSet, LabelNames
from gaflow.errors import DataError, TargetError
from gaflow.tasks.classification import ClassificationHead
from gaflow.tasks.targets import as_integer

__all__ = ["Classes"]


@dataclass(frozen=True)
class Classes:
    """How labels become class indices."""

    head: ClassificationHead
    names: LabelNames | None = None

    @classmethod
    def of(cls, data: DataSet, head: ClassificationHead) -> Classes:
        """The names that hold for a data set and a model."""
        if isinstance(data.label_names, str):
            raise TypeError(f"label_names must be a list or a mapping, not the string {data.label_names!r}")
        nameless = all(re.fullmatch(r"LABEL_\d+", label) for label in head.labels)
        own = data.own_names if data.own_names and not nameless else None
        return cls(head, data.label_names if data.label_names is not None else own)

    def index(self, label: Any, where: str) -> int | None:
        """The class that `label` means, or None for no label; `where` is what an error calls the place."""
        plain = _plain(label)
        known = {str(_plain(k)): v for k, v in self.names.items()} if isinstance(self.names, Mapping) else {}
        if str(plain) in known:
            return self._find(known[str(plain)], label, where)
        if plain is None or plain == -1 or plain == "":
            return None
        if isinstance(self.names, Mapping):
            raise DataError(f"{where}: label {label!r} is not among label_names, which has {', '.join(known)}")
        if self.names is not None and isinstance(plain, int):
            if not 0 <= plain < len(self.names):
                raise DataError(f"{where}: label {label!r}, but there are {len(self.names)} label names")
            return self._find(self.names[plain], label, where)
        return self._find(plain, label, where)

    def _find(self, name: Any, label: Any, where: str) -> int:
        try:
            found = self.head.parse(name)
            if not isinstance(found, int):
                raise TargetError(f"{name!r} is no single class")
        except (TargetError, TypeError) as error:
            raise DataError(
                f"{where}: label {label!r} is no class of the model: {error}. Say what labels mean by label_names"
            ) from None
        return found


def _plain(label: Any) -> Any:
    """Whole numbers as such, however a file or NumPy writes them: 1, 1.0, true, "1"."""
    if isinstance(label, bool):
        return int(label)
    if (number := as_integer(label)) is not None:
        return number
    if isinstance(label, float) and label.is_integer():
        return int(label)
    if isinstance(label, float) and label != label:
        return None
    if isinstance(label, str):
        folded = label.strip()
        return int(folded) if re.fullmatch(r"-?[0-9]{1,9}", folded) else folded
    return label
