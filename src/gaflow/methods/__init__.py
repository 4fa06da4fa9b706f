"""The methods: names to settings objects. A settings object or a callable works wherever a name does."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from gaflow.errors import UnknownMethodError
from gaflow.methods.flow import FlowMethod
from gaflow.methods.scores import Method, Scores

__all__ = ["DEFAULT", "METHODS", "FlowMethod", "Method", "Scores", "find_method"]

METHODS: dict[str, Method] = {
    "af": FlowMethod("af"),
    "gf": FlowMethod("gf"),
    "agf": FlowMethod("agf"),
}

DEFAULT = "agf"


def find_method(method: str | Method | Callable[..., Any] | None) -> Method:
    """The settings object that `method` means: a name, itself, or an information tensor's callable."""
    if method is None:
        return METHODS[DEFAULT]
    if isinstance(method, str):
        folded = method.strip().lower()
        if folded in METHODS:
            return METHODS[folded]
        near = difflib.get_close_matches(folded, METHODS, n=3, cutoff=0.5) or list(METHODS)
        raise UnknownMethodError(f"no method {method!r}; did you mean {' or '.join(near)}? All: {', '.join(METHODS)}")
    if isinstance(method, type):
        raise TypeError(f"method is the class {method.__name__}; give an instance of it, e.g. {method.__name__}()")
    if isinstance(method, Method):
        return method
    if callable(method):
        return FlowMethod(information=method)
    raise TypeError(f"method must be a name, a settings object or a callable, not {type(method).__name__}")
