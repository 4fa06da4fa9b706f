"""`gaflow info`: what would be traced of a model, and at what cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import torch
import typer

from gaflow.cli.app import Device, Json, TaskName, app, as_integer
from gaflow.cli.input_output import print_json
from gaflow.cli.progress import spinner
from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.explainer.default_method import DEFAULT, LEADING, default_name
from gaflow.flow.barrier.solve import solve
from gaflow.methods import FlowMethod, find_method
from gaflow.models.adapters import find_adapter
from gaflow.models.cost import Geometry, MethodCost, estimate, largest_batch, longest_text, solve_flops
from gaflow.models.free_memory import free_memory
from gaflow.models.limits import length_limit
from gaflow.models.loading import Loaded, outline
from gaflow.models.memory import budget, format_bytes
from gaflow.tasks import TASKS
from gaflow.terminal.console import make_console, show, table
from gaflow.view.text import one_line

__all__ = ["info"]

_DEFAULT_LENGTH = 128  # tokens
_SAMPLE_TOKENS = 96  # of the network that is solved to take the time
_MAX_LABELS = 20  # listed in the table


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    length: Annotated[
        int | None,
        typer.Option(parser=as_integer, metavar="T", help="Tokens of the text; default: 128, if so many fit."),
    ] = None,
    task: TaskName = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="A flow of 'gaflow methods'; default: as for 'gaflow explain'.")
    ] = None,
    batch_size: Annotated[int, typer.Option(parser=as_integer, metavar="N", help="Texts that run together.")] = 1,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show what would be traced of MODEL, and what it would cost. Its weights are not loaded.

    \b
    Example:
      gaflow info org/name --length 512 --batch-size 16
    """
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with spinner("reading"):
        loaded = outline(model, task)
        flow_method = _find_flow_method(method, loaded.task)
        facts: dict[str, Any] = {"model": model, **_model_facts(loaded)}
        text_length = _text_length(length, facts["limit"])
        facts |= _cost_facts(loaded, flow_method, text_length, batch_size, torch_device)
    if as_json:
        print_json(facts)
        return
    rows = []
    for title, value in _table_rows(facts, default_method=method is None).items():
        if value:
            rows.append([title, one_line(value)])
    show(make_console(), table(["", ""], rows))


def _find_flow_method(name: str | None, task: str) -> FlowMethod:
    if name is None:
        name = default_name(task)
    method = find_method(name)
    if not isinstance(method, FlowMethod):
        examples = f"{DEFAULT} or {LEADING}"
        raise ArgumentError(
            Argument("method"), f" must be a flow, whose costs are known, such as {examples}, not {name}"
        )
    return method


def _text_length(length: int | None, limit: int | None) -> int:
    """The tokens of the text that the costs are for."""
    if length is None:
        return min(_DEFAULT_LENGTH, limit or _DEFAULT_LENGTH)
    if length < 1 or (limit is not None and length > limit):
        most = limit or "any number"
        raise ArgumentError(Argument("length"), f" must be 1 to {most} for this model, not {length}")
    return length


def _model_facts(loaded: Loaded) -> dict[str, Any]:
    """What is known of a model without its weights, as plain values."""
    model = loaded.model
    tokenizer = loaded.tokenizer
    parameters = list(model.parameters())
    adapter = find_adapter(model)
    return {
        "class": type(model).__name__,
        "type": model.config.model_type,
        "task": loaded.task,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "weights": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        "dtype": str(model.dtype).removeprefix("torch."),
        "labels": list(TASKS[loaded.task].head(model, tokenizer).labels),
        "tokenizer": _tokenizer_name(tokenizer),
        "vocabulary": len(tokenizer) if hasattr(tokenizer, "is_fast") else None,
        "limit": length_limit(model, tokenizer),
        "adapter": adapter.name or None,
        "padding": not adapter.alone,
    }


def _cost_facts(
    loaded: Loaded, method: FlowMethod, length: int, batch_size: int, device: torch.device
) -> dict[str, Any]:
    """What an explanation of `batch_size` texts would cost, as plain values."""
    model = loaded.model
    geometry = Geometry.of(model.config)
    if geometry is None:
        raise UnsupportedModelError(f"{type(model).__name__} has no single stack of attention layers to trace")
    method_cost = method.cost
    cost = estimate(geometry, length, batch_size, method_cost, device)
    seconds_per_network = solve_seconds(method_cost.layers * geometry.layers, length)
    seconds = method_cost.networks * batch_size * seconds_per_network
    free = free_memory(device)
    memory_budget = budget(device)
    return {
        "layers": geometry.layers,
        "heads": geometry.heads,
        "method": method.name,
        "passes": method.info.passes,
        "length": length,
        "batch": batch_size,
        "attention": [geometry.layers, geometry.heads, length, length],
        "estimate": {**asdict(cost), "peak": cost.peak, "seconds": seconds},
        "device": str(device),
        "free": free,
        "fits": None if free is None else _what_fits(model, geometry, length, method_cost, free, device),
        "budget": memory_budget,
        "together": max(1, largest_batch(geometry, length, memory_budget, method_cost, device)),
    }


