"""The nodes that a flow method uses: those that flow comes from and those that it goes to.

The convention this file owns: **positions are those of one text**. 0 is its first token and -1 its last one, special
tokens included, whatever else is in the batch. A text without such a token is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError, GaflowError
from gaflow.flow.arguments import Nodes
from gaflow.models.tracing import Trace
from gaflow.tasks.targets import as_integer
from gaflow.tasks.text_location import quote

NodeChoice = str | int | Sequence[int] | Callable[[Trace], Nodes] | None  # a name of NODES, positions; None: all tokens


def head(trace: Trace) -> Tensor:
    """The rows that the model's head reads: [CLS] alone, or all that are averaged."""
    return trace.rows() > 0


def special(trace: Trace) -> Tensor:
    """Tokens that the tokenizer added, such as [CLS] and [SEP]."""
    return _segments(trace) == -1


def ordinary(trace: Trace) -> Tensor:
    """All but the special tokens."""
    return _segments(trace) >= 0


def text(trace: Trace) -> Tensor:
    """The tokens of the first text."""
    return _segments(trace) == 0


def pair(trace: Trace) -> Tensor:
    """The tokens of the second text, if there is one."""
    return _segments(trace) == 1


NODES: dict[str, Callable[[Trace], Nodes]] = {
    "head": head,
    "special": special,
    "ordinary": ordinary,
    "text": text,
    "pair": pair,
}


def check_nodes(name: str, choice: object) -> Any:
    """The setting `name` in a form that can be compared and hashed: positions become a tuple."""
    if choice is None or callable(choice) or (isinstance(choice, str) and choice in NODES):
        return choice
    values = choice.tolist() if isinstance(choice, Tensor | np.ndarray) else choice
    if not isinstance(values, Sequence):
        values = [values]
    positions = [as_integer(value) for value in values]
    if not positions or None in positions:
        names = ", ".join(repr(name) for name in NODES)
        raise ArgumentError(
            Argument(name), f" must be {names}, positions of tokens, a callable or None, not {choice!r}"
        )
    return tuple(positions)


def nodes_of(choice: NodeChoice, trace: Trace, name: str) -> Nodes | None:
    """The chosen tokens of every text of the batch, as `solve` takes them; `name` is the setting's."""
    if choice is None:
        return None
    if isinstance(choice, str):
        return NODES[choice](trace)
    if callable(choice):
        nodes = choice(trace)
        if nodes is None:
            raise ArgumentTypeError(
                Argument(name),
                ": the callable returned None, not a choice of tokens; for all of them return trace.mask",
            )
        return nodes
    positions = [choice] if isinstance(choice, int) else choice
    columns = []
    for item, real in enumerate(trace.mask.cpu()):
        tokens = real.nonzero().flatten().tolist()
        for position in positions:
            if not -len(tokens) <= position < len(tokens):
                quoted = _quote(trace, item)
                raise ArgumentError(
                    Argument(name), f": there is no token {position} in {quoted} of {len(tokens)} tokens"
                )
        columns.append([tokens[position] for position in positions])
    return columns


def _segments(trace: Trace) -> Tensor:
    """The text that each token belongs to, (b, t): 0 text, 1 pair, -1 special, -2 padding."""
    if trace.model is None:
        raise GaflowError("this trace holds no tokens, so special and ordinary ones cannot be distinguished")
    segments = torch.full(trace.mask.shape, -2)
    for row, encoding in zip(segments, trace.model.batch.encodings, strict=True):
        row[: len(encoding)] = torch.tensor(encoding.segments)  # padding is on the right
    return segments


def _quote(trace: Trace, item: int) -> str:
    """The beginning of a text, for errors."""
    if trace.model is None:
        return f"text {item}"
    return f"the text {quote(trace.model.batch.encodings[item].text)}"
