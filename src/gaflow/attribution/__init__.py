"""The result of an explanation: scores of tokens and words, its files, exports and axioms."""

from gaflow.attribution.attribution import Attribution, load
from gaflow.attribution.axioms import Axioms, axioms
from gaflow.attribution.words import TextUnit

__all__ = ["Attribution", "Axioms", "TextUnit", "axioms", "load"]
