"""What a device can hold: its free memory, how many texts a batch may have, and what to say when work cannot fit.

The convention this file owns: **batches are made by a budget that is the same on every machine**, so that the same
texts make the same batches everywhere; what is free at the moment only ever splits a batch that would not fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import torch

from gaflow.errors import TooLargeError
from gaflow.models.cost import ONE_TRACE, Geometry, MethodCost, estimate, largest_batch, longest_text

__all__ = [
    "BUDGET",
    "TRIFLE",
    "batch_limit",
    "budget",
    "device_of",
    "fitting",
    "free_memory",
    "geometry_of",
    "halving",
    "in_bytes",
    "is_out_of_memory",
]

Given = TypeVar("Given")
Made = TypeVar("Made")

BUDGET = {"cpu": 2 << 30, "cuda": 16 << 30}  # bytes of a batch at its peak, unless one text alone needs more
TRIFLE = 64 << 20  # bytes that are not looked for: asking what is free takes longer than some short texts do
_SIGNS = ("can't allocate memory", "not enough memory", "out of memory")  # what torch says, as a mere RuntimeError


def device_of(model: Any) -> torch.device:
    """Where a model wants its input: it may be spread over several devices, and reads on the first."""
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def budget(device: torch.device | str) -> int:
    """Bytes that a batch may take on a device of this kind."""
    return BUDGET.get(torch.device(device).type, BUDGET["cpu"])


def batch_limit(model: Any, length: int, methods: Iterable[object] = ()) -> int | None:
    """How many texts of `length` tokens are within the budget, one at least; None if it is not known what they need."""
    geometry, device = geometry_of(model), device_of(model)
    if geometry is None:
        return None
    return max(1, min(largest_batch(geometry, length, budget(device), work, device) for work in _works(methods)))


@contextmanager
def fitting(model: Any, lengths: Sequence[int], methods: Iterable[object] = ()) -> Iterator[None]:
    """Do work on texts of these lengths, padded to the longest, that fit into the memory of the model's device.

    Where they do not, TooLargeError says what would: before the work, by its estimate, since many systems end a process
    that takes too much, and where it runs out of memory nevertheless.
    """
    geometry, device, batch, length = geometry_of(model), device_of(model), len(lengths), max(lengths)
    if geometry is not None:
        costs = {work: estimate(geometry, length, batch, work, device).peak for work in _works(methods)}
        work, peak = max(costs.items(), key=itemgetter(1))
        free = free_memory(device) if peak > TRIFLE else None
        if free is not None and peak > free:
            raise TooLargeError(_advice(geometry, work, batch, length, device, free))
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, TooLargeError) or not is_out_of_memory(error):
            raise
        what = f"{batch} texts" if batch > 1 else "a text"
        less = f"batch_size={batch // 2} or less" if batch > 1 else "a shorter text or a smaller model"
        raise TooLargeError(f"{device} ran out of memory on {what} of {length} tokens; use {less}") from error


def geometry_of(model: Any) -> Geometry | None:
    """The sizes of a model that memory depends on; None if it does not tell."""
    weight = next(model.parameters(), None)
    return None if weight is None else Geometry.of(getattr(model, "config", None), weight.element_size())


def _works(methods: Iterable[object]) -> list[MethodCost]:
    """What methods do with a trace that they share; what does not tell does nothing that would count."""
    told = (getattr(method, "cost", None) for method in methods)  # which may be anything: anybody may write a method
    return list({found for found in told if isinstance(found, MethodCost)} or {ONE_TRACE})


def halving(items: Sequence[Given], work: Callable[[Sequence[Given]], Sequence[Made]]) -> list[Made]:
    """`work(items)`; where these are too many for the memory, of one half and then of the other."""
    try:
        return list(work(items))
    except TooLargeError:
        if len(items) == 1:
            raise
    half = len(items) // 2  # outside the handler, whose traceback would hold on to the tensors of the failed attempt
    return [*halving(items[:half], work), *halving(items[half:], work)]


def _advice(geometry: Geometry, work: MethodCost, batch: int, length: int, device: torch.device, free: int) -> str:
    one, all_ = (in_bytes(estimate(geometry, length, n, work, device).peak) for n in (1, batch))
    left = f"and {device} has {in_bytes(free)} left"
    fits, longest = largest_batch(geometry, length, free, work, device), longest_text(geometry, free, work, device)
    if fits:
        return f"{batch} texts of {length} tokens need about {all_} of memory, {left}; use batch_size={fits} or less"
    return (
        f"a text of {length} tokens needs about {one} of memory, {left}; "
        f"up to {longest} tokens would fit: shorten or split the text, or free memory"
        f"{', or take a method that asks the model once, such as agf' if work.points else ''}"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def in_bytes(count: float) -> str:
    """A number of bytes, to be read."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB" if count < 1000 else f"{count:,.0f} GiB"


def free_memory(device: torch.device | str, root: Path = Path("/")) -> int | None:
    """Bytes that can be had on a device without taking them from others; None where the system does not tell.

    Of the host these are what the kernel calls available, within the limits of control groups (containers) and of
    the process; `root` is where its files are.
    """
    place = torch.device(device)
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info(place)
        return free + torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    if place.type != "cpu":
        return None
    known = [n for n in (_available(root), *_within_groups(root), _within_limit(root)) if n is not None]
    return max(0, min(known)) if known else None


def _available(root: Path) -> int | None:
    return _fields(root / "proc/meminfo").get("MemAvailable:", 0) * 1024 or None


def _within_groups(root: Path) -> Iterator[int]:
    """What each control group that the process is in leaves; page cache that is not in use can be taken back."""
    kinds = {  # controller -> where its groups are, and their files: limit, usage, page cache
        "": (("sys/fs/cgroup", "sys/fs/cgroup/unified"), ("memory.max", "memory.current", "inactive_file")),
        "memory": (
            ("sys/fs/cgroup/memory",),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    }
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for places, (limit, usage, cache) in (kinds[c] for c in controllers.split(",") if c in kinds):
            inside = Path(path.strip("/"))
            for group in [top for place in places for top in (root / place / p for p in (inside, *inside.parents))]:
                most, used = _number(group / limit), _number(group / usage)
                if most is not None and used is not None:
                    yield most - used + _fields(group / "memory.stat").get(cache, 0)


def _within_limit(root: Path) -> int | None:
    """What `ulimit -v` leaves."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = "".join(_lines(root / "proc/self/statm")).split()
    if most == resource.RLIM_INFINITY or not sizes:
        return None
    return most - int(sizes[0]) * os.sysconf("SC_PAGE_SIZE")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    found = (line.split() for line in _lines(path))
    return {words[0]: int(words[1]) for words in found if len(words) > 1 and words[1].isdigit()}


def _number(path: Path) -> int | None:
    """The number in a file; None for no file, or "max"."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None
