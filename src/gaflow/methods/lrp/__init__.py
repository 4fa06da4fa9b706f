"""Layer-wise relevance propagation through any model."""

from gaflow.methods.lrp.balanced_mode import AttentionRule, BalancedMode
from gaflow.methods.lrp.propagate import Relevance, eager_compilation, propagate

__all__ = ["AttentionRule", "BalancedMode", "Relevance", "eager_compilation", "propagate"]
