"""Methods that turn the trace of a model into a score per token.

A settings object or a callable works wherever a name does.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from gaflow.errors import Argument, ArgumentTypeError, MissingExtraError, UnknownMethodError
from gaflow.methods.attention import AttentionFlow, RawAttention, Rollout
from gaflow.methods.base import DescribedMethod, Method, MethodInfo, Scores
from gaflow.methods.context_mixing import Alti, ValueZeroing
from gaflow.methods.control import Random
from gaflow.methods.flow import FlowMethod
from gaflow.methods.gradient import AttCat, AttGrads, AttnLrp, Cat, GradientTimesInput, Grads, GradSam
from gaflow.methods.perturbation import IntegratedGradients, KernelShap, Lime, Occlusion
from gaflow.methods.relevance import PartialLrp, TransAtt
from gaflow.plugins import Registry

__all__ = [
    "METHODS",
    "Alti",
    "AttCat",
    "AttGrads",
    "AttentionFlow",
    "AttnLrp",
    "Cat",
    "FlowMethod",
    "GradSam",
    "GradientTimesInput",
    "Grads",
    "IntegratedGradients",
    "KernelShap",
    "Lime",
    "Method",
    "MethodInfo",
    "Occlusion",
    "PartialLrp",
    "Random",
    "RawAttention",
    "Rollout",
    "Scores",
    "TransAtt",
    "ValueZeroing",
    "find_method",
]

_OWN: dict[str, DescribedMethod] = {
    "af": FlowMethod("af"),
    "gf": FlowMethod("gf"),
    "agf": FlowMethod("agf"),
    "relevance_flow": FlowMethod(preset="relevance_flow"),
    "peeled_flow": FlowMethod(preset="peeled_flow"),
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
    "attnlrp": AttnLrp(),
    "grad_x_input": GradientTimesInput(),
    "occlusion": Occlusion(),
    "value_zeroing": ValueZeroing(),
    "alti": Alti(),
    "attention_flow": AttentionFlow(),
    "random": Random(),
}

# Names of earlier versions, which stored results still show, and the methods to use instead.
_SUCCESSORS = {"path_flow": "peeled_flow", "signed_flow": "relevance_flow"}


def _check_plugin(name: str, method: object) -> None:
    """Refuse an object that is no described method, or that results would be stored under another name of."""
    if isinstance(method, type) or not isinstance(method, Method):
        raise TypeError("it is no method: an object with a name that maps a trace to Scores")
    if not isinstance(getattr(method, "info", None), MethodInfo):
        raise TypeError("it has no info, a gaflow.methods.MethodInfo that says what its scores mean")
    if method.name != name:
        raise ValueError(f"the method calls itself {method.name!r}; give both the same name")


METHODS: Registry[DescribedMethod] = Registry(_OWN, "gaflow.methods", _check_plugin)


def find_method(method: str | Method | Callable[..., Any], argument: str = "method") -> Method:
    """The settings object that `method` means: a name, itself, or the callable of an information tensor.

    A method whose optional libraries are not installed is refused here, before anything is computed.
    """
    settings = _find(method, Argument(argument))
    info = getattr(settings, "info", None)
    if isinstance(info, MethodInfo):
        for library in info.libraries:
            if find_spec(library) is None:
                raise MissingExtraError(
                    f"method {settings.name!r} needs {library}; run: pip install 'gaflow[{info.extra}]', "
                    "or leave it out"
                )
    return settings


def _find(method: object, argument: Argument) -> Method:
    if isinstance(method, str):
        name = method.strip().lower()
        if name in METHODS:
            return METHODS[name]
        if name in METHODS.broken:
            raise UnknownMethodError(argument, f": the plug-in {name!r} cannot be used: {METHODS.broken[name]}")
        if name in _SUCCESSORS:
            raise UnknownMethodError(argument, f": {name} was removed from gaflow; use {_SUCCESSORS[name]} instead")
        similar = difflib.get_close_matches(name, METHODS, n=3, cutoff=0.5)
        advice = f"; did you mean {' or '.join(similar)}?" if similar else "."
        raise UnknownMethodError(argument, f": there is no method {method!r}{advice} All: {', '.join(METHODS)}")
    if isinstance(method, type):
        kind = method.__name__
        raise ArgumentTypeError(argument, f" is the class {kind}; pass an instance of it, e.g. {kind}()")
    if isinstance(method, Method):
        return method
    if not callable(method):
        kind = type(method).__name__
        raise ArgumentTypeError(argument, f" must be a name, a settings object or a callable, not {kind}")
    information: Any = method
    return FlowMethod(information)
