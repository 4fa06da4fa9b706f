"""The report of a benchmark: the paper's tables and figures from the evaluations in a folder.

    tables.md, tables.tex     Tables 1 to 5, 6 and 8 of the paper, further measures, and all pairs of methods
    ranking.csv               the verdict: ranks, means with intervals, and tests against the best, for every method
    tables.csv                a row for each data set, replacement and method, with every number of Evaluation.table()
    pairs.csv, curves.csv     Almost Stochastic Order of all pairs; the points of the curves with their intervals
    figures/*.svg             masking curves (Figure 8), one text of each data set by all methods (Figure 9)
    report.html               all of it on one page

The convention this room owns: the same evaluations give the same files, byte for byte; nothing is computed again except
resamples of texts, by a seed.
"""

from gaflow.benchmark.report.write import report

__all__ = ["report"]
