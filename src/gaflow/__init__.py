"""Explain the predictions of Transformer models by Generalized Attention Flow."""

import gaflow.cli.starting  # noqa: F401  # first, since all others take seconds to import
from gaflow.attribution.attribution import Attribution, TextUnit, load
from gaflow.attribution.axioms import Axioms, axioms
from gaflow.corpora.importances import corpus
from gaflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    DataError,
    DiskFullError,
    GaflowError,
    GaflowWarning,
    JobError,
    MissingExtraError,
    SolveError,
    TargetError,
    TextError,
    TooLargeError,
    UnknownMethodError,
    UnsupportedModelError,
)
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso
from gaflow.explainer.explainer import Explainer
from gaflow.explainer.one_call import explain
from gaflow.explainer.windows import Windows
from gaflow.flow import information
from gaflow.flow.barrier.solve import solve
from gaflow.flow.editing import edit
from gaflow.flow.maxflow.circulation import Circulation, min_cost_circulation
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.min_cut import CutEdge, MinCut, min_cut
from gaflow.flow.maxflow.score_ranges import ScoreRanges, score_ranges
from gaflow.flow.maxflow.shapley import ShapleyEstimate, shapley, shapley_estimate
from gaflow.flow.paper_algorithms import DenseNetwork, dense_network
from gaflow.flow.result import Certificate, Flow, Potentials
from gaflow.flow.routes import Route, Routes, routes
from gaflow.methods import METHODS, FlowMethod
from gaflow.models.custom_model import CustomModel
from gaflow.models.sentence_encoder import SentenceEncoder
from gaflow.schemas.published import schema

__all__ = [
    "METHODS",
    "ArgumentError",
    "ArgumentTypeError",
    "Attribution",
    "Axioms",
    "Certificate",
    "Circulation",
    "CustomModel",
    "CutEdge",
    "DataError",
    "DenseNetwork",
    "DiskFullError",
    "Evaluation",
    "Explainer",
    "Flow",
    "FlowMethod",
    "GaflowError",
    "GaflowWarning",
    "JobError",
    "MinCut",
    "MissingExtraError",
    "Potentials",
    "Route",
    "Routes",
    "ScoreRanges",
    "SentenceEncoder",
    "ShapleyEstimate",
    "SolveError",
    "TargetError",
    "TextError",
    "TextUnit",
    "TooLargeError",
    "UnknownMethodError",
    "UnsupportedModelError",
    "Windows",
    "aso",
    "axioms",
    "corpus",
    "dense_network",
    "edit",
    "evaluate",
    "explain",
    "information",
    "load",
    "max_flow",
    "min_cost_circulation",
    "min_cut",
    "routes",
    "schema",
    "score_ranges",
    "shapley",
    "shapley_estimate",
    "solve",
]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """The public names, for `gaflow.<TAB>`; modules that Python has put here are left out."""
    return [*__all__, "__version__"]
