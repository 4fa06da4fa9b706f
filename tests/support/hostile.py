"""Valid stored files of every format, and ways to damage them."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load, save

import gaflow
from gaflow.attribution.attribution import Attribution
from gaflow.data.rows import Row
from gaflow.explainer.many import TextResults
from gaflow.html import flow_page, fragment, page
from gaflow.inputs.media import Sound
from gaflow.jobs.manifest import Manifest, Shard
from gaflow.jobs.schema import records, shard_bytes
from gaflow.terminal import make_console, render, render_all, show
from tests.support.attributions import make
from tests.support.reports import evaluation

STORED = Path(__file__).parents[1] / "data" / "stored_attributions"

INJECTIONS = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "\"' onmouseover=alert(1) x='",
    "]]><!-- --><svg/onload=alert(1)>",
    "\x1b[31m\x1b]0;title\x07",
    "\x9b2J\r\x00\u2028",
    "\u202etxt.exe\u2066 \u200e\u200f\u061c",
    "tag\U000e0041\U000e0001\U000e007f",
    "\ud800",
    "$\\frac{a}{b$ \\input{/etc/passwd} %",
    "| `x` [a](javascript:b) =1+1",
    "",
]

scalars = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 99, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324]),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.sampled_from(INJECTIONS),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def deep_json(depth: int = 100_000) -> bytes:
    """JSON that no recursive parser survives."""
    return b"[" * depth + b"]" * depth


ORIGIN = {"model": "org/name", "weights": "0" * 64, "settings": {"epsilon": 1e-6}, "versions": {"torch": "2.13.0"}}


def attributions() -> dict[str, Attribution]:
    """Attributions with everything that can be stored."""
    signed = replace(
        make("a <b> & 'c'", "the pair"),
        flow_against=make("a <b> & 'c'", "the pair").flow,
        diagnostics={"value_against": 0.5, "replacement": "pad", "delta": 1e-9},
        target=(1, 0),
        read_positions=(1,),
        output_kind="start + end logit",
        truncated=True,
    )
    similar = make("a <b> & 'c'", "the pair", flow=False)
    tokens = similar.segments.index(1)  # of the first text
    matches = np.linspace(-1, 1, tokens * (len(similar.tokens) - tokens)).reshape(tokens, -1)
    sound = replace(
        make("dog is cute", flow=False),
        text="a sound",
        offsets=((0, 0), (0, 4), (4, 8), (8, 10), (0, 0)),
        media=Sound(np.linspace(-1, 1, 10, dtype=np.float32), 16_000),
    )
    return {
        "signed": signed,
        "sound": sound,
        "picture": gaflow.load(STORED / "picture.safetensors"),
        "plain": make(origin=ORIGIN),
        "similar": replace(similar, token_matches=matches),
    }


@cache
def attribution_files() -> dict[str, bytes]:
    """Saved attributions by file name."""
    files = {}
    for path in sorted(STORED.glob("*.*")):
        if path.name != "expected.json":
            files[path.name] = path.read_bytes()
    for name, att in attributions().items():
        for suffix in ("json", "safetensors"):
            path = STORED.parent / f".{name}.{suffix}"
            try:
                att.save(path)
                files[f"{name}.{suffix}"] = path.read_bytes()
            finally:
                path.unlink(missing_ok=True)
    return files


@cache
def shard_rows() -> list[dict[str, Any]]:
    """Rows of a shard: a text, and a pair, by two methods each."""
    rows = []
    for number, pair in enumerate((None, "the pair")):
        methods = {
            "agf": replace(make("a good film", pair), flow=None, layers=None),
            "ig": replace(make("a good film", pair, flow=False), diagnostics={"delta": 0.1, "x": "y"}),
        }
        results = TextResults(number, methods, (0.5, 1.5))
        rows += records(Row(number, "a good film", pair, 1), results, methods, ["negative", "positive"])
    return rows


def write_job(folder: Path, data: bytes | None = None) -> Path:
    """A finished job of one shard."""
    data = shard_bytes(shard_rows()) if data is None else data
    (folder / "part-00000.parquet").write_bytes(data)
    checksum = sha256(data).hexdigest()
    shard = Shard(file="part-00000.parquet", sha256=checksum, texts=2, rows=4, errors=0, first=0, last=1)
    job = {
        "schema": 1,
        "data": {"name": "rows", "rows": 2, "sha256": "0", "limit": None},
        "texts": 2,
        "skipped": {"empty text": 1},
        "sample": None,
        "model": {"name": "m", "weights": "0", "tokenizer": {"class": "T", "sha256": "0"}},
        "methods": [{"name": "agf"}, {"name": "ig"}],
    }
    Manifest(job, {shard.file: shard}, finished=True).write(folder)
    return folder


def write_benchmark(folder: Path) -> Path:
    """A benchmark of one data set, with an example and the times of its attributions."""
    data = folder / "films"
    result = replace(evaluation(texts=5), soft=np.full((4, 5, 2), 0.1), zero=np.full(5, -2.0), bounds=np.zeros((5, 2)))
    replace(result, timings={"total": 1.0, "masking": 0.5, "forward": 0.4}).save(data / "pad")
    settings = {"asked": {"name": "films", "stored": True, "methods": None}, "left_out": {"lime": "too slow"}}
    (data / "bench.json").write_text(json.dumps(settings))
    (data / "sample.parquet").write_bytes(shard_bytes(shard_rows()[:2]))
    (data / "attributions").mkdir()
    times = {"shard": 0, "texts": 5, "trace": 1.0, "methods": {"agf": 0.5, "ig": 0.25}, "peak": {"agf": 1 << 20}}
    (data / "attributions" / "timings.jsonl").write_text(json.dumps(times) + "\n")
    return folder


def paths_in(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The places of all values inside a JSON value, as tuples of keys."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*path, key)
        yield from paths_in(inner, (*path, key))


def changed_json(draw: Callable, content: Any) -> Any:
    """JSON with one to three values replaced, removed, or added."""
    content = json.loads(json.dumps(content))
    for _ in range(draw(st.integers(1, 3))):
        places = list(paths_in(content))
        if not places:
            break
        *path, key = draw(st.sampled_from(places))
        inner = content
        for step in path:
            inner = inner[step]
        action = draw(st.sampled_from(["replace"] * 6 + ["delete", "duplicate", "scale"]))
        if action == "delete":
            del inner[key]
        elif action == "duplicate" and isinstance(inner, list):
            inner.append(inner[key])
        elif action == "scale" and isinstance(inner[key], int | float):
            inner[key] = inner[key] * draw(st.sampled_from([-1, 0, 1.5, 1e6, 1e200]))
        else:
            inner[key] = draw(json_values)
    return content


def changed_bytes(draw: Callable, data: bytes) -> bytes:
    """Bytes with a few flipped, cut off, removed or inserted."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        action = draw(st.sampled_from(["flip", "flip", "set", "cut", "remove", "insert"]))
        if action == "cut":
            del changed[at:]
        elif action == "remove":
            del changed[at : at + draw(st.integers(1, 40))]
        elif action == "insert":
            changed[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif changed:
            changed[at] = (
                changed[at] ^ (1 << draw(st.integers(0, 7))) if action == "flip" else draw(st.integers(0, 255))
            )
    return bytes(changed)


_TENSOR_DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool,
    torch.complex64,
]  # fmt: skip


