"""The memory that a device has left.

On the host this is what Linux calls available (`MemAvailable`), within the limits of the control groups (version 2)
that containers run in. The convention this file owns: None means that the system does not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch


def free_memory(device: torch.device | str, root: Path = Path("/")) -> int | None:
    """Bytes that you can take on a device without taking them from others; None where the system does not say.

    `root` is the folder that holds the files of the kernel.
    """
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type != "cpu":
        return None
    bounds = list(_left_in_groups(root))
    available_kib = _numbers_by_name(root / "proc/meminfo").get("MemAvailable:")
    if available_kib:
        bounds.append(available_kib * 1024)
    return max(0, min(bounds)) if bounds else None


def _left_in_groups(root: Path) -> Iterator[int]:
    """Bytes that each control group around the process leaves. Page cache that is not in use can be taken back."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers:  # a group of version 1
            continue
        innermost = Path(path.strip("/"))
        for group in (innermost, *innermost.parents):
            folder = root / "sys/fs/cgroup" / group
            limit = _number(folder / "memory.max")
            used = _number(folder / "memory.current")
            if limit is not None and used is not None:
                yield limit - used + _numbers_by_name(folder / "memory.stat").get("inactive_file", 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _numbers_by_name(path: Path) -> dict[str, int]:
    """The lines of a file that are a name and a number."""
    numbers = {}
    for line in _lines(path):
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            numbers[words[0]] = int(words[1])
    return numbers


def _number(path: Path) -> int | None:
    """The number in a file; None for no file, or for "max"."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None
