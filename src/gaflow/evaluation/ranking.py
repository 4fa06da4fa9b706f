"""Which methods are best, and how sure that is: ranks by the worst of several evaluations, and tests of all pairs.

An evaluation ranks methods by the mean of a measure over texts; 1 is the best rank, and equal means share it. Several
evaluations of the same texts, with different replacements of masked tokens, rank a method by the **worst** of its
ranks: a method is only as good as under the replacement that suits it least. Ties are ordered by the mean rank.

Two tests compare a pair of methods in each evaluation: a sign-flip test of paired differences, and Almost Stochastic
Order. Of several evaluations the largest p-value and the largest eps_min count, so a claim holds for each of them. Both
are corrected for all pairs of methods (Holm, Bonferroni), since the best method is picked after looking at the results.

    clearly better       p < 0.05 and eps_min < 0.2
    better on average    p < 0.05 only
    not told apart       neither this way nor the other way round

The convention this file owns: **arrays are in the order of `methods`**, which is the best first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.metrics import better
from gaflow.evaluation.significance import aso_pairs, bootstrap_means, holm, interval, sign_flip_test
from gaflow.extras import need

if TYPE_CHECKING:
    import pandas as pd

    from gaflow.evaluation.result import Evaluation

SIGNIFICANT = 0.05  # p-values below are
DOMINANT = 0.2  # eps_min below which a method is better by Almost Stochastic Order (Ulmer et al. 2022)
CLEARLY, ON_AVERAGE, NOT_APART = "clearly better", "better on average", "not told apart"
CONTROL = "random"
_LEAST_PERMUTATIONS = 10_000
_PERMUTATIONS_PER_PAIR = 200  # so that Holm's correction leaves p-values that can be significant


@dataclass(frozen=True, eq=False)
class Ranking:
    """Methods from the best to the worst on the same texts, with tests of all pairs.

    It is what `ranking()` of one or several evaluations returns:

        ranking = gaflow.evaluate(explainer, texts, replacement=["pad", "mask", "delete"]).ranking()
        print(" ".join(ranking.sentences()))
    """

    measure: str
    order: str  # of masking
    replacements: tuple[str, ...]  # (r,)
    methods: tuple[str, ...]  # (m,) the best first
    texts: int
    means: np.ndarray  # (r, m)
    low: np.ndarray  # (r, m) ends of the intervals of the means
    high: np.ndarray  # (r, m)
    ranks: np.ndarray  # (r, m) from 1
    difference: np.ndarray  # (m, m) by how much a row's method is better than a column's, the least over evaluations
    p: np.ndarray  # (m, m) of a row's method being better than a column's, corrected; 1 where it is not better
    epsilon: np.ndarray  # (m, m) upper bound on how far a row's method fails to be better than a column's

    @property
    def worst(self) -> np.ndarray:
        """The worst rank of every method (m,)."""
        return self.ranks.max(0)

    @property
    def best(self) -> str | None:
        """The first of the methods, the control aside; None if there is none."""
        candidates = [method for method in self.methods if method != CONTROL]
        return candidates[0] if candidates else None

    def verdict(self, method: str, other: str) -> str:
        """How `method` compares with `other`: "clearly better", "better on average", or "not told apart"."""
        row = self.methods.index(method)
        column = self.methods.index(other)
        if not self.p[row, column] < SIGNIFICANT:
            return NOT_APART
        return CLEARLY if self.epsilon[row, column] < DOMINANT else ON_AVERAGE

    def table(self) -> pd.DataFrame:
        """One row per method, best first: worst rank, the mean under each replacement, and two verdicts."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        columns: dict[str, Any] = {"worst_rank": self.worst, "mean_rank": self.ranks.mean(0)}
        for row, replacement in enumerate(self.replacements):
            columns[f"rank_{replacement}"] = self.ranks[row]
            columns[f"{self.measure}_{replacement}"] = self.means[row]
            columns[f"low_{replacement}"] = self.low[row]
            columns[f"high_{replacement}"] = self.high[row]
        columns["against_random"] = [self.against_control(method) for method in self.methods]
        columns["against_best"] = [self.against_best(method) for method in self.methods]
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))

    def against_control(self, method: str) -> str | None:
        """How a method compares with random scores; None for the control itself, or where there is no control."""
        if method == CONTROL or CONTROL not in self.methods:
            return None
        if self.verdict(CONTROL, method) != NOT_APART:
            return "worse"
        verdict = self.verdict(method, CONTROL)
        return "no better" if verdict == NOT_APART else verdict

    def against_best(self, method: str) -> str | None:
        """How a method compares with the best one; None for that one."""
        if self.best is None or method == self.best:
            return None
        verdict = self.verdict(self.best, method)
        words = {CLEARLY: "clearly worse", ON_AVERAGE: "worse on average", NOT_APART: NOT_APART}
        return words[verdict]

    def no_better_than_random(self) -> list[str]:
        """Methods that the tests do not find better than random scores."""
        names = []
        for method in self.methods:
            if self.against_control(method) in ("no better", "worse"):
                names.append(method)
        return names

    def sentences(self, data: str | None = None) -> list[str]:
        """The verdict in plain words; `data` is the name of the texts."""
        where = "" if data is None else f" on {data}"
        best = self.best
        if best is None:
            return [f"There is no method to rank{where}."]
        sentences = [self._first_place(best, where)]
        helpless = self.no_better_than_random()
        if best in helpless:
            texts = "1 text" if self.texts == 1 else f"{self.texts:,} texts"
            sentences.append(f"But {texts} cannot tell even {best} from random scores, so this order may be luck.")
        sentences += self._comparisons(best)
        if helpless:
            sentences.append(f"No better than random scores: {_listed(helpless)}.")
        elif CONTROL in self.methods:
            verdicts = {self.verdict(method, CONTROL) for method in self.methods if method != CONTROL}
            extent = "on average, but not all throughout" if ON_AVERAGE in verdicts else "and clearly so"
            sentences.append(f"Every method is better than random scores, {extent}.")
        return sentences

    def _first_place(self, best: str, where: str) -> str:
        """Who is first, and under which replacements."""
        count = len(self.methods) - (CONTROL in self.methods)
        rivals = f"of {count} methods" if count > 1 else "and only method"
        worst = int(self.worst[self.methods.index(best)])
        if len(self.replacements) == 1:
            return f"{best} ranks first {rivals}{where}."
        names = ", ".join(self.replacements)
        if worst == 1:
            return f"{best} ranks first {rivals}{where} with every replacement ({names})."
        replacements = f"the replacements {names}, random scores included"
        return f"{best} ranks first {rivals}{where}: its worst rank over {replacements}, is {worst}."

    def _comparisons(self, best: str) -> list[str]:
        """From which methods the best one can be told, and how well."""
        by_verdict: dict[str, list[str]] = {CLEARLY: [], ON_AVERAGE: [], NOT_APART: []}
        for method in self.methods:
            if method not in (best, CONTROL):
                by_verdict[self.verdict(best, method)].append(method)
        sentences = []
        others = sum(map(len, by_verdict.values()))
        if others > 1 and len(by_verdict[CLEARLY]) == others:
            return [f"{best} is clearly better than each of the {others} others."]
        if by_verdict[CLEARLY]:
            sentences.append(f"{best} is clearly better than {_listed(by_verdict[CLEARLY])}.")
        if by_verdict[ON_AVERAGE]:
            sentences.append(f"{best} is better than {_listed(by_verdict[ON_AVERAGE])} on average, but not throughout.")
        if by_verdict[NOT_APART]:
            sentences.append(f"{best} cannot be told apart from {_listed(by_verdict[NOT_APART])}.")
        return sentences


