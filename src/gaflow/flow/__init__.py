"""The numerical core: capacity tensors in, flows with certificates out.

Nothing in this room knows a text, a token or a model.
"""

from gaflow.flow import information
from gaflow.flow.barrier.solve import solve
from gaflow.flow.editing import Edits, edit, grouped
from gaflow.flow.maxflow.circulation import Circulation, min_cost_circulation
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.min_cut import CutEdge, MinCut, min_cut
from gaflow.flow.maxflow.score_ranges import ScoreRanges, score_ranges
from gaflow.flow.maxflow.shapley import ShapleyEstimate, shapley, shapley_estimate
from gaflow.flow.paper_algorithms import DenseNetwork, dense_network
from gaflow.flow.result import BatchCertificate, Certificate, Flow, Potentials
from gaflow.flow.routes import Route, Routes, routes

__all__ = [
    "BatchCertificate",
    "Certificate",
    "Circulation",
    "CutEdge",
    "DenseNetwork",
    "Edits",
    "Flow",
    "MinCut",
    "Potentials",
    "Route",
    "Routes",
    "ScoreRanges",
    "ShapleyEstimate",
    "dense_network",
    "edit",
    "grouped",
    "information",
    "max_flow",
    "min_cost_circulation",
    "min_cut",
    "routes",
    "score_ranges",
    "shapley",
    "shapley_estimate",
    "solve",
]
