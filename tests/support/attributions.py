"""Attributions and flows that no model made."""

from dataclasses import fields

import numpy as np
import torch

from gaflow.attribution.attribution import Attribution
from gaflow.flow.result import BatchCertificate, Certificate, Flow
from gaflow.inputs.encoding import encode
from tests.support.models import wordpiece


def make_flow(t, layers=2, dead=False):
    """Every token of a layer passes its flow on to the one below."""
    share = torch.zeros(t, dtype=torch.float64) if dead else torch.arange(1.0, t + 1, dtype=torch.float64)
    dtypes = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}
    numbers = {f.name: torch.zeros(1, dtype=dtypes[str(f.type)]) for f in fields(Certificate)}
    numbers |= {
        "edges": torch.tensor([3 * t]),
        "dead": torch.tensor([dead]),
        "converged": torch.tensor([True]),
    }
    return Flow(
        edges=torch.diag(share).expand(1, layers, t, t).clone(),
        source=share[None].clone(),
        target=share[None].clone(),
        value=share.sum()[None],
        mu=torch.tensor([1e-9], dtype=torch.float64),
        converged=torch.tensor([True]),
        certificate=BatchCertificate(**numbers),
    )


def make(text="the dog's ok", pair=None, tokenizer=None, scores=None, flow=True, **changes):
    encoding = encode(tokenizer or wordpiece(), [text if pair is None else (text, pair)])[0]
    t = len(encoding)
    flows = make_flow(t) if flow else None
    values = {
        "text": text,
        "text_pair": pair,
        "tokens": encoding.tokens,
        "scores": np.arange(1.0, t + 1) if scores is None else scores,
        "offsets": encoding.offsets,
        "segments": encoding.segments,
        "method": "agf",
        "target": 1,
        "label": "positive",
        "probability": 0.875,
        "output": 1.9459,
        "prediction": "positive",
        "layers": None if flows is None else flows.through()[0].numpy(),
        "flow": flows,
        "certificate": None if flows is None else flows.certificate[0],
    }
    return Attribution(**{**values, **changes})


def scored(source, seed=0, tokenizer=wordpiece, **changes):
    """An attribution with scores of both signs."""
    pair = changes.get("pair")
    t = len(encode(tokenizer(), [source if pair is None else (source, pair)])[0])
    scores = np.random.default_rng(seed).normal(size=t)
    return make(source, tokenizer=tokenizer(), scores=scores, **changes)
