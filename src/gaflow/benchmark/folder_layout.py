"""The folder of a benchmark, for those who write and those who read it, and the setup of the paper.

OUT/<data set>/attributions/         a job of `gaflow.jobs`, unless the attributions were stored elsewhere
OUT/<data set>/bench.json            the settings, and the methods that cannot explain the model
OUT/<data set>/sample.parquet        the attributions of one text, as an example
OUT/<data set>/<replacement>/        an Evaluation: values.parquet, texts.parquet, evaluation.json, timings.json
"""

from __future__ import annotations

import re
from pathlib import Path

from gaflow.explainer.default_method import LEADING
from gaflow.explainer.provenance import Description
from gaflow.schemas.check import read_json

ATTRIBUTIONS = "attributions"
SETTINGS = "bench.json"
EXAMPLE = "sample.parquet"

PAPER_METHODS = (  # of Table 1, in its order; a random control is always added
    "rawatt", "rollout", "grads", "attgrads", "cat", "attcat", "partial_lrp", "transatt", "lime", "kernel_shap", "ig",
    "af", "gf", "agf",
)  # fmt: skip
BENCH_METHODS = (*PAPER_METHODS, LEADING)  # unless others are named
PAPER_SAMPLE = 5000  # texts, appendix F.1


def slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-.")[:80] or "data"


def read_settings(folder: Path) -> Description:
    """The settings of a data set's benchmark."""
    kind = "the settings of a benchmark; restore it, or start again in a new folder"
    return read_json(folder / SETTINGS, "benchmark", kind)
