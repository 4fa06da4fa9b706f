"""Measures of attributions: faithfulness by masking, agreement with rationales, planted words, significance."""

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.counterfactuals import CounterfactualPair, counterfactual_pairs, counterfactual_rows
from gaflow.evaluation.edge_faithfulness import (
    EdgeEvaluation,
    EdgeSetEvaluation,
    cut_edges,
    edge_sets,
    edges,
    route_edges,
)
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.interactions import (
    InteractionEvaluation,
    attention_ablation,
    interactions,
    second_order,
    shared_flow,
)
from gaflow.evaluation.planted_words import PLANTED_KINDS, Planted, Recovery, plant, planted_words, recovery
from gaflow.evaluation.ranking import Ranking
from gaflow.evaluation.rationales import auprc, plausibility, rationale_mask, select_top, token_f1
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.several import Evaluations
from gaflow.evaluation.significance import aso
from gaflow.evaluation.soft_masking import Soft
from gaflow.evaluation.stability import Stability, stability

__all__ = [
    "PLANTED_KINDS",
    "Bounds",
    "CounterfactualPair",
    "EdgeEvaluation",
    "EdgeSetEvaluation",
    "Evaluation",
    "Evaluations",
    "InteractionEvaluation",
    "Planted",
    "Ranking",
    "Recovery",
    "Soft",
    "Stability",
    "aso",
    "attention_ablation",
    "auprc",
    "counterfactual_pairs",
    "counterfactual_rows",
    "cut_edges",
    "edge_sets",
    "edges",
    "evaluate",
    "interactions",
    "plant",
    "planted_words",
    "plausibility",
    "rationale_mask",
    "recovery",
    "route_edges",
    "second_order",
    "select_top",
    "shared_flow",
    "stability",
    "token_f1",
]
