"""Explain the predictions of Transformer models by Generalized Attention Flow."""

__version__ = "0.1.0"
