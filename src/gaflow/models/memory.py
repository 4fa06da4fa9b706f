"""How many texts fit into the memory of a device, and what to do when work does not fit.

The convention this file owns: **batches are made by a budget that is the same on every machine**, so the same texts
make the same batches everywhere. The memory that is free at the moment only splits a batch that would not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
from torch import nn

from gaflow.errors import Argument, TooLargeError
from gaflow.models.cost import ONE_TRACE, Geometry, MethodCost, estimate, largest_batch, longest_text, work_of_text
from gaflow.models.free_memory import free_memory

Item = TypeVar("Item")
Result = TypeVar("Result")

BUDGET_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of a batch at its peak, unless one text alone needs more
CHECK_ABOVE_BYTES = 64 << 20  # below this, finding out what is free takes longer than some short texts do
_MESSAGES = ("can't allocate memory", "not enough memory", "out of memory")  # of torch, in a plain RuntimeError


def device_of(model: nn.Module) -> torch.device:
    """Where a model expects its input: one that is spread over several devices reads on the first.

    Weights that accelerate keeps elsewhere are on the meta device, and its hooks know where they will be used.
    """
    weight = next(model.parameters(), None)
    if weight is None:
        return torch.device("cpu")
    if not weight.is_meta:
        return weight.device
    for module in model.modules():
        for hook in hooks_of_accelerate(module):
            device = getattr(hook, "execution_device", None)
            if device is not None:
                return torch.device(device)
    return weight.device


def hooks_of_accelerate(module: nn.Module) -> Sequence[object]:
    """The hooks by which accelerate places the weights of a module."""
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return ()
    return getattr(hook, "hooks", (hook,))  # several in a row are one


def geometry_of(model: nn.Module) -> Geometry | None:
    """The sizes of a model that memory depends on; None if its config does not say."""
    weight = next(model.parameters(), None)
    if weight is None:
        return None
    return Geometry.of(getattr(model, "config", None), weight.element_size())


def budget(device: torch.device | str) -> int:
    """Bytes that a batch may take on a device of this kind."""
    return BUDGET_BYTES.get(torch.device(device).type, BUDGET_BYTES["cpu"])


def batch_limit(model: nn.Module, length: int, methods: Iterable[object] = (), *, streamed: bool = False) -> int | None:
    """How many texts of `length` tokens are within the budget, at least one; None if their cost is unknown.

    `streamed` says whether their pass will be.
    """
    geometry = geometry_of(model)
    if geometry is None:
        return None
    device = device_of(model)
    limits = [largest_batch(geometry, length, budget(device), cost) for cost in method_costs(methods, device, streamed)]
    return max(1, min(limits))


def batch_work(model: nn.Module, length: int) -> float | None:
    """What a text of `length` tokens takes, in units of the calls of a batch; None if that is unknown."""
    geometry = geometry_of(model)
    if geometry is None or not geometry.hidden_size:
        return None
    return work_of_text(geometry, length, device_of(model))


def method_costs(methods: Iterable[object], device: torch.device, streamed: bool) -> set[MethodCost]:
    """The different costs of methods that share a pass. A method that names none adds nothing that would count."""
    costs = set()
    means = set()
    for method in methods:
        means.update(getattr(method, "head_means", None) or ())
        cost = getattr(method, "cost", None)  # which may be anything: anybody may write a method
        if isinstance(cost, MethodCost):
            costs.add(cost)
    costs = costs or {MethodCost(networks=0) if streamed and means else ONE_TRACE}
    if streamed:
        costs = {replace(cost, streamed=True, device=device.type, means=max(1, len(means))) for cost in costs}
    return costs


@contextmanager
def fitting(
    model: nn.Module, lengths: Sequence[int], methods: Iterable[object] = (), *, streamed: bool = False
) -> Iterator[None]:
    """Work inside this block on texts of these lengths, padded to the longest, on the model's device.

    If they do not fit into its memory, TooLargeError says what would: before the work, by the estimate, since many
    systems kill a process that takes too much, and also if the work runs out of memory nevertheless.
    """
    device = device_of(model)
    batch = len(lengths)
    length = max(lengths)
    geometry = geometry_of(model)
    if geometry is not None:
        _check_free_memory(geometry, length, batch, method_costs(methods, device, streamed), device)
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, TooLargeError) or not is_out_of_memory(error):
            raise
        if batch > 1:
            message = f"{device} ran out of memory on {batch} texts of {length} tokens; use "
            raise TooLargeError(message, Argument("batch_size", batch // 2), " or less") from error
        raise TooLargeError(
            f"{device} ran out of memory on a text of {length} tokens; use a shorter text or a smaller model"
        ) from error


def check_fits(model: nn.Module, batch: int, length: int) -> None:
    """Refuse an eager pass of so many texts that does not fit into the memory."""
    geometry = geometry_of(model)
    if geometry is not None:
        _check_free_memory(geometry, length, batch, {ONE_TRACE}, device_of(model))


def check_budget(model: nn.Module, lengths: Sequence[int], methods: Iterable[object]) -> None:
    """Refuse several texts whose eager pass is beyond the budget, as a batch that was made for a streamed one may be.

    Batches are then the same on every machine.
    """
    limit = batch_limit(model, max(lengths), methods)
    if limit is not None and len(lengths) > limit:
        message = f"{len(lengths)} texts of {max(lengths)} tokens are too many for a batch; use "
        raise TooLargeError(message, Argument("batch_size", limit), " or less")


def _check_free_memory(
    geometry: Geometry, length: int, batch: int, method_costs: Iterable[MethodCost], device: torch.device
) -> None:
    def peak(cost: MethodCost, texts: int = batch) -> int:
        return estimate(geometry, length, texts, cost).peak

    costliest = max(method_costs, key=peak)
    needed = peak(costliest)
    if needed <= CHECK_ABOVE_BYTES:
        return
    free = free_memory(device)
    if free is None or needed <= free:
        return
    left = f"of memory, and {device} has {format_bytes(free)} left"
    texts = largest_batch(geometry, length, free, costliest)
    if texts:
        message = f"{batch} texts of {length} tokens need about {format_bytes(needed)} {left}; use "
        raise TooLargeError(message, Argument("batch_size", texts), " or less")
    advice = "shorten or split the text, or free memory"
    if costliest.peels:
        advice += ", or use a method with a single forward pass, such as agf"
    raise TooLargeError(
        f"a text of {length} tokens needs about {format_bytes(peak(costliest, 1))} {left}; "
        f"up to {longest_text(geometry, free, costliest)} tokens would fit: {advice}"
    )


def halving(items: Sequence[Item], work: Callable[[Sequence[Item]], Sequence[Result]]) -> list[Result]:
    """`work(items)`; if these are too many for the memory, work on one half and then on the other."""
    try:
        return list(work(items))
    except TooLargeError:
        if len(items) == 1:
            raise
    half = len(items) // 2  # outside the handler, whose traceback would hold on to the tensors of the failed attempt
    return [*halving(items[:half], work), *halving(items[half:], work)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there is not enough memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def format_bytes(count: float) -> str:
    """A number of bytes for a reader, such as "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB" if count < 1000 else f"{count:,.0f} GiB"
