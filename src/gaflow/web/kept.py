"""Results whose networks can be changed: the latest ones, as many as fit into a number of bytes."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import fields

from torch import Tensor

from gaflow.attribution.attribution import Attribution
from gaflow.flow.result import Flow
from gaflow.web.problems import HttpProblem

_BYTES_PER_TOKEN = 1000  # of texts, offsets and the like: an upper bound


class Kept:
    """Attributions by id; the one that was not used for longest is dropped first."""

    def __init__(self, limit: int):
        self.limit = limit  # bytes
        self.size = 0
        self._results: OrderedDict[str, tuple[Attribution, str | None, int]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, att: Attribution, model: str | None) -> str:
        """Keep a result of a model, and return its id."""
        key = secrets.token_urlsafe(12)
        size = size_of(att)
        with self._lock:
            self._results[key] = (att, model, size)
            self.size += size
            while self.size > self.limit and len(self._results) > 1:
                _, (_, _, dropped) = self._results.popitem(last=False)
                self.size -= dropped
        return key

    def get(self, key: str) -> tuple[Attribution, str | None]:
        """A kept result, and the name of its model."""
        with self._lock:
            if key not in self._results:
                raise HttpProblem(404, f"no result {key!r} is kept any more; explain the text again", "id")
            self._results.move_to_end(key)
            att, model, _ = self._results[key]
        return att, model

    def remove(self, key: str) -> None:
        """Drop a result."""
        with self._lock:
            if key in self._results:
                _, _, size = self._results.pop(key)
                self.size -= size

    def __len__(self) -> int:
        return len(self._results)


def size_of(att: Attribution) -> int:
    """About how many bytes an attribution takes."""
    size = _BYTES_PER_TOKEN * len(att.tokens) + 4 * (len(att.text) + len(att.text_pair or ""))
    for array in (att.scores, att.layers, att.token_matches):
        if array is not None:
            size += array.nbytes
    for flow in (att.flow, att.flow_against):
        if flow is not None:
            size += _flow_bytes(flow)
    return size


def _flow_bytes(flow: Flow) -> int:
    size = 0
    for field in fields(flow):
        value = getattr(flow, field.name)
        if isinstance(value, Tensor):
            size += value.untyped_storage().nbytes()
    return size
