"""Stored evaluations that reports are made of."""

import json
from pathlib import Path

import numpy as np

from gaflow.evaluation.arguments import EvaluationSettings
from gaflow.evaluation.result import Evaluation

METHODS = ("ig", "attcat", "agf", "random")


LEVELS = tuple(range(10, 100, 10))


def evaluation(methods=METHODS, *, texts=12, seed=0, classes=("neg", "pos"), gold=True, replacement="pad", **more):
    """Numbers out of nothing; later methods lose less."""
    generator = np.random.default_rng(seed)
    conditions = EvaluationSettings(levels=LEVELS).conditions
    shape = (len(methods), texts, len(conditions))
    losses = generator.gamma(2.0, 0.5, shape) / (1 + np.arange(len(methods)))[:, None, None]
    manifest = {"model": {"name": "m", "device": "cpu"}, "seed": 0, "truncated": 1, "skipped": {}, "left_out": {}}
    return Evaluation(
        methods=tuple(methods),
        conditions=conditions,
        levels=LEVELS,
        classes=classes,
        replacement=replacement,
        sizes=generator.integers(1, 30, texts),
        target=np.zeros(texts, dtype=np.int64),
        base=np.full(texts, -0.1),
        base_prediction=np.zeros(texts, dtype=np.int64),
        masked=-0.1 - losses,
        prediction=generator.integers(0, len(classes), shape),
        gold=generator.integers(0, len(classes), texts) if gold else None,
        manifest={**manifest, **more},
    )


def stored(folder, name, *evaluations, slug=None, left_out=None):
    """A data set as a benchmark leaves it."""
    result_folder = Path(folder) / (slug or name)
    for result in evaluations:
        result.save(result_folder / result.replacement)
    result_folder.mkdir(parents=True, exist_ok=True)
    settings = {"name": name, "stored": True, "methods": None}
    (result_folder / "bench.json").write_text(json.dumps({"asked": settings, "left_out": left_out or {}}))
    return result_folder
