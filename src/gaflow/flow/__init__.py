"""The numerical core: capacity tensors in, flows with certificates out.

Nothing in this room knows a text, a token or a model.
"""

from gaflow.flow import information
from gaflow.flow.barrier.solve import solve
from gaflow.flow.maxflow.max_flow import max_flow
from gaflow.flow.maxflow.min_cut import CutEdge, MinCut, min_cut
from gaflow.flow.maxflow.score_ranges import ScoreRanges, score_ranges
from gaflow.flow.paper_algorithms import DenseNetwork, dense_network
from gaflow.flow.result import BatchCertificate, Certificate, Flow
from gaflow.flow.routes import Route, Routes, routes

__all__ = [
    "BatchCertificate",
    "Certificate",
    "CutEdge",
    "DenseNetwork",
    "Flow",
    "MinCut",
    "Route",
    "Routes",
    "ScoreRanges",
    "dense_network",
    "information",
    "max_flow",
    "min_cut",
    "routes",
    "score_ranges",
    "solve",
]
