"""Information tensors (paper section 3.1): attention and its gradient become the capacities of the network.

Axes are `(batch, layer, head, query, key)`; an information tensor is `(batch, layer, query, key)` and non-negative.
`gradient` is `dy/dA`, with `y` the model output that is explained. Those named here see no more than a layer at a time
and count axes from the end, so that they take `(batch, head, query, key)` as well.

Beyond the paper, tokens have information of their own, `relu(<dy/dx_i, x_i>)` for a state `x_i` of token `i`: of the
residual stream it is the capacity of the edge by which a token stays itself, of a hidden state that of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["INFORMATION", "Information", "af", "agf", "agf_net", "by_layer", "gf", "split_nodes", "token_information"]

Information = Callable[[Tensor, Tensor], Tensor]  # (b, l, h, t, t) twice -> (b, l, t, t)


def af(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Flow: the mean attention over heads. Does not look at the gradient."""
    return attention.mean(-3)


def gf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Grad Flow: the mean positive gradient over heads."""
    return gradient.relu().mean(-3)


def agf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention x Attention Grad Flow: the mean positive part of attention times gradient over heads."""
    if attention.dim() <= 4:
        return (attention * gradient).relu_().mean(-3)
    # layer by layer, so that what is in between stays in cache
    layers = zip(attention.unbind(-4), gradient.unbind(-4), strict=True)
    return torch.stack([agf(a, g) for a, g in layers], -3)


def agf_net(attention: Tensor, gradient: Tensor) -> Tensor:
    """As `agf`, but heads that speak for and against `y` cancel: the positive part of the mean over heads."""
    return (attention * gradient).mean(-3).relu_()


# of a single layer, too: (..., h, t, t) twice -> (..., t, t)
INFORMATION: dict[str, Information] = {"af": af, "gf": gf, "agf": agf, "agf_net": agf_net}


def by_layer(function: Information, attentions: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """An information tensor of layers (b, h, t, t), which are looked at one by one: side by side they are a copy."""
    return torch.stack([function(a, g) for a, g in zip(attentions, gradients, strict=True)], 1)


def token_information(states: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """`relu(<gradient, state>)` of every layer's tokens, (b, l, t), from states and gradients (b, t, d)."""
    wide = [torch.promote_types(x.dtype, torch.float32) for x in states]  # sums in half precision lose too much
    pairs = zip(states, gradients, wide, strict=True)
    return torch.stack([(x.to(kind) * g.to(kind)).sum(-1).relu_() for x, g, kind in pairs], 1)


def split_nodes(capacity: Tensor, nodes: Tensor) -> Tensor:
    """A network (b, 2 l, t, t) whose odd layers are those of `capacity` (b, l, t, t); the even ones lead each node of
    layers 0 to l-1 to itself, with the capacities `nodes` (b, l, t)."""
    return torch.stack([torch.diag_embed(nodes).to(capacity), capacity], 2).flatten(1, 2)
