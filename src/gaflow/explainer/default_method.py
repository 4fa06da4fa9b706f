"""The one place that decides which method explains if the user names none.

`peeled_flow` explains every task, if it can follow the model: five forward and backward passes with balanced gradients
(docs/relevance_flow.md). Everywhere else the default is the paper's `agf`, and the result says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gaflow.errors import GaflowError
from gaflow.explainer.many import explain_many, prepare_one
from gaflow.explainer.runner import Runner
from gaflow.methods import METHODS, FlowMethod, Method, Scores
from gaflow.models.streamed_attention import HeadMean
from gaflow.models.tracing import Trace
from gaflow.tasks import TASKS

LEADING = "peeled_flow"  # if it can follow the model
DEFAULT = "agf"  # for all other models
DEFAULT_WORDS = f"{LEADING}, or {DEFAULT} where it cannot follow the model"
_PROBE = FlowMethod(preset=LEADING, rounds=2, share=0.5, throw=False)  # needs all of a model that `peeled_flow` does


@dataclass(frozen=True)
class FallbackToAgf:
    """`agf` in place of `peeled_flow`; the diagnostics of every result say why."""

    reason: str

    @property
    def name(self) -> str:
        """The name of the method that is used."""
        return METHODS[DEFAULT].name

    @property
    def head_means(self) -> tuple[HeadMean, ...] | None:
        """All that the method needs of attention."""
        return FlowMethod(DEFAULT).head_means

    @property
    def options(self) -> dict[str, Any]:
        """The settings of the method that is used, for manifests; each result has the reason."""
        return FlowMethod(DEFAULT).options

    def __call__(self, trace: Trace) -> Scores:
        """The scores of `agf`, and the reason."""
        scores = METHODS[DEFAULT](trace)
        note = f"{DEFAULT} instead of {LEADING}, which cannot follow this model: {self.reason}"
        diagnostics = []
        for of_text in scores.diagnostics or [{}] * len(scores.values):
            diagnostics.append({**of_text, "default": note})
        return replace(scores, diagnostics=tuple(diagnostics))


def default_method(runner: Runner) -> Method:
    """The default method for a model; explains a tiny input of its task to see whether `peeled_flow` works."""
    reason = _reason_against(runner, _PROBE)
    return METHODS[LEADING] if reason is None else FallbackToAgf(reason)


def verdict(runner: Runner) -> str:
    """Whether a model can be explained, by which method and why, from trials on a tiny input."""
    default = default_method(runner)
    if not isinstance(default, FallbackToAgf):
        return f"yes, with {LEADING}"
    reason = _reason_against(runner, METHODS[DEFAULT])
    if reason is None:
        return f"yes, but only with {DEFAULT}: {default.reason}"
    return f"no: {reason}"


def _reason_against(runner: Runner, method: Method) -> str | None:
    """Why a method cannot explain a tiny input of the model's task; None if it can."""
    try:
        tiny_input = TASKS[runner.task].probe(runner.tokenizer)
        text = prepare_one(runner, tiny_input, None, truncation=True, windows=False)
        list(explain_many(runner, [text], [method]))
    except GaflowError as error:
        return str(error).split(". ")[0]
    return None
