"""`gaflow info`: what would be traced of a model, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from timeit import repeat
from typing import Annotated, Any

import torch
import typer

from gaflow.arguments import whole_number
from gaflow.cli.app import BatchSize, Device, Json, Revision, TaskName, TrustRemoteCode, app, method_option, number
from gaflow.cli.input_output import print_json
from gaflow.cli.progress import spinner
from gaflow.errors import Argument, ArgumentError, UnsupportedModelError
from gaflow.explainer.default_method import DEFAULT, LEADING, verdict
from gaflow.explainer.runner import Runner
from gaflow.flow.barrier.solve import solve
from gaflow.methods import FlowMethod, find_method
from gaflow.models.adapters import find_adapter
from gaflow.models.cost import Geometry, estimate, largest_batch, longest_text, solve_flops
from gaflow.models.forward import may_stream
from gaflow.models.free_memory import free_memory
from gaflow.models.limits import length_limit
from gaflow.models.loading import Loaded, outline
from gaflow.models.memory import budget, format_bytes, method_costs
from gaflow.tasks import TASKS
from gaflow.tasks.classification import list_labels
from gaflow.tasks.similarity import SimilarityHead
from gaflow.terminal.console import make_console, show, table
from gaflow.view.text import one_line

Facts = dict[str, Any]  # plain values, as JSON prints them

_DEFAULT_LENGTH = 128  # tokens
_MOST_TRIED = 200_000_000  # parameters, which get random values within seconds
_SAMPLE_TOKENS = 96  # of the network that is solved to take the time
_ROWS = {  # of the table: title -> facts and wordings; a row without a value is left out
    "model": "{class} ({type}), {task}",
    "parameters": "{parameters:,}, {weights} in {dtype}",
    "labels": "{labels}",
    "output": "{output}",
    "tokenizer": "{tokenizer}{vocabulary}",
    "longest text": "{limit}",
    "attention": "{layers} layers, {heads} heads{source}",
    "a text of": "{length} tokens: attention ({layers}, {heads}, {length}, {length})",
    "method": "{method}{condition}: {passes}",
    "trace": "{trace} for attention and gradient{together_with}",
    "contexts": "{contexts}",
    "flow": "{flow}, {estimate[flops]:.1e} flops, about {duration} s on this CPU",
    "memory": "{peak} at the peak, weights included",
    "room": "{room}",
    "batches": "at most {together:,} such texts, for {budget} a batch",
}


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    length: Annotated[
        int | None, number("Length of the text in tokens; default: 128, or the model's maximum.", "T")
    ] = None,
    task: TaskName = None,
    method: Annotated[
        str | None, method_option("A flow of 'gaflow methods'; default: as for 'gaflow explain'.")
    ] = None,
    batch_size: BatchSize = 1,
    device: Device = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: Json = False,
) -> None:
    """Show whether gaflow can explain MODEL, and how much memory it takes. Weights are not loaded.

    The first line is the answer: a model of up to 200 million parameters is tried on a few words, with random weights.

    \b
    Example:
      gaflow info org/name --length 512 --batch-size 16
    """
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with spinner("reading"), _answering_no():
        loaded = outline(model, task, trust_remote_code, revision)
        name = method or LEADING
        flow_method = find_method(name)
        if not isinstance(flow_method, FlowMethod):
            raise ArgumentError(
                Argument("method"), f" must be a flow, whose costs are known, such as {DEFAULT}, not {name}"
            )
        facts: Facts = {"model": model, "verdict": None, **_model_facts(loaded)}
        limit = facts["limit"]
        if length is None:
            length = min(_DEFAULT_LENGTH, limit or _DEFAULT_LENGTH)
        whole_number("length", length, most=limit)
        facts |= _cost_facts(loaded.model, facts["weights"], flow_method, length, batch_size, torch_device)
        facts["verdict"] = _try_random_weights(loaded, facts["parameters"])
    if as_json:
        print_json(facts)
        return
    words = facts | _wordings(facts, default_method=method is None)
    rows = []
    for title, template in _ROWS.items():
        value = template.format_map(words)
        if value:
            rows.append([title, one_line(value)])
    not_tried = (
        "probably yes: gaflow reads attention of this kind, but only the config was looked at, and nothing tried"
    )
    typer.echo(one_line(facts["verdict"] or not_tried))
    show(make_console(), table(["", ""], rows))


@contextmanager
def _answering_no() -> Iterator[None]:
    """Begin the error about a model that cannot be explained with the answer."""
    try:
        yield
    except UnsupportedModelError as error:
        raise UnsupportedModelError("no: ", *error.args) from error


def _try_random_weights(loaded: Loaded, parameters: int) -> str | None:
    """Whether a model can be explained, by trying its class with random weights; None if that cannot tell."""
    model_class = type(loaded.model)
    if parameters > _MOST_TRIED or not hasattr(model_class, "config_class"):
        return None
    try:
        with torch.random.fork_rng():
            model = model_class(loaded.model.config).eval()
            return verdict(Runner.of(model, loaded.tokenizer, loaded.task))
    except Exception:  # of any model's own code, which random weights may bring about
        return None


def _model_facts(loaded: Loaded) -> Facts:
    """What is known of a model without its weights, as plain values."""
    model = loaded.model
    tokenizer = loaded.tokenizer
    parameters = list(model.parameters())
    head = TASKS[loaded.task].head(model, tokenizer)
    adapter = find_adapter(model)
    tokenizer_name = type(tokenizer).__name__  # or that of what reads pictures and sounds
    vocabulary = None
    if hasattr(tokenizer, "is_fast"):
        tokenizer_name += ", fast" if tokenizer.is_fast else ", slow"
        vocabulary = len(tokenizer)
    return {
        "class": type(model).__name__,
        "type": model.config.model_type,
        "task": loaded.task,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "weights": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        "dtype": str(parameters[0].dtype).removeprefix("torch."),
        "labels": list(head.labels),
        "output": head.describe(head.measure).output_kind if isinstance(head, SimilarityHead) else None,
        "tokenizer": tokenizer_name,
        "vocabulary": vocabulary,
        "limit": length_limit(model, tokenizer),
        "adapter": adapter.name or None,
        "padding": not adapter.alone,
    }


def _cost_facts(
    model: Any, weights: int, method: FlowMethod, length: int, batch_size: int, device: torch.device
) -> Facts:
    """What an explanation of `batch_size` texts would cost beside the bytes of the weights, as plain values."""
    geometry = Geometry.of(model.config)
    if geometry is None:
        raise UnsupportedModelError(f"{type(model).__name__} has no single stack of attention layers to trace")
    streamed = method.head_means is not None and may_stream(model)
    (method_cost,) = method_costs([method], device, streamed)
    cost = estimate(geometry, length, batch_size, method_cost)
    seconds_per_network = solve_seconds(method_cost.layers * geometry.layers, length)
    seconds = method_cost.networks * batch_size * seconds_per_network
    free = free_memory(device)
    fits = None
    if free is not None:
        room = max(0, free - weights)
        fits = {
            "batch": largest_batch(geometry, length, room, method_cost),
            "length": longest_text(geometry, room, method_cost),
        }
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
        "fits": fits,
        "budget": memory_budget,
        "together": max(1, largest_batch(geometry, length, memory_budget, method_cost)),
    }


def _wordings(facts: Facts, default_method: bool) -> dict[str, str]:
    """The words of the table that are not plain facts; empty where there is nothing to say."""
    cost = facts["estimate"]
    seconds = cost["seconds"]
    words = dict.fromkeys(("vocabulary", "source", "condition", "together_with", "contexts", "labels"), "")
    if facts["vocabulary"]:
        words["vocabulary"] = f", {facts['vocabulary']:,} tokens"
    if facts["labels"]:
        words["labels"] = list_labels(facts["labels"])
    elif facts["output"] is None:
        words["labels"] = "its vocabulary"
    if facts["adapter"]:
        words["source"] += f"; read by an adapter: {facts['adapter']}"
    if not facts["padding"]:
        words["source"] += "; a batch holds texts of one length"
    if default_method and facts["method"] == LEADING:
        words["condition"] = ", if it can follow the model"  # which only a pass of the model can show
    if facts["batch"] > 1:
        words["together_with"] = f" of {facts['batch']} texts"
    if cost["contexts"]:
        words["contexts"] = f"{format_bytes(cost['contexts'])} for traces without the strongest tokens"
    return words | {
        "limit": "no limit" if facts["limit"] is None else f"{facts['limit']} tokens",
        "output": facts["output"] or "",
        "weights": format_bytes(facts["weights"]),
        "trace": format_bytes(cost["trace"]),
        "flow": format_bytes(cost["flow"]),
        "peak": format_bytes(cost["peak"] + facts["weights"]),
        "budget": format_bytes(facts["budget"]),
        "duration": f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}",
        "room": _room_note(facts),
    }


def _room_note(facts: Facts) -> str:
    """Whether it fits, and what would."""
    if facts["fits"] is None:
        return f"{facts['device']} does not tell what it has left"
    batch = facts["fits"]["batch"]
    free = f"{facts['device']} has {format_bytes(facts['free'])} left"
    if not batch:
        return f"{free}: too little; texts of up to {facts['fits']['length']:,} tokens would fit"
    verdict = "enough" if batch >= facts["batch"] else "too little"
    return f"{free}: {verdict}; {batch:,} such texts fit at a time"


def solve_seconds(layers: int, length: int) -> float:
    """About how long one solve takes on this machine's CPU, measured on a random network of at most 96 tokens.

    No formula knows the machine, so a small network is solved on the spot.
    """
    sample = min(length, _SAMPLE_TOKENS)
    information = torch.rand(layers, sample, sample, generator=torch.Generator().manual_seed(0))
    solve(information[:1, :2, :2])  # the first solve of a process is slower
    seconds = min(repeat(lambda: solve(information), number=1, repeat=2))
    if sample == length:
        return seconds
    square = torch.ones(256, 256, dtype=torch.float64)
    flops_per_second = 2 * 256**3 / min(repeat(lambda: square @ square, number=1, repeat=3))
    return extrapolate(seconds, sample, length, layers, flops_per_second)


def extrapolate(seconds: float, sample: int, length: int, layers: int, flops_per_second: float) -> float:
    """Seconds at `length` tokens from those at `sample` tokens.

    At small sizes nearly all time goes into passes over the edges, which grow as t^2. The t^3 of the factorisations
    shows later: the operations beyond that growth take their time at `flops_per_second`.
    """
    growth = (length / sample) ** 2
    more_flops = solve_flops(layers, length) - growth * solve_flops(layers, sample)
    return growth * seconds + more_flops / flops_per_second
