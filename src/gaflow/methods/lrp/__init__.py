"""Layer-wise relevance propagation through any model."""

from gaflow.methods.lrp.propagate import Relevance, propagate

__all__ = ["Relevance", "propagate"]
