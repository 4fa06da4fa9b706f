"""An attribution and the escape codes that its terminal output may have."""

import re
from dataclasses import replace

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.flow.result import Certificate

SGR = re.compile("\x1b\\[[0-9;]*m")


HOSTILE = "a\x1b[31mred\x1b]0;title\x07 [red]x[/red] :smile: \x9b2J\r\x00 \u202eevil\u2066 \u2028end"


CERTIFICATE = Certificate(
    conservation=1e-16,
    dual=2e-12,
    centrality=3e-11,
    gap=1e-9,
    cut=1.0,
    kappa=1.0,
    mu=1e-9,
    epsilon=1e-6,
    edges=10,
    negligible=0,
    gamma=0.0,
    clamped=False,
    dead=False,
    iterations=13,
    seconds=0.1,
    converged=True,
)


def attribution(text="not good at all", scores=(1.0, 3.0, 0.5, 0.0), pair=None, **changes):
    """One token per word of text and pair, between [CLS] and [SEP], which have score 1 each."""
    words = [(k, m.span()) for k, source in enumerate((text, pair or "")) for m in re.finditer(r"\S+", source)]
    sources = (text, pair or "")
    att = Attribution(
        text=text,
        text_pair=pair,
        tokens=("[CLS]", *(sources[k][a:b] for k, (a, b) in words), "[SEP]"),
        scores=np.array([1.0, *scores, 1.0]),
        offsets=((0, 0), *(span for _, span in words), (0, 0)),
        segments=(-1, *(k for k, _ in words), -1),
        method="agf",
        target=1,
        label="positive",
        probability=0.75,
        output=1.5,
        prediction="positive",
        certificate=CERTIFICATE,
    )
    return replace(att, **changes)
