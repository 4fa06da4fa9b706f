"""The settings of a benchmark, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gaflow.arguments import whole_number
from gaflow.benchmark.folder_layout import BENCH_METHODS, PAPER_SAMPLE
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.arguments import EvaluationSettings
from gaflow.explainer.explainer import AnyMethod
from gaflow.jobs.engine import JobSettings
from gaflow.jobs.run import find_methods
from gaflow.methods import Method, find_method


@dataclass(frozen=True)
class BenchmarkSettings:
    """Everything that is the same for all data sets of a benchmark."""

    evaluation: EvaluationSettings  # its replacement is ignored
    methods: tuple[AnyMethod, ...] | None = None  # None: the paper's and the default, or all that are stored
    replacements: tuple[str | int, ...] = ("pad",)
    sample: int | None = PAPER_SAMPLE  # texts; None: all
    limit: int | None = None  # rows that are read; None: all
    shard_size: int = 250  # texts

    def __post_init__(self) -> None:
        whole_number("shard_size", self.shard_size)
        for name in ("methods", "replacements"):
            if getattr(self, name) == ():
                raise ArgumentError(Argument(name), " must be a list with at least one entry")

    def find_methods(self, default: Sequence[str] = BENCH_METHODS) -> tuple[Method, ...]:
        """The methods that explain the texts of a data set; the `default` ones if none are named."""
        return find_methods(default if self.methods is None else self.methods)

    def stored_names(self) -> list[str] | None:
        """The names of methods whose scores are stored, which may be those of other libraries; None: all."""
        if self.methods is None:
            return None
        names = []
        for method in self.methods:
            if isinstance(method, str):
                names.append(method.strip())
            else:
                names.append(find_method(method, "methods").name)
        return names

    def job(self, methods: tuple[Method, ...]) -> JobSettings:
        """The job that computes the attributions of a data set."""
        return JobSettings(
            methods=methods,
            batch_size=self.evaluation.batch_size,
            truncation=self.evaluation.truncation,
            shard_size=self.shard_size,
            sample=self.sample,
            limit=self.limit,
            seed=self.evaluation.seed,
        )
