"""Explain the predictions of Transformer models by Generalized Attention Flow."""

from gaflow import information
from gaflow.attribution import Attribution, Word, load
from gaflow.dense import DenseNetwork, dense_network
from gaflow.errors import (
    DataError,
    GaflowError,
    JobError,
    MissingExtraError,
    SolveError,
    TargetError,
    TextError,
    TooLargeError,
    UnknownMethodError,
    UnsupportedModelError,
)
from gaflow.evaluation.evaluate import evaluate
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso
from gaflow.explainer import Explainer
from gaflow.methods import METHODS, FlowMethod
from gaflow.network import Certificate, Flow
from gaflow.one_call import explain
from gaflow.shapley import Axioms, axioms
from gaflow.solvers.barrier import solve
from gaflow.solvers.cut import CutEdge, MinCut, min_cut
from gaflow.solvers.maxflow import max_flow
from gaflow.solvers.ranges import ScoreRanges, score_ranges
from gaflow.solvers.routes import Route, Routes, routes
from gaflow.windows import Windows

__all__ = [
    "METHODS",
    "Attribution",
    "Axioms",
    "Certificate",
    "CutEdge",
    "DataError",
    "DenseNetwork",
    "Evaluation",
    "Explainer",
    "Flow",
    "FlowMethod",
    "GaflowError",
    "JobError",
    "MinCut",
    "MissingExtraError",
    "Route",
    "Routes",
    "ScoreRanges",
    "SolveError",
    "TargetError",
    "TextError",
    "TooLargeError",
    "UnknownMethodError",
    "UnsupportedModelError",
    "Windows",
    "Word",
    "aso",
    "axioms",
    "dense_network",
    "evaluate",
    "explain",
    "information",
    "load",
    "max_flow",
    "min_cut",
    "routes",
    "score_ranges",
    "solve",
]

__version__ = "0.1.0"