def _what_fits(
    model: Any, geometry: Geometry, length: int, method_cost: MethodCost, free: int, device: torch.device
) -> dict[str, int]:
    """How many texts of this length fit into the free memory beside the weights, and one text of which length."""
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    room = max(0, free - weights)
    return {
        "batch": largest_batch(geometry, length, room, method_cost, device),
        "length": longest_text(geometry, room, method_cost, device),
    }


def _table_rows(facts: dict[str, Any], default_method: bool) -> dict[str, str]:
    """The rows of the table; those without a value are left out."""
    cost = facts["estimate"]
    return {
        "model": f"{facts['class']} ({facts['type']}), {facts['task']}",
        "parameters": f"{facts['parameters']:,}, {format_bytes(facts['weights'])} in {facts['dtype']}",
        "labels": _label_list(facts["labels"]),
        "tokenizer": facts["tokenizer"] + (f", {facts['vocabulary']:,} tokens" if facts["vocabulary"] else ""),
        "longest text": "no limit" if facts["limit"] is None else f"{facts['limit']} tokens",
        "attention": f"{facts['layers']} layers, {facts['heads']} heads{_attention_note(facts)}",
        "a text of": f"{facts['length']} tokens: attention {tuple(facts['attention'])}",
        "method": f"{facts['method']}{_default_note(facts, default_method)}: {facts['passes']}",
        "trace": f"{format_bytes(cost['trace'])} for attention and gradient{_batch_note(facts['batch'])}",
        "paths": format_bytes(cost["path"]) if cost["path"] else "",
        "flow": f"{format_bytes(cost['flow'])}, {cost['flops']:.1e} flops, {_duration(cost['seconds'])} on this CPU",
        "memory": f"{format_bytes(cost['peak'] + facts['weights'])} at the peak, weights included",
        "room": _room_note(facts),
        "batches": f"at most {facts['together']:,} such texts, for {format_bytes(facts['budget'])} a batch",
    }


def _default_note(facts: dict[str, Any], default_method: bool) -> str:
    """Only a pass of the model can show whether the default method works."""
    if default_method and facts["method"] == LEADING:
        return ", if it can follow the model"
    return ""


def _attention_note(facts: dict[str, Any]) -> str:
    """Where the attention weights come from, if the model does not simply return them."""
    note = ""
    if facts["adapter"]:
        note += f"; read by an adapter: {facts['adapter']}"
    if not facts["padding"]:
        note += "; a batch holds texts of one length"
    return note


def _batch_note(batch_size: int) -> str:
    return f" of {batch_size} texts" if batch_size > 1 else ""


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"about {seconds:.2g} s"
    return f"about {seconds:,.0f} s"


def _room_note(facts: dict[str, Any]) -> str:
    """Whether it fits, and what would."""
    if facts["fits"] is None:
        return f"{facts['device']} does not tell what it has left"
    batch = facts["fits"]["batch"]
    free = f"{facts['device']} has {format_bytes(facts['free'])} left"
    if not batch:
        return f"{free}: too little; texts of up to {facts['fits']['length']:,} tokens would fit"
    verdict = "enough" if batch >= facts["batch"] else "too little"
    return f"{free}: {verdict}; {batch:,} such texts fit at a time"


def _tokenizer_name(tokenizer: Any) -> str:
    """The class of the tokenizer, or of the processor of pictures and sounds."""
    name = type(tokenizer).__name__
    if not hasattr(tokenizer, "is_fast"):
        return name
    speed = "fast" if tokenizer.is_fast else "slow"
    return f"{name}, {speed}"


def _label_list(labels: Sequence[str]) -> str:
    if not labels:
        return "its vocabulary"
    listed = ", ".join(labels[:_MAX_LABELS])
    if len(labels) > _MAX_LABELS:
        listed += f" and {len(labels) - _MAX_LABELS} more"
    return listed


def solve_seconds(layers: int, length: int) -> float:
    """About how long one solve takes on this machine's CPU, measured on a random network of at most 96 tokens.

    No formula knows the machine, so a small network is solved on the spot.
    """
    sample = min(length, _SAMPLE_TOKENS)
    information = torch.rand(layers, sample, sample, generator=torch.Generator().manual_seed(0))
    solve(information[:1, :2, :2])  # the first solve of a process is slower
    seconds = min(_time(lambda: solve(information)) for _ in range(2))
    if sample == length:
        return seconds
    square = torch.ones(256, 256, dtype=torch.float64)
    flops_per_second = 2 * 256**3 / min(_time(lambda: square @ square) for _ in range(3))
    return extrapolate(seconds, sample, length, layers, flops_per_second)


def extrapolate(seconds: float, sample: int, length: int, layers: int, flops_per_second: float) -> float:
    """Seconds at `length` tokens from those at `sample` tokens.

    At small sizes nearly all time goes into passes over the edges, which grow as t^2. The t^3 of the factorisations
    shows later: the operations beyond that growth take their time at `flops_per_second`.
    """
    growth = (length / sample) ** 2
    more_flops = solve_flops(layers, length) - growth * solve_flops(layers, sample)
    return growth * seconds + more_flops / flops_per_second


def _time(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
