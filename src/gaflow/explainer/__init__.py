"""From texts to attributions: the explainer, batches, many texts, windows and the default method."""

from gaflow.explainer.explainer import Explainer
from gaflow.explainer.one_call import explain
from gaflow.explainer.windows import Windows

__all__ = ["Explainer", "Windows", "explain"]
