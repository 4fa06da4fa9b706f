"""Two evaluations of the same texts and model, side by side."""

from dataclasses import replace

import numpy as np
import pytest

from gaflow.evaluation.faithfulness import evaluate
from tests.support.evaluated import LABELS, METHODS, TEXTS


def test_methods_judged_apart_are_those_judged_together(explainer, evaluated):
    first = evaluate(explainer, TEXTS, LABELS, METHODS[:1])
    merged = first.merge_methods(evaluate(explainer, TEXTS, LABELS, METHODS[1:]))
    assert merged.methods == (METHODS[0], "random", *METHODS[1:])
    order = [merged.methods.index(name) for name in evaluated.methods]
    assert np.abs(merged.masked[order] - evaluated.masked).max() < 1e-9
    assert merged.table().loc[METHODS[2], "aopc_top"] == pytest.approx(evaluated.table().loc[METHODS[2], "aopc_top"])
    assert len(merged.manifest["beside"]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: {"target": 1 - e.target}, "target differs"),
        (lambda e: {"replacement": "mask"}, "replacement differs"),
        (lambda e: {"base": e.base - 0.1}, "same model"),
        (lambda e: {"soft": np.zeros((*e.masked.shape[:2], 2))}, "has soft"),
        (lambda e: {"bounds": np.zeros((len(e.sizes), 2))}, "has bounds"),
        (lambda e: {"base_prediction": 1 - e.base_prediction}, "base_prediction differs"),
        (lambda e: {"manifest": {**e.manifest, "seed": 77}}, "another seed"),
    ],
)
def test_what_is_not_the_same_is_refused(evaluated, change, message):
    with pytest.raises(ValueError, match=message):
        evaluated.merge_methods(replace(evaluated, **change(evaluated)))
