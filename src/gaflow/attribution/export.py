"""An attribution for other tools: plain JSON values, pandas, SHAP and Captum. These are methods of `Attribution`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from gaflow.arguments import checked
from gaflow.attribution.files import FORMAT, StoredValues, stored_fields
from gaflow.extras import need
from gaflow.flow.result import Flow

if TYPE_CHECKING:
    import pandas as pd

    from gaflow.attribution.attribution import Attribution


@checked
def to_dict(att: Attribution, *, flow: bool = False) -> StoredValues:
    """Everything but pictures and sounds, as plain JSON values; `gaflow.schema("attribution")` describes them.

    `flow=True` adds the flow (and the flow against) on every edge, which are l * t * t numbers each.
    """
    values = {"format": FORMAT, **stored_fields(att)}
    values["special_mask"] = att.special_mask
    values["words"] = [asdict(word) for word in att.words()]
    values["provenance"] = att.provenance
    if flow:
        for name, record in (("flow", att.flow), ("flow_against", att.flow_against)):
            if record is not None:
                values[name] = flow_values(record)
    return as_json(values)


def flow_values(flow: Flow) -> StoredValues:
    """The tensors of the flow of one text, without the axis of batches and what is not known."""
    values = {}
    for name in ("edges", "source", "target", "value", "mu", "converged", "capacity"):
        tensor = getattr(flow, name)
        if tensor is not None:
            values[name] = tensor[0].tolist()
    return values


@checked
def to_pandas(att: Attribution, *, words: bool = False) -> pd.DataFrame:
    """A table with one row for each token, or for each word."""
    need("pandas", "data", "tables need pandas")
    import pandas as pd

    if words:
        return pd.DataFrame([asdict(word) for word in att.words()])
    return pd.DataFrame(
        {
            "token": att.tokens,
            "score": att.scores,
            "start": [start for start, _ in att.offsets],
            "end": [end for _, end in att.offsets],
            "segment": att.segments,
            "special": att.special_mask,
        }
    )


def to_shap(att: Attribution) -> Any:
    """A `shap.Explanation` over the tokens.

    Its base value is the output without any ordinary token if the method knows it, otherwise 0. Flow scores sum to
    the value of the flow, minus that of the flow against.
    """
    need("shap", None, "a SHAP explanation needs shap")
    return importlib.import_module("shap").Explanation(
        values=att.scores.copy(),
        base_values=att.diagnostics.get("baseline_output", 0.0),
        data=np.array(att.tokens),
        feature_names=list(att.tokens),
        output_names=[att.label],
    )


@checked
def to_captum(att: Attribution, true_label: str | None = None) -> Any:
    """A `captum.attr.visualization.VisualizationDataRecord`; `true_label` is the right class of the text."""
    module = "captum.attr._utils.visualization"
    need(module, "baselines", "a Captum record needs captum")
    gap = 0.0 if att.certificate is None else att.certificate.gap
    return importlib.import_module(module).VisualizationDataRecord(
        word_attributions=att.normalized(),
        pred_prob=att.output if att.probability is None else att.probability,
        pred_class=att.prediction,
        true_class=true_label or "",
        attr_class=att.label,
        attr_score=float(att.scores.sum()),
        raw_input_ids=list(att.tokens),
        convergence_score=att.diagnostics.get("convergence_delta", gap),
    )


def as_json(value: object) -> Any:
    """The value in types that JSON has: no tuples, arrays or infinities."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
