"""Benchmarks: attributions of whole data sets, their evaluation, and the report."""
