"""Information tensors (paper section 3.1): attention and its gradient become the capacities of the network.

Axes are `(batch, layer, head, query, key)`; an information tensor is `(batch, layer, query, key)` and non-negative.
`gradient` is `dy/dA`, with `y` the model output that is explained. The functions of this file see no more than
a layer at a time and count axes from the end: they also take `(batch, head, query, key)`.

Beyond the paper, tokens have information of their own, `relu(<dy/dx_i, x_i>)` for a state `x_i` of token `i`: of the
residual stream it is the capacity of the edge by which a token stays itself, of a hidden state that of a node.

Some tensors are the positive part of a **signed** one, whose negative part is the tensor of `-y` (SIGNED_INFORMATION).

Tensors that are a **mean over heads** need never see all heads at once. They treat each head by itself, and edges
without attention are 0 in them whatever their gradient. A tensor of yours says so by `mean_over_heads`:

    @gaflow.information.mean_over_heads
    def squared(attention, gradient):
        return (attention * gradient).square().mean(-3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gaflow.arguments import checked

_LEAST_REST = 1e-3  # of a query's attention: a key that has all of it leaves nothing to the others

Information = Callable[[Tensor, Tensor], Tensor]  # (b, l, h, t, t) twice -> (b, l, t, t)


def mean_over_heads(function: Information) -> Information:
    """Declare that an information tensor is a mean over heads, which a trace computes without holding them all."""
    function.is_mean_over_heads = True  # type: ignore[attr-defined]
    return function


def is_mean_over_heads(function: object) -> bool:
    """Whether a tensor was declared to be a mean over heads."""
    return getattr(function, "is_mean_over_heads", False) is True


@mean_over_heads
@checked
def af(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Flow: the mean attention over heads. Does not look at the gradient."""
    return attention.mean(-3)


@mean_over_heads
@checked
def gf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention Grad Flow: the mean positive gradient over heads."""
    return gradient.relu().mean(-3)


@mean_over_heads
@checked
def agf(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention x Attention Grad Flow: the mean positive part of attention times gradient over heads."""
    if attention.dim() <= 4:
        return (attention * gradient).relu_().mean(-3)
    # layer by layer, for intermediate results to stay in cache
    layers = []
    for layer_attention, layer_gradient in zip(attention.unbind(-4), gradient.unbind(-4), strict=True):
        layers.append(agf(layer_attention, layer_gradient))
    return torch.stack(layers, -3)


@checked
def agf_net(attention: Tensor, gradient: Tensor) -> Tensor:
    """As `agf`, but heads that speak for and against `y` cancel: the positive part of the mean over heads."""
    return signed_product(attention, gradient).relu_()


@checked
def knockout(attention: Tensor, gradient: Tensor) -> Tensor:
    """Knock-out: what `y` loses if an edge is removed and softmax hands its share to the other keys, where positive."""
    return signed_knockout(attention, gradient).relu_()


def signed_gradient(attention: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, mean over heads."""
    return gradient.mean(-3)


def signed_product(attention: Tensor, gradient: Tensor) -> Tensor:
    """Attention times gradient, mean over heads."""
    return (attention * gradient).mean(-3)


def signed_knockout(attention: Tensor, gradient: Tensor) -> Tensor:
    """`A_ij / (1 - A_ij) (G_ij - sum_k A_ik G_ik)`, mean over heads: the loss without key `j`, to first order.

    Without key `j`, the weights of the other keys grow by the factor `1 / (1 - A_ij)`.
    """
    mean_gradient = (attention * gradient).sum(-1, keepdim=True)  # of a query, over its keys
    rest = (1 - attention).clamp_min(_LEAST_REST)
    return ((gradient - mean_gradient) * attention / rest).mean(-3)


# Each also takes a single layer: (..., h, t, t) twice -> (..., t, t).
INFORMATION: dict[str, Information] = {"af": af, "gf": gf, "agf": agf, "agf_net": agf_net, "knockout": knockout}

# Likewise, and below 0 where an edge speaks against `y`; the positive part is the tensor of this name.
SIGNED_INFORMATION: dict[str, Information] = {"agf_net": signed_product, "knockout": signed_knockout}


def by_layer(function: Information, attentions: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """An information tensor of layers (b, h, t, t), taken one by one: stacking them first would copy them."""
    layers = []
    for attention, gradient in zip(attentions, gradients, strict=True):
        layers.append(function(attention, gradient))
    return torch.stack(layers, 1)


def token_information(states: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """`relu(<gradient, state>)` of every layer's tokens, (b, l, t), from states and gradients (b, t, d)."""
    return signed_token_information(states, gradients).relu_()


def signed_token_information(states: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """`<gradient, state>` of every layer's tokens, likewise."""
    layers = []
    for state, gradient in zip(states, gradients, strict=True):
        dtype = torch.promote_types(state.dtype, torch.float32)  # sums in half precision lose too much
        product = state.to(dtype) * gradient.to(dtype)
        layers.append(product.sum(-1))
    return torch.stack(layers, 1)


def split_nodes(capacity: Tensor, nodes: Tensor) -> Tensor:
    """A network (b, 2 l, t, t) in which flow through nodes is limited, too.

    Its odd layers are those of `capacity` (b, l, t, t). The even ones lead each node of layers 0 to l-1 to itself, with
    the capacities `nodes` (b, l, t).
    """
    node_layers = torch.diag_embed(nodes).to(capacity)
    return torch.stack([node_layers, capacity], 2).flatten(1, 2)
