"""The verdict on methods in words, and a table of them sorted by result. Whose method it is plays no part."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.asking import mean_with_error
from gaflow.evaluation import Evaluation
from gaflow.evaluation.ranking import Ranking, rank_methods

METHODS = (  # that tests of evidence compare unless others are named
    "agf", "relevance_flow", "peeled_flow", "attnlrp", "grad_x_input", "attgrads", "attcat", "rollout", "rawatt", "ig",
    "occlusion", "lime",
)  # fmt: skip
Cells = Mapping[str, str]  # method -> what a column says of it


def verdict(ranking: Ranking) -> list[str]:
    """Which method is best, which are no better than random scores, and how sure that is."""
    return [*ranking.sentences(), ""]


def ranked_table(evaluations: Mapping[str, Evaluation], ranking: Ranking, more: Mapping[str, Cells]) -> list[str]:
    """AOPC with standard errors under each replacement, the best rank first, with further columns."""
    titles = ["method", "worst rank"]
    for replacement in evaluations:
        titles += [f"AOPC top, {replacement}", f"AOPC bottom, {replacement}"]
    titles += ["against random", "against first", *more]
    lines = ["| " + " | ".join(titles) + " |", "|---|---:" + "|---" * (len(titles) - 2) + "|"]
    for method, rank in zip(ranking.methods, ranking.worst.tolist(), strict=True):
        cells = [method, str(rank)]
        for evaluation in evaluations.values():
            row = evaluation.methods.index(method)
            for order in ("top", "bottom"):
                cells.append(mean_with_error(evaluation.per_text("aopc", order)[row], ".3f"))
        cells += [ranking.against_control(method) or "", ranking.against_best(method) or ""]
        cells += [column.get(method, "") for column in more.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def report(evaluations: Mapping[str, Evaluation], more: Mapping[str, Cells] | None = None) -> list[str]:
    """The verdict and the table."""
    ranking = rank_methods(evaluations)
    return [*verdict(ranking), *ranked_table(evaluations, ranking, more or {}), ""]
