"""Explain the predictions of Transformer models by Generalized Attention Flow."""

from gaflow import information
from gaflow.attribution import Attribution, Word, load
from gaflow.dense import DenseNetwork, dense_network
from gaflow.errors import (
    GaflowError,
    MissingExtraError,
    SolveError,
    TargetError,
    TextError,
    UnknownMethodError,
    UnsupportedModelError,
)
from gaflow.explainer import Explainer, explain
from gaflow.methods import METHODS, FlowMethod
from gaflow.network import Certificate, Flow
from gaflow.solvers.barrier import solve
from gaflow.solvers.maxflow import max_flow

__all__ = [
    "METHODS",
    "Attribution",
    "Certificate",
    "DenseNetwork",
    "Explainer",
    "Flow",
    "FlowMethod",
    "GaflowError",
    "MissingExtraError",
    "SolveError",
    "TargetError",
    "TextError",
    "UnknownMethodError",
    "UnsupportedModelError",
    "Word",
    "dense_network",
    "explain",
    "information",
    "load",
    "max_flow",
    "solve",
]

__version__ = "0.1.0"
