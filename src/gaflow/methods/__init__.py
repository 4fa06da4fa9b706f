"""The methods: names to settings objects. A settings object or a callable works wherever a name does."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from gaflow.errors import MissingExtraError, UnknownMethodError
from gaflow.methods.attention import AttentionFlow, RawAttention, Rollout
from gaflow.methods.base import Method, MethodInfo, Scores
from gaflow.methods.control import Random
from gaflow.methods.flow import FlowMethod, PathFlow, SignedFlow
from gaflow.methods.gradient import AttCat, AttGrads, Cat, Grads, GradSam
from gaflow.methods.perturbation import IntegratedGradients, KernelShap, Lime
from gaflow.methods.relevance import PartialLrp, TransAtt

__all__ = [
    "DEFAULT",
    "METHODS",
    "AttCat",
    "AttGrads",
    "AttentionFlow",
    "Cat",
    "FlowMethod",
    "GradSam",
    "Grads",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
    "Method",
    "MethodInfo",
    "PartialLrp",
    "PathFlow",
    "Random",
    "RawAttention",
    "Rollout",
    "Scores",
    "SignedFlow",
    "TransAtt",
    "find_method",
]

METHODS: dict[str, Method] = {
    "af": FlowMethod("af"),
    "gf": FlowMethod("gf"),
    "agf": FlowMethod("agf"),
    "signed_flow": SignedFlow(),
    "path_flow": PathFlow(),
    "rawatt": RawAttention(),
    "rollout": Rollout(),
    "grads": Grads(),
    "attgrads": AttGrads(),
    "gradsam": GradSam(),
    "cat": Cat(),
    "attcat": AttCat(),
    "partial_lrp": PartialLrp(),
    "transatt": TransAtt(),
    "ig": IntegratedGradients(),
    "kernel_shap": KernelShap(),
    "lime": Lime(),
    "attention_flow": AttentionFlow(),
    "random": Random(),
}

DEFAULT = "agf"


def find_method(method: str | Method | Callable[..., Any] | None) -> Method:
    """The settings object that `method` means: a name, itself, or an information tensor's callable.

    A method whose optional libraries are not installed is refused here, before anything is computed.
    """
    found = _find(DEFAULT if method is None else method)
    about = getattr(found, "info", None)
    if isinstance(about, MethodInfo):
        for library in about.libraries:
            if find_spec(library) is None:
                raise MissingExtraError(
                    f"method {found.name!r} needs {library}; run: pip install 'gaflow[{about.extra}]', or leave it out"
                )
    return found


def _find(method: str | Method | Callable[..., Any]) -> Method:
    if isinstance(method, str):
        folded = method.strip().lower()
        if folded in METHODS:
            return METHODS[folded]
        near = difflib.get_close_matches(folded, METHODS, n=3, cutoff=0.5)
        meant = f"; did you mean {' or '.join(near)}?" if near else "."
        raise UnknownMethodError(f"no method {method!r}{meant} All: {', '.join(METHODS)}")
    if isinstance(method, type):
        raise TypeError(f"method is the class {method.__name__}; give an instance of it, e.g. {method.__name__}()")
    if isinstance(method, Method):
        return method
    if callable(method):
        return FlowMethod(information=method)
    raise TypeError(f"method must be a name, a settings object or a callable, not {type(method).__name__}")
