"""Which nodes a flow method looks at: those that flow comes from, those it goes to, and the layer that is scored.

The convention this file owns: **positions are a text's own**. 0 is its first token and -1 its last one, special tokens
included, whatever else is in the batch; a text that has no such token is an error. Layers are counted likewise: node
layer 0 (or -l-1) is the input, `l` (or -1) the output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import GaflowError
from gaflow.flow.arguments import Nodes
from gaflow.flow.result import NodeLayer, check_layer
from gaflow.models.tracing import Trace

__all__ = [
    "NODES",
    "Chosen",
    "check_nodes",
    "layer_in_name",
    "name_at_layer",
    "nodes_of",
]

_LAST_SETTING = re.compile(r"(\(|, )layer=(-?\d+|'all')\)$")

Chosen = str | int | Sequence[int] | Callable[[Trace], Nodes] | None  # a name of NODES, positions, a choice; None: all


def head(trace: Trace) -> Tensor:
    """The rows that the model's head reads: [CLS] alone, or all that are averaged."""
    return trace.rows() > 0


def special(trace: Trace) -> Tensor:
    """What the tokenizer added, such as [CLS] and [SEP]."""
    return _segments(trace) == -1


def ordinary(trace: Trace) -> Tensor:
    """All but the special tokens."""
    return _segments(trace) >= 0


def text(trace: Trace) -> Tensor:
    """The tokens of the first text."""
    return _segments(trace) == 0


def pair(trace: Trace) -> Tensor:
    """The tokens of the second text, where there is one."""
    return _segments(trace) == 1


NODES: dict[str, Callable[[Trace], Nodes]] = {
    "head": head,
    "special": special,
    "ordinary": ordinary,
    "text": text,
    "pair": pair,
}


def check_nodes(given: Any, name: str) -> Any:
    """`given` as a setting that can be compared and hashed: positions become a tuple."""
    if given is None or callable(given) or (isinstance(given, str) and given in NODES):
        return given
    positions = given.tolist() if isinstance(given, Tensor | np.ndarray) else given
    positions = [positions] if isinstance(positions, Integral) else positions
    if not isinstance(positions, Sequence) or not positions or not all(_whole(k) for k in positions):
        known = ", ".join(repr(k) for k in NODES)
        raise ValueError(f"{name} must be {known}, positions of tokens, a callable or None, not {given!r}")
    return tuple(int(k) for k in positions)


def nodes_of(chosen: Chosen, trace: Trace, name: str) -> Nodes | None:
    """The chosen tokens of every text of the batch, as `solve` takes them."""
    if chosen is None:
        return None
    if isinstance(chosen, str):
        return NODES[chosen](trace)
    if callable(chosen):
        found = chosen(trace)
        if found is None:
            raise TypeError(f"{name}: the callable returned None, not which tokens; for all of them return trace.mask")
        return found
    positions = [chosen] if isinstance(chosen, int) else chosen
    found = []
    for item, real in enumerate(trace.mask.cpu()):
        places = real.nonzero().flatten().tolist()
        for k in positions:
            if not -len(places) <= k < len(places):
                raise ValueError(f"{name}: there is no token {k} in {_quote(trace, item)} of {len(places)} tokens")
        found.append([places[k] for k in positions])
    return found


def _whole(given: Any) -> bool:
    """A whole number, NumPy's included; True and False are none."""
    return isinstance(given, Integral) and not isinstance(given, bool)


def name_at_layer(name: str, layer: NodeLayer) -> str:
    """A flow method's `name` with another layer; it is the last of the settings, and left out where it is the usual."""
    layer = check_layer(layer)
    base = _LAST_SETTING.sub(lambda found: "" if found[1] == "(" else ")", name)
    if layer == _usual(base):
        return base
    return f"{base[:-1]}, layer={layer!r})" if base.endswith(")") else f"{base}(layer={layer!r})"


def layer_in_name(name: str) -> NodeLayer:
    """The layer that `name_at_layer` wrote."""
    found = _LAST_SETTING.search(name)
    if found is None:
        return _usual(name)
    return "all" if found[2] == "'all'" else int(found[2])


def _usual(name: str) -> NodeLayer:
    """The layer of a method whose name says none."""
    return "all" if name.partition("(")[0] == "signed_flow" else 0


def _segments(trace: Trace) -> Tensor:
    """Where each token is from, (b, t): 0 text, 1 pair, -1 special, -2 padding."""
    if trace.model is None:
        raise GaflowError("this trace holds no tokens, so that special and ordinary ones cannot be told apart")
    segments = torch.full(trace.mask.shape, -2)
    for row, encoding in zip(segments, trace.model.batch.encodings, strict=True):
        row[: len(encoding)] = torch.tensor(encoding.segments)  # padding is on the right
    return segments


def _quote(trace: Trace, item: int) -> str:
    """The beginning of a text, for errors."""
    if trace.model is None:
        return f"text {item}"
    whole = trace.model.batch.encodings[item].text
    return "the text " + repr(whole if len(whole) <= 40 else f"{whole[:37]}...")
