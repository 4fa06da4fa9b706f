"""`gaflow info`: what would be traced of a model, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import torch
import typer

from gaflow.cli.app import Device, Json, TaskName, app, count
from gaflow.cli.input_output import print_json, waiting
from gaflow.errors import UnsupportedModelError
from gaflow.explainer.default_method import LEADING
from gaflow.methods import DEFAULT, FlowMethod, find_method
from gaflow.models.adapters import find_adapter
from gaflow.models.cost import Geometry, MethodCost, estimate, largest_batch, longest_text, solve_seconds
from gaflow.models.limits import length_limit
from gaflow.models.loading import Loaded, outline
from gaflow.models.memory import budget, free_memory, in_bytes
from gaflow.tasks import TASKS
from gaflow.terminal.console import make_console, show, table
from gaflow.view.text import one_line

__all__ = ["info"]

_LENGTH = 128


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    length: Annotated[
        int | None, typer.Option(parser=count, metavar="T", help="Tokens of the text; default: 128, if so many fit.")
    ] = None,
    task: TaskName = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="A flow of 'gaflow methods'; default: as for 'gaflow explain'.")
    ] = None,
    batch_size: Annotated[int, typer.Option(parser=count, metavar="N", help="Texts that run together.")] = 1,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show what would be traced of MODEL, and what it would cost. Its weights are not loaded.

    \b
    Example:
      gaflow info org/name --length 512 --batch-size 16
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with waiting("reading"):
        found = _inspect(outline(model, task), model, method, length, batch_size, place)
    if as_json:
        print_json(found)
        return
    cost = found["estimate"]
    rows = {
        "model": f"{found['class']} ({found['type']}), {found['task']}",
        "parameters": f"{found['parameters']:,}, {in_bytes(found['weights'])} in {found['dtype']}",
        "labels": _listed(found["labels"]) or "its vocabulary",
        "tokenizer": found["tokenizer"] + (f", {found['vocabulary']:,} tokens" if found["vocabulary"] else ""),
        "longest text": "no limit" if found["limit"] is None else f"{found['limit']} tokens",
        "attention": f"{found['layers']} layers, {found['heads']} heads{_reading(found)}",
        "a text of": f"{found['length']} tokens: attention {tuple(found['attention'])}",
        "method": f"{found['method']}{_default(method, found)}: {found['passes']}",
        "trace": f"{in_bytes(cost['trace'])} for attention and gradient{_times(found['batch'])}",
        "paths": in_bytes(cost["path"]) if cost["path"] else "",
        "flow": f"{in_bytes(cost['flow'])}, {cost['flops']:.1e} flops, {_seconds(found)} on this CPU",
        "memory": f"{in_bytes(cost['peak'] + found['weights'])} at the peak, weights included",
        "room": _room(found),
        "batches": f"at most {found['together']:,} such texts, for {in_bytes(found['budget'])} a batch",
    }
    show(make_console(), table(["", ""], [[key, one_line(value)] for key, value in rows.items() if value]))


def _inspect(
    loaded: Loaded, name: str | None, method: str | None, length: int | None, batch: int, device: torch.device
) -> dict[str, Any]:
    """All that `info` says, as plain values."""
    config, adapter = loaded.model.config, find_adapter(loaded.model)
    geometry = Geometry.of(config)
    if geometry is None:
        raise UnsupportedModelError(f"{type(loaded.model).__name__} has no single stack of attention layers to trace")
    limit = length_limit(loaded.model, loaded.tokenizer)
    if length is None:
        length = min(_LENGTH, limit or _LENGTH)
    elif length < 1 or (limit is not None and length > limit):
        raise ValueError(f"--length must be 1 to {limit or 'any number'} for this model, not {length}")
    parameters = sum(p.numel() for p in loaded.model.parameters())
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    chosen = find_method(method or (LEADING if loaded.task == "text-classification" else DEFAULT))
    if not isinstance(chosen, FlowMethod):
        raise ValueError(
            f"--method must be a flow, whose costs are known, such as {DEFAULT} or {LEADING}, not {method}"
        )
    work = chosen.cost
    cost = estimate(geometry, length, batch, work, device)
    seconds = work.networks * batch * solve_seconds(work.layers * geometry.layers, length)
    free = free_memory(device)
    room = None if free is None else free - weights
    return {
        "model": name,
        "class": type(loaded.model).__name__,
        "type": config.model_type,
        "task": loaded.task,
        "parameters": parameters,
        "weights": weights,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "labels": list(TASKS[loaded.task].head(loaded.model, loaded.tokenizer).labels),
        "tokenizer": _reader(loaded.tokenizer),
        "vocabulary": len(loaded.tokenizer) if hasattr(loaded.tokenizer, "is_fast") else None,
        "limit": limit,
        "layers": geometry.layers,
        "heads": geometry.heads,
        "adapter": adapter.name or None,
        "padding": not adapter.alone,
        "method": chosen.name,
        "passes": chosen.info.passes,
        "length": length,
        "batch": batch,
        "attention": [geometry.layers, geometry.heads, length, length],
        "estimate": {**asdict(cost), "peak": cost.peak, "seconds": seconds},
        "device": str(device),
        "free": free,
        "fits": None if room is None else _fits(geometry, length, max(0, room), work, device),
        "budget": budget(device),
        "together": max(1, largest_batch(geometry, length, budget(device), work, device)),
    }


def _default(method: str | None, found: dict[str, Any]) -> str:
    """What cannot be known without a pass of the model."""
    return ", if it can follow the model" if method is None and found["method"] == LEADING else ""


def _reading(found: dict[str, Any]) -> str:
    """Where the attention weights come from, if the model does not simply hand them out."""
    read = f"; read by an adapter: {found['adapter']}" if found["adapter"] else ""
    return read + ("" if found["padding"] else "; only texts of one length run together")


def _fits(geometry: Geometry, length: int, room: int, work: MethodCost, device: torch.device) -> dict[str, int]:
    """How many texts of this length, and one text of which length."""
    return {
        "batch": largest_batch(geometry, length, room, work, device),
        "length": longest_text(geometry, room, work, device),
    }


def _times(batch: int) -> str:
    return f" of {batch} texts" if batch > 1 else ""


def _seconds(found: dict[str, Any]) -> str:
    seconds = found["estimate"]["seconds"]
    return f"about {seconds:.2g} s" if seconds < 10 else f"about {seconds:,.0f} s"


def _room(found: dict[str, Any]) -> str:
    """Whether it fits, and what would."""
    if found["fits"] is None:
        return f"{found['device']} does not tell what it has left"
    batch, length = found["fits"]["batch"], found["fits"]["length"]
    left = f"{found['device']} has {in_bytes(found['free'])} left"
    if not batch:
        return f"{left}: too little; texts of up to {length:,} tokens would fit"
    return f"{left}: {'enough' if batch >= found['batch'] else 'too little'}; {batch:,} such texts fit at a time"


def _reader(tokenizer: Any) -> str:
    """What turns input into tokens, which is no tokenizer for pictures and sounds."""
    name = type(tokenizer).__name__
    return f"{name}, {'fast' if tokenizer.is_fast else 'slow'}" if hasattr(tokenizer, "is_fast") else name


def _listed(labels: Sequence[str], most: int = 20) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
