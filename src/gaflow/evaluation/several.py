"""Evaluations of the same texts with several replacements of masked tokens.

The convention this file owns: tables of all replacements are those of the single ones, below each other, with a column
`replacement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaflow.arguments import checked, location, output_folder
from gaflow.errors import Argument, ArgumentError, visible
from gaflow.evaluation.ranking import Ranking, rank_methods
from gaflow.evaluation.result import Evaluation
from gaflow.extras import need

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Evaluations(Mapping[str, Evaluation]):
    """An Evaluation for each replacement of masked tokens, on the same texts.

    It is a mapping, which `gaflow.evaluate` returns for a list of replacements:

        scores = gaflow.evaluate(explainer, texts, methods=["agf", "ig"], replacement=["pad", "mask", "delete"])
        scores.table()
        print(scores.ranking().sentences())
        scores["mask"].significance("ig")
    """

    by_replacement: Mapping[str, Evaluation]

    def __getitem__(self, replacement: str) -> Evaluation:
        if replacement not in self.by_replacement:
            names = ", ".join(self.by_replacement)
            raise KeyError(f"{replacement!r} was not evaluated; there are {names}")
        return self.by_replacement[replacement]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_replacement)

    def __len__(self) -> int:
        return len(self.by_replacement)

    def table(self) -> pd.DataFrame:
        """One row per replacement and method."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        tables = {name: evaluation.table().drop(columns="replacement") for name, evaluation in self.items()}
        return pd.concat(tables, names=["replacement", "method"])

    @checked
    def curves(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """`Evaluation.curves()` of every replacement, with a column for it."""
        return self._stacked(lambda one: one.curves(confidence=confidence, resamples=resamples, seed=seed))

    @checked
    def significance(self, method: str = "agf", **options: Any) -> pd.DataFrame:
        """`Evaluation.significance()` of every replacement, with a column for it."""
        return self._stacked(lambda one: one.significance(method, **options))

    @checked
    def ranking(
        self,
        measure: str = "aopc",
        order: str = "top",
        *,
        confidence: float = 0.95,
        resamples: int = 500,
        seed: int = 0,
    ) -> Ranking:
        """Methods by the worst of their ranks over the replacements, with tests of all pairs."""
        return rank_methods(self, measure, order, confidence=confidence, resamples=resamples, seed=seed)

    @checked
    def save(self, folder: str | Path) -> None:
        """Write each Evaluation to a folder of its own, which has the name of the replacement."""
        target = output_folder("folder", folder)
        for name, evaluation in self.items():
            evaluation.save(target / name)

    @staticmethod
    def load(folder: str | Path) -> Evaluations:
        """Read what `save` wrote."""
        path = location("folder", folder)
        loaded = {}
        for description in sorted(path.glob("*/evaluation.json")):
            evaluation = Evaluation.load(description.parent)
            loaded[evaluation.replacement] = evaluation
        if not loaded:
            raise ArgumentError(Argument("folder"), f": no evaluations in {str(path)!r}")
        return Evaluations(loaded)

    def _stacked(self, table_of: Callable[[Evaluation], pd.DataFrame]) -> pd.DataFrame:
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        tables = []
        for name, evaluation in self.items():
            table = table_of(evaluation)
            table.insert(0, "replacement", name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def __repr__(self) -> str:
        first = next(iter(self.values()))
        methods = visible(", ".join(first.methods))
        return f"Evaluations({methods}; {len(first.sizes)} texts, replacements {', '.join(self)})"
