"""`gaflow info`: what would be traced of a model, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from gaflow.commands.app import Json, app, count
from gaflow.commands.streams import print_json, waiting
from gaflow.errors import UnsupportedModelError
from gaflow.estimate import estimate, solve_seconds
from gaflow.loading import Loaded, outline
from gaflow.targets import Head
from gaflow.terminal import make_console, one_line, show, table
from gaflow.text import length_limit

__all__ = ["info"]

_LENGTH = 128


@app.command()
def info(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Hub id or folder; default: built in.")] = None,
    length: Annotated[
        int | None, typer.Option(parser=count, metavar="T", help="Tokens of the text; default: 128, if so many fit.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what would be traced of MODEL, and what it would cost. Its weights are not loaded.

    \b
    Example:
      gaflow info org/name --length 256
    """
    with waiting("reading"):
        found = _inspect(outline(model), model, length)
    if as_json:
        print_json(found)
        return
    cost = found["estimate"]
    rows = {
        "model": f"{found['class']} ({found['type']}), {found['task']}",
        "parameters": f"{found['parameters']:,}, {_bytes(cost['weights'])} in {found['dtype']}",
        "labels": _listed(found["labels"]),
        "tokenizer": f"{found['tokenizer']}, {found['vocabulary']:,} tokens",
        "longest text": "no limit" if found["limit"] is None else f"{found['limit']} tokens",
        "attention": f"{found['layers']} layers, {found['heads']} heads",
        "a text of": f"{found['length']} tokens: attention {tuple(found['attention'])}",
        "trace": f"{_bytes(cost['trace'])} for attention and gradient",
        "solve": f"{_bytes(cost['solve'])}, {cost['flops']:.1e} flops, about {cost['seconds']:.2g} s on this CPU",
    }
    show(make_console(), table(["", ""], [[key, one_line(value)] for key, value in rows.items()]))


def _inspect(loaded: Loaded, name: str | None, length: int | None) -> dict[str, Any]:
    """All that `info` says, as plain values."""
    config = loaded.model.config
    layers, heads = (getattr(config, key, None) for key in ("num_hidden_layers", "num_attention_heads"))
    if getattr(config, "is_encoder_decoder", False) or not isinstance(layers, int) or not isinstance(heads, int):
        raise UnsupportedModelError(f"{type(loaded.model).__name__} has no single stack of attention layers to trace")
    limit = length_limit(loaded.model, loaded.tokenizer)
    if length is None:
        length = min(_LENGTH, limit or _LENGTH)
    elif length < 1 or (limit is not None and length > limit):
        raise ValueError(f"--length must be 1 to {limit or 'any number'} for this model, not {length}")
    parameters = sum(p.numel() for p in loaded.model.parameters())
    cost = estimate(layers=layers, heads=heads, length=length, parameters=parameters)
    return {
        "model": name,
        "class": type(loaded.model).__name__,
        "type": config.model_type,
        "task": loaded.task,
        "parameters": parameters,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "labels": list(Head.of(config).labels),
        "tokenizer": f"{type(loaded.tokenizer).__name__}, {'fast' if loaded.tokenizer.is_fast else 'slow'}",
        "vocabulary": len(loaded.tokenizer),
        "limit": limit,
        "layers": layers,
        "heads": heads,
        "length": length,
        "attention": [layers, heads, length, length],
        "estimate": {**asdict(cost), "seconds": solve_seconds(layers, length)},
    }


def _listed(labels: Sequence[str], most: int = 20) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.3g} GiB"
