"""Data sets: texts with their labels from files, the hub or memory, one row at a time.

    open_data -> DataSet -> survey (one pass: number of rows, skipped rows, a digest) -> rows, or a sample of them

The convention this room owns: **a data set can be read any number of times and always gives the same rows in the same
order**. Only a block of rows is in memory at a time. Row numbers count from 0 over all rows, skipped ones included.
"""

from gaflow.data.labels import Classes
from gaflow.data.readers import Columns
from gaflow.data.rows import Row, Survey, rows_of, survey
from gaflow.data.sampling import Sample, draw_sample
from gaflow.data.sources import DataSet, open_data

__all__ = ["Classes", "Columns", "DataSet", "Row", "Sample", "Survey", "draw_sample", "open_data", "rows_of", "survey"]
