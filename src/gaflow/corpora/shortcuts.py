"""Plausible shortcuts: n-grams that push a class far more than they appear in it.

An n-gram is listed if the lower end of the interval of

    lift = (its fraction of the scores above 0 of the class) / (its fraction of the words of the class)

is at least a threshold, and if it does push the class: the interval of its mean share lies above 0. The words of a
sentiment model's job ("superb") have a high lift too. What to look for are words that should not decide: names,
places, punctuation, markup. A low `gold_rate` beside a high lift says that the model trusts the word more than the true
classes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaflow.arguments import checked, positive_number
from gaflow.corpora.importances import check_table

if TYPE_CHECKING:
    from pandas import DataFrame


@checked
def shortcuts(table: DataFrame, *, lift: float = 3.0) -> DataFrame:
    """The rows of a table of `gaflow.corpus` whose lift is at least `lift` for certain, the largest first.

    >>> gaflow.corpora.shortcuts(gaflow.corpus("attributions")).head()
    """
    check_table(table)
    positive_number("lift", lift)
    certain = table.loc[(table["lift_low"] >= lift) & (table["low"] > 0)]
    return certain.sort_values("lift_low", ascending=False, kind="stable", ignore_index=True)
