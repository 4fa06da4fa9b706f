"""Importances over a corpus: words and n-grams by class, with intervals and examples, from a stored run."""

from gaflow.corpora.corpus_page import corpus_page
from gaflow.corpora.importances import corpus
from gaflow.corpora.shortcuts import shortcuts

__all__ = ["corpus", "corpus_page", "shortcuts"]
