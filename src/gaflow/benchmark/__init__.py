"""Benchmarks: attributions of data sets, their evaluation by masking, and a report of tables and figures."""

from gaflow.benchmark.folder_layout import PAPER_METHODS
from gaflow.benchmark.report import report
from gaflow.benchmark.run import DataSetOutcome, bench

__all__ = ["PAPER_METHODS", "DataSetOutcome", "bench", "report"]
