"""Layer-wise relevance propagation through any model."""

from gaflow.lrp.relevance import Relevance, propagate

__all__ = ["Relevance", "propagate"]
