"""Measures of attributions: faithfulness by masking, agreement with people's rationales, planted words, significance."""

from gaflow.evaluation.aopc_bounds import Bounds
from gaflow.evaluation.faithfulness import evaluate
from gaflow.evaluation.planted_words import Planted, Recovery, plant, planted_words, recovery
from gaflow.evaluation.rationales import plausibility
from gaflow.evaluation.result import Evaluation
from gaflow.evaluation.significance import aso
from gaflow.evaluation.soft_masking import Soft

__all__ = [
    "Bounds",
    "Evaluation",
    "Planted",
    "Recovery",
    "Soft",
    "aso",
    "evaluate",
    "plant",
    "planted_words",
    "plausibility",
    "recovery",
]
