"""Information tensors (paper section 3.1): attention and its gradient become the capacities of the network.

Axes are `(batch, layer, head, query, key)`; an information tensor is `(batch, layer, query, key)` and non-negative.
`gradient` is `dy/dA`, with `y` the model output that is explained.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["INFORMATION", "Information", "af", "agf", "gf"]

Information = Callable[[Tensor, Tensor], Tensor]  # (b, l, h, t, t), (b, l, h, t, t) -> (b, l, t, t)


def af(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Flow: the mean attention over heads. Does not look at the gradient."""
    return attention.mean(-3)


def gf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Grad Flow: the mean positive gradient over heads."""
    return gradient.relu().mean(-3)


def agf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention x Attention Grad Flow: the mean positive part of attention times gradient over heads."""
    return (attention * gradient).relu_().mean(-3)


INFORMATION: dict[str, Information] = {"af": af, "gf": gf, "agf": agf}
