"""Measures of attributions: faithfulness by masking, agreement with rationales, planted words, significance."""

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.edge_faithfulness import EdgeEvaluation, edges
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.planted_words import PLANTED_KINDS, Planted, Recovery, plant, planted_words, recovery
from gaflow.evaluation.ranking import Ranking
from gaflow.evaluation.rationales import auprc, plausibility, rationale_mask, select_top, token_f1
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.several import Evaluations
from gaflow.evaluation.significance import aso
from gaflow.evaluation.soft_masking import Soft

__all__ = [
    "PLANTED_KINDS",
    "Bounds",
    "EdgeEvaluation",
    "Evaluation",
    "Evaluations",
    "Planted",
    "Ranking",
    "Recovery",
    "Soft",
    "aso",
    "auprc",
    "edges",
    "evaluate",
    "plant",
    "planted_words",
    "plausibility",
    "rationale_mask",
    "recovery",
    "select_top",
    "token_f1",
]
