"""The arguments that every solver takes, checked and as tensors: information, mask, chosen nodes, numbers per item."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import dense_tensor
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError

ArrayLike = Tensor | np.ndarray | Sequence[Any]
Mask = ArrayLike | None  # which tokens are real; None: all of them
Positions = Sequence[int] | Sequence[bool]  # numbers of tokens, or one flag for each
Nodes = Tensor | np.ndarray | int | Positions | Sequence[Positions] | None  # None: all real tokens

INFORMATION = Argument("information")


def as_networks(information: ArrayLike) -> Tensor:
    """`information` as float64 (b, l, t, t), detached; refuses anything but a batch of layered networks."""
    networks = as_float_networks(information)
    least, most = networks.aminmax()
    check_range(least.item(), most.item())
    return networks


def as_float_networks(information: ArrayLike) -> Tensor:
    """The same, whatever the numbers are."""
    networks = as_tensor(information)
    if networks.is_complex() or networks.dtype == torch.bool:
        raise ArgumentTypeError(INFORMATION, f" must hold real numbers, not {networks.dtype}")
    shape = tuple(networks.shape)
    if networks.dim() not in (3, 4) or shape[-1] != shape[-2] or 0 in shape:
        raise ArgumentError(INFORMATION, f" must have shape (l, t, t) or (b, l, t, t), no axis empty, not {shape}")
    return networks.to(torch.float64).reshape(-1, *shape[-3:])


def check_range(least: float, most: float) -> None:
    """Refuse information whose numbers, from `least` to `most`, cannot all be capacities; NaN if one of them is."""
    if not (math.isfinite(least) and math.isfinite(most)):
        raise ArgumentError(INFORMATION, " holds NaN or infinite values: find out where they come from before solving")
    if least < 0:
        raise ArgumentError(
            INFORMATION,
            f" holds negative values (smallest {least:.3g}), which cannot be capacities: "
            "take its positive part, information.relu()",
        )


def as_tensor(information: ArrayLike) -> Tensor:
    """A detached tensor of whatever array, list or sequence of tensors was given."""
    if isinstance(information, Tensor):
        return dense_tensor(INFORMATION.name, information).detach()
    if information is None:
        raise ArgumentTypeError(
            INFORMATION,
            " is None: a flow with node capacities has no capacities of edges alone; "
            "use a method without them, such as agf",
        )
    if isinstance(information, list | tuple):  # maybe of tensors
        information = _as_lists(information)
    try:
        array = np.array(information)  # a copy: any stride or byte order, read-only or not
    except ValueError:
        raise ArgumentError(
            INFORMATION, " must have shape (l, t, t) or (b, l, t, t), not rows of different length"
        ) from None
    if array.dtype.kind not in "fiub":
        raise ArgumentTypeError(
            INFORMATION,
            f" must be a tensor or array of real numbers, not {type(information).__name__} "
            "(a flow's capacities are flow.capacity, those of an attribution att.flow.capacity)",
        )
    if array.dtype.kind != "b":
        array = array.astype(np.float64)
    return torch.from_numpy(array)


def only_network(networks: Tensor, function: str) -> Tensor:
    """The one network (l, t, t) of a batch; refuses several."""
    if len(networks) != 1:
        raise ArgumentError(
            INFORMATION, f" of {function} must be one network (l, t, t), not a batch of {len(networks)}: index it first"
        )
    return networks[0]


def as_mask(mask: Mask, networks: Tensor) -> Tensor:
    """`mask` as bool (b, t) for `networks` (b, l, t, t)."""
    b, _, _, t = networks.shape
    shape = (b, t)
    if mask is None:
        return torch.ones(shape, dtype=torch.bool, device=networks.device)
    try:
        real = torch.as_tensor(mask, device=networks.device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(Argument("mask"), f" must hold one flag per token, not {reprlib.repr(mask)}") from None
    if tuple(real.shape) not in {shape, shape[1:]}:
        raise ArgumentError(Argument("mask"), f" must have shape {shape}, one flag per token, not {tuple(real.shape)}")
    if real.dtype != torch.bool:
        is_flag = (real == 0) | (real == 1)
        if not is_flag.all():
            raise ArgumentError(Argument("mask"), " must hold 1 for real tokens and 0 for padding, nothing else")
    return real.bool().expand(shape)


def as_nodes(nodes: Nodes, real: Tensor, name: str) -> Tensor:
    """The chosen among the real tokens, bool (b, t).

    Booleans are a mask, (t,) or (b, t). Whole numbers are positions, the same for every item or a list for each.
    `real` (b, t) is False for padding, `name` the argument to name in errors.
    """
    if nodes is None:
        return real
    b, t = real.shape
    if isinstance(nodes, Tensor) and nodes.dtype == torch.bool and tuple(nodes.shape) in {(t,), (b, t)}:
        return nodes.to(real.device) & real  # without a detour over the host
    rows = _as_lists(nodes)
    if not isinstance(rows, list):
        rows = [rows]
    if not any(isinstance(row, list) for row in rows):
        rows = [rows] * b
    if len(rows) != b:
        raise ArgumentError(
            Argument(name), f" must be one list of positions, or one for each of {b} items, not {len(rows)} lists"
        )
    flags = []
    for item, row in enumerate(rows):
        flags.append(_flags(row, real[item].tolist(), Argument(name), f" of item {item}"))
    return torch.tensor(flags, device=real.device) & real


def _as_lists(values: object) -> Any:
    """Tensors, arrays and sequences of whatever kind as lists of plain numbers."""
    if isinstance(values, Tensor | np.ndarray | np.generic):
        return values.tolist()
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [_as_lists(value) for value in values]
    return values


def _flags(row: Any, real: list[bool], argument: Argument, item: str) -> list[bool]:
    """One flag per token: `row` itself, or True at the positions it lists."""
    types = {type(value) for value in row} if isinstance(row, list) else {list}
    count = len(real)
    if types == {bool}:
        if len(row) != count:
            raise ArgumentError(argument, f"{item} must have one flag for each of {count} tokens, not {len(row)}")
        return row
    if not types <= {int}:
        raise ArgumentTypeError(
            argument, f"{item} must be positions (whole numbers) or a boolean mask, not {reprlib.repr(row)}"
        )
    flags = [False] * count
    for position in row:
        if not -count <= position < count:
            raise ArgumentError(
                argument, f"{item}: there is no position {position} among {count} tokens, which are 0 to {count - 1}"
            )
        if not real[position]:
            raise ArgumentError(argument, f"{item}: position {position} is padding")
        if flags[position]:
            raise ArgumentError(
                argument, f"{item}: position {position} is given twice; a mask has to be boolean, not 0 and 1"
            )
        flags[position] = True
    return flags


def per_item(value: object, items: int, device: torch.device, name: str) -> Tensor:
    """`value`, one positive number or one per item, as float64 (b,)."""
    if isinstance(value, float) and 0 < value < math.inf:
        return torch.full((items,), value, dtype=torch.float64, device=device)  # without a look at the device
    try:
        values = torch.as_tensor(value, dtype=torch.float64, device=device).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentTypeError(Argument(name), f" must be a number, or one per item, not {value!r}") from None
    if values.dim() > 1 or values.numel() not in (1, items):
        shape = tuple(values.shape)
        raise ArgumentError(Argument(name), f" must be one number or one for each of {items} items, not shape {shape}")
    valid = (values > 0) & torch.isfinite(values)
    if not valid.all():
        raise ArgumentError(Argument(name), f" must be positive and finite, not {value}")
    return values.expand(items)
