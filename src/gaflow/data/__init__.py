"""Data sets: texts with their labels, from files, the hub or memory, one row at a time.

    open_data -> DataSet -> survey (one pass: how many, what is skipped, a digest) -> rows, or a sample of them

The convention this room owns: **a data set can be read any number of times and always gives the same rows in the same
order**, and never more than a block of them is held. Row numbers count from 0 over all rows, skipped ones too.
"""

from gaflow.data.labels import Classes
from gaflow.data.rows import Row, Survey, rows_of, survey
from gaflow.data.sampling import Sample, draw_sample
from gaflow.data.sources import DataSet, open_data

__all__ = ["Classes", "DataSet", "Row", "Sample", "Survey", "draw_sample", "open_data", "rows_of", "survey"]