def rank_methods(
    evaluations: Mapping[str, Evaluation],
    measure: str = "aopc",
    order: str = "top",
    *,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> Ranking:
    """Rank the methods that all `evaluations` have in common; these are of the same texts, by replacement."""
    methods = _common_methods(evaluations)
    sign = better(measure, order, "measure")
    samples = []  # (m, n) of each evaluation
    for evaluation in evaluations.values():
        rows = [evaluation.methods.index(method) for method in methods]
        samples.append(evaluation.per_text(measure, order)[rows])
    sizes = {sample.shape[1] for sample in samples}
    if len(sizes) > 1:
        raise ArgumentError(Argument("evaluations"), f" must be of the same texts, but have {sorted(sizes)} of them")
    values = np.stack(samples)  # (r, m, n)
    means = values.mean(-1)
    ranks = np.stack([_ranks(sign * row) for row in means])
    best_first = np.lexsort((ranks.mean(0), ranks.max(0)))
    values = values[:, best_first]
    resampled = bootstrap_means(values.transpose(2, 0, 1), resamples, seed)
    low, high = interval(resampled, confidence)
    tests = _compare_pairs(sign * values, confidence=confidence, resamples=resamples, seed=seed)
    means = means[:, best_first]
    return Ranking(
        measure=measure,
        order=order,
        replacements=tuple(evaluations),
        methods=tuple(methods[index] for index in best_first),
        texts=values.shape[-1],
        means=means,
        low=np.minimum(low, means),
        high=np.maximum(high, means),
        ranks=ranks[:, best_first],
        difference=tests[0],
        p=tests[1],
        epsilon=tests[2],
    )


def _common_methods(evaluations: Mapping[str, Evaluation]) -> list[str]:
    first, *others = evaluations.values()
    methods = list(first.methods)
    for other in others:
        methods = [method for method in methods if method in other.methods]
    return methods


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (m,) of values (m,) of which a larger one is better; equal values share the better rank."""
    return 1 + (values[:, None] < values).sum(1)


def _compare_pairs(
    values: np.ndarray, *, confidence: float, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least difference, corrected p-value and eps_min, (m, m) each, of values (r, m, n) that are better if larger."""
    _, m, n = values.shape
    p_values = np.ones((m, m))
    epsilon = np.ones((m, m))
    means = values.mean(-1)
    difference = (means[:, :, None] - means[:, None]).min(0)
    if m < 2 or n < 2:
        return difference, p_values, epsilon
    first, second = np.triu_indices(m, 1)
    permutations = max(_LEAST_PERMUTATIONS, _PERMUTATIONS_PER_PAIR * len(first))
    largest_p = np.zeros(len(first))
    for sample in values:
        pair_differences = (sample[first] - sample[second]).T  # (n, pairs)
        largest_p = np.maximum(largest_p, sign_flip_test(pair_differences, permutations, seed))
    corrected = holm(largest_p)
    forwards = difference[first, second] > 0  # better in every evaluation
    backwards = difference[second, first] > 0
    p_values[first[forwards], second[forwards]] = corrected[forwards]
    p_values[second[backwards], first[backwards]] = corrected[backwards]
    by_evaluation = [aso_pairs(sample, confidence=confidence, resamples=resamples, seed=seed) for sample in values]
    return difference, p_values, np.max(by_evaluation, axis=0)


def _listed(names: Sequence[str]) -> str:
    """Names as part of a sentence."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
