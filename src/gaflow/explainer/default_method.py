"""The one place that decides which method explains if the user names none.

`path_flow` leads all methods of gaflow when the tokens of highest score are masked, on every data set that we measured
(docs/benchmark.md). All of these are about classes of whole texts. So `path_flow` is the default for text
classification if it can follow the model. Everywhere else, and for data sets, the default is the paper's `agf`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gaflow.errors import GaflowError
from gaflow.explainer.batch import explain_batch
from gaflow.explainer.runner import Runner
from gaflow.methods import METHODS, FlowMethod, Method, Scores
from gaflow.models.tracing import Trace
from gaflow.tasks.classification import ClassificationHead

LEADING = "path_flow"  # for classes of texts
DEFAULT = "agf"  # for everything else, and for data sets
_PROBE = FlowMethod(
    preset=LEADING, steps=1, groups=1, ranked=0, throw=False
)  # needs all of a model that `path_flow` does, once


@dataclass(frozen=True)
class FallbackToAgf:
    """`agf` in place of `path_flow`; the diagnostics of every result say why."""

    reason: str

    @property
    def name(self) -> str:
        """The name of the method that is used."""
        return METHODS[DEFAULT].name

    def __call__(self, trace: Trace) -> Scores:
        """The scores of `agf`, and the reason."""
        scores = METHODS[DEFAULT](trace)
        note = f"{DEFAULT} instead of {LEADING}, which cannot follow this model: {self.reason}"
        diagnostics = []
        for of_text in scores.diagnostics or [{}] * len(scores.values):
            diagnostics.append({**of_text, "default": note})
        return replace(scores, diagnostics=tuple(diagnostics))


def default_name(task: str) -> str:
    """The name of the default method for a task, if it can follow the model."""
    return LEADING if task == "text-classification" else DEFAULT


def default_method(runner: Runner) -> Method:
    """The default method for a model; for text classification, explains two words to see whether `path_flow` works."""
    name = default_name(runner.task)
    is_regression = isinstance(runner.head, ClassificationHead) and runner.head.link == "none"
    if name == DEFAULT or is_regression:
        return METHODS[DEFAULT]
    try:
        encodings = runner.encode(["one two"], names=["text"], truncation=True)
        explain_batch(runner, encodings, [None], [_PROBE])
    except GaflowError as error:
        return FallbackToAgf(str(error).split(". ")[0])
    return METHODS[name]
