"""Everything that touches a model: loading, tracing, adapters, memory and cost."""

from gaflow.models.adapters import ADAPTERS, REFUSED, Adapter
from gaflow.models.cost import Estimate, Geometry, MethodCost, estimate
from gaflow.models.forward import ForwardPass, compute_logits, forward
from gaflow.models.loading import Loaded, LoadOptions, load_model
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, TracedModel, backward

__all__ = [
    "ADAPTERS",
    "REFUSED",
    "Adapter",
    "Estimate",
    "ForwardPass",
    "Geometry",
    "LoadOptions",
    "Loaded",
    "MethodCost",
    "Trace",
    "TracedModel",
    "backward",
    "borrow",
    "compute_logits",
    "estimate",
    "forward",
    "load_model",
]