def changed_tensor(draw: Callable, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of another dtype or shape, or with an odd number in it."""
    action = draw(st.sampled_from(["number", "number", "number", "dtype", "cut", "grow", "flatten", "empty", "scale"]))
    if tensor.is_complex():  # changed before
        tensor = tensor.real
    if action == "number" and tensor.numel():
        numbers = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, 5e-324, 1e-300]
        flat = tensor.double().flatten().clone()
        flat[draw(st.integers(0, len(flat) - 1))] = draw(st.sampled_from(numbers))
        if tensor.is_floating_point():
            return flat.reshape(tensor.shape).to(tensor.dtype)
        return flat.nan_to_num(0, 9, -9).reshape(tensor.shape).to(tensor.dtype)
    if action == "dtype":
        return tensor.to(draw(st.sampled_from(_TENSOR_DTYPES)))
    if action == "cut" and tensor.ndim:
        axis = draw(st.integers(0, tensor.ndim - 1))
        return tensor.narrow(axis, 0, max(0, tensor.shape[axis] - 1)).contiguous()
    if action == "grow" and tensor.ndim:
        return torch.cat([tensor, tensor], draw(st.integers(0, tensor.ndim - 1)))
    if action == "empty":
        return tensor.new_zeros(draw(st.sampled_from([(0,), (0, 10**12), ()])))
    if action == "scale":
        return tensor * draw(st.sampled_from([0, -1, 3]))
    return tensor.flatten()


def changed_safetensors(draw: Callable, data: bytes) -> bytes:
    """A safetensors file with other metadata, or other tensors."""
    tensors = load(data)
    header_size = int.from_bytes(data[:8], "little")
    values = json.loads(json.loads(data[8 : 8 + header_size])["__metadata__"]["gaflow"])
    if draw(st.booleans()):
        values = changed_json(draw, values)
    else:
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(sorted(tensors)))
            if draw(st.integers(0, 9)) == 0:
                del tensors[name]
            else:
                tensors[name] = changed_tensor(draw, tensors[name])
            if not tensors:
                break
    metadata = {"gaflow": json.dumps(values)}
    return save(tensors, metadata)


_COLUMN_TYPES = [
    pa.int64(), pa.float32(), pa.string(), pa.large_string(), pa.bool_(), pa.binary(), pa.list_(pa.int64()),
    pa.list_(pa.string()), pa.list_(pa.list_(pa.float64())), pa.null(), pa.timestamp("us"),
    pa.dictionary(pa.int32(), pa.string()), pa.struct([("a", pa.int64())]),
]  # fmt: skip


def changed_parquet(draw: Callable, data: bytes) -> bytes:
    """A table with values of one column replaced, in its own type or in another, or without that column."""
    table = pq.read_table(io.BytesIO(data))
    name = draw(st.sampled_from(table.column_names))
    index = table.column_names.index(name)
    action = draw(st.sampled_from(["values"] * 4 + ["type", "drop", "twice", "empty"]))
    if action == "drop":
        table = table.remove_column(index)
    elif action == "empty":
        table = table.slice(0, 0)
    elif action == "twice":
        table = table.append_column(name, table[name])
    elif action == "type":
        kind = draw(st.sampled_from(_COLUMN_TYPES))
        try:
            column = table[name].cast(kind)
        except (pa.ArrowException, NotImplementedError):
            column = pa.nulls(table.num_rows, kind)
        table = table.set_column(index, name, column)
    else:
        values = table[name].to_pylist()
        content = {"values": values}
        if name in ("certificate", "facts") and values[0] is not None:
            content = {"values": [None if value is None else json.loads(value) for value in values]}
        changed = changed_json(draw, content).get("values")
        if not isinstance(changed, list):
            changed = [changed]
        if name in ("certificate", "facts"):
            changed = [None if value is None else json.dumps(value) for value in changed]
        changed = (changed * table.num_rows)[: table.num_rows] if changed else [None] * table.num_rows
        try:
            column = pa.array(changed, table.schema.field(name).type)
        except (pa.ArrowException, OverflowError, UnicodeError):
            try:
                column = pa.array(changed)
            except (pa.ArrowException, OverflowError, UnicodeError):
                column = pa.nulls(table.num_rows, pa.string())
        table = table.set_column(index, name, column)
    sink = io.BytesIO()
    try:
        pq.write_table(table, sink)
    except pa.ArrowException:  # there are types that Parquet does not have
        return data
    return sink.getvalue()


def changed_file(draw: Callable, name: str, data: bytes) -> bytes:
    """A file damaged as its format allows, or byte by byte."""
    if draw(st.integers(0, 3)) == 0:
        return changed_bytes(draw, data)
    if name.endswith(".parquet"):
        return changed_parquet(draw, data)
    if name.endswith(".safetensors"):
        return changed_safetensors(draw, data)
    if name.endswith(".gz"):
        return gzip.compress(changed_bytes(draw, gzip.decompress(data)), mtime=0)
    if draw(st.integers(0, 30)) == 0:
        return deep_json()
    content = changed_json(draw, json.loads(data))
    return json.dumps(content).encode()


def in_terminal(renderable: Callable) -> str:
    """What a terminal with all colours would get."""
    console = make_console()
    console.file = io.StringIO()
    console._color_system = None
    show(console, renderable(console))
    return console.file.getvalue()


def svg(figure: Any) -> str:
    """A figure as the text of its SVG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    return buffer.getvalue().decode()


PAGES: dict[str, Callable[[Attribution], str]] = {
    "page": page,
    "words": lambda att: att.to_html(words=True),
    "sentences": lambda att: att.to_html(sentences=True),
    "notebook": fragment,
    "several": lambda att: page({"a": att, "b": att}),
    "flow": lambda att: flow_page(att) if att.layers is not None and att.flow is not None else "",
}
FIGURES: dict[str, Callable[[Attribution], str]] = {
    "figure": lambda att: svg(att.plot()),
    "layers": lambda att: svg(att.plot_layers()) if att.layers is not None else "",
    "diagram": lambda att: svg(att.plot_flow()) if att.flow is not None else "",
    "matches": lambda att: svg(att.plot_matches()) if att.token_matches is not None else "",
}
TEXTS: dict[str, Callable[[Attribution], str]] = {
    "terminal": lambda att: in_terminal(lambda console: render(att, console, sentences=att.media is None)),
    "comparison": lambda att: in_terminal(lambda console: render_all({"a": att}, console)),
    "repr": repr,
    "dict": lambda att: json.dumps(att.to_dict(), allow_nan=False),
    "graph": lambda att: json.dumps(att.to_graph(), allow_nan=False),
    "highlighted": lambda att: json.dumps(att.highlighted(words=True), allow_nan=False),
    "list": lambda att: json.dumps(att.as_list(), allow_nan=False),
}
RENDERERS = PAGES | FIGURES | TEXTS


def metadata_of(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        return file.metadata()
