"""What files hold, described in JSON Schema, and checks of their content against it.

schemas.json has a schema for each kind of file, in a part of JSON Schema: type (or several), minimum, maximum, enum,
pattern, items, prefixItems, minItems, maxItems, uniqueItems, properties, required, additionalProperties. Its "arrays"
describe arrays: `kinds` are NumPy's letters for types; in a `shape` (and as a maximum) a name stands for the same
number wherever it occurs; arrays that are not `finite` may have infinities and NaN.

The convention this file owns: **whatever is wrong with the content of a file is a DataError** that names the file, the
field and what is wrong with it. Nothing that is read is used before it is checked.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from gaflow.errors import DataError

Schema = Mapping[str, Any]

SCHEMAS: Mapping[str, Schema] = json.loads(Path(__file__).with_name("schemas.json").read_text("utf-8"))

_TYPES = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": NoneType,
}
_LARGEST = 2**63  # whole numbers fit into 64 bits
_DEEPEST = 32  # lists and objects inside each other
_FIRST_LINE = 300  # characters of what a library says


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever is wrong with the content of a file into a DataError that names it; `kind` is what it should be."""
    try:
        yield
    except (DataError, FileNotFoundError):
        raise
    except (ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0][:_FIRST_LINE]
        # without the cause, whose message a traceback would print with the control characters of the file
        raise DataError(f"{str(path)!r} is damaged, or not {kind}: {reason}") from None


def check_format(source: object, version: object, kind: str) -> None:
    """Refuse a file of a newer format than this version of gaflow reads; `kind` is one of SCHEMAS["formats"]."""
    readable = SCHEMAS["formats"][kind]
    if version == readable:
        return
    written = reprlib.repr(version)
    if isinstance(version, int) and version > readable:
        raise DataError(
            f"{str(source)!r} was written by a newer gaflow: it has format {written}, and this version reads "
            f"{readable}; upgrade with: pip install --upgrade gaflow"
        )
    raise DataError(
        f"{str(source)!r} has format {written}, which no version of gaflow writes; this one reads {readable}"
    )


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; ValueError if it has none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON whose lists or objects are nested too deeply") from None


def as_tuples(value: object) -> Any:
    """A list of JSON as a tuple, at every depth; other values as they are."""
    if isinstance(value, list):
        return tuple(map(as_tuples, value))
    return value


def read_json(path: Path, schema: str, kind: str) -> Any:
    """The value of a JSON file that is as one of SCHEMAS says; `kind` is what the file should be."""
    with reading(path, kind):
        value = parse_json(path.read_bytes())
        if schema in SCHEMAS["formats"]:
            version = value.get("format") if isinstance(value, dict) else None
            check_format(path, version, schema)
        check(value, SCHEMAS[schema])
        return value


def check(value: object, schema: Schema, field: str = "") -> None:
    """Raise a ValueError that names the `field` if `value` is not as `schema` says."""
    types = schema.get("type", [])
    if isinstance(types, str):
        types = [types]
    if not types:
        _check_depth(value, field)
    elif not any(_has_type(value, name) for name in types):
        raise _wrong(value, field, f"must be of type {' or '.join(types)}")
    if value not in schema.get("enum", (value,)):
        raise _wrong(value, field, f"must be one of {schema['enum']}")
    if isinstance(value, str):
        if not value.isascii():
            value.encode()  # lone surrogates, which JSON can spell, are no text
        pattern = schema.get("pattern")
        if pattern is not None and re.fullmatch(pattern, value) is None:
            raise _wrong(value, field, f"must have the pattern {pattern}")
    elif isinstance(value, list):
        _check_items(value, schema, field)
    elif isinstance(value, dict):
        _check_properties(value, schema, field)
    elif isinstance(value, int | float):
        _check_number(value, schema, field)


def _has_type(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _wrong(value: object, field: str, requirement: str) -> ValueError:
    return ValueError(f"{field or 'it'} {requirement}, not {reprlib.repr(value)}")


def _check_depth(value: object, field: str, left: int = _DEEPEST) -> None:
    """Refuse values that nobody could walk through."""
    if left == 0:
        raise ValueError(f"{field} has lists or objects nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_depth(item, field, left - 1)


def _check_number(value: float, schema: Schema, field: str) -> None:
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise ValueError(f"{field} is a whole number of more than 64 bits")
    if "minimum" in schema and not value >= schema["minimum"]:  # NaN neither
        raise _wrong(value, field, f"must be at least {schema['minimum']}")
    if "maximum" in schema and not value <= schema["maximum"]:
        raise _wrong(value, field, f"must be at most {schema['maximum']}")


def _check_items(values: list[Any], schema: Schema, field: str) -> None:
    low = schema.get("minItems", 0)
    high = schema.get("maxItems", math.inf)
    if not low <= len(values) <= high:
        raise ValueError(f"{field} must have {low} to {high} items, not {len(values)}")
    for index, (item, item_schema) in enumerate(zip(values, schema.get("prefixItems", ()), strict=False)):
        check(item, item_schema, f"{field}[{index}]")
    if "items" in schema:
        for index, item in enumerate(values):
            check(item, schema["items"], f"{field}[{index}]")
    if schema.get("uniqueItems") and len(set(map(repr, values))) < len(values):
        raise ValueError(f"{field} has an item twice")


def _check_properties(values: dict[str, Any], schema: Schema, field: str) -> None:
    prefix = f"{field}." if field else ""
    for name in schema.get("required", ()):
        if name not in values:
            raise ValueError(f"there is no {prefix}{name}")
    properties = schema.get("properties", {})
    other = schema.get("additionalProperties")
    for name, value in values.items():
        described = properties.get(name, other)
        if described is not None:
            check(value, described, f"{prefix}{name}")


def check_arrays(
    arrays: Mapping[str, np.ndarray], kind: str, sizes: Mapping[str, int], prefix: str = ""
) -> dict[str, int]:
    """The numbers behind all names in shapes; ValueError if an array is missing, or not as SCHEMAS describe it."""
    all_sizes = dict(sizes)
    for suffix, schema in SCHEMAS["arrays"][kind].items():
        name = prefix + suffix
        if name in arrays:
            _check_array(arrays[name], schema, name, all_sizes)
        elif not schema.get("optional"):
            raise ValueError(f"there is no {name}")
    return all_sizes


def _check_array(array: np.ndarray, schema: Schema, name: str, sizes: dict[str, int]) -> None:
    """Check one array, and add the sizes that it is the first to have."""
    if array.dtype.kind not in schema["kinds"]:
        raise ValueError(f"{name} must hold numbers of the kind {schema['kinds']}, not {array.dtype}")
    shape = schema["shape"]
    if array.ndim == len(shape):
        for size, actual in zip(shape, array.shape, strict=True):
            if isinstance(size, str):
                sizes.setdefault(size, actual)
    expected = tuple(sizes.get(size, size) for size in shape)
    if array.shape != expected or not array.size:
        raise ValueError(f"{name} must have the shape {expected}, not {array.shape}")
    if array.dtype.kind == "f" and schema.get("finite", True):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(array).sum(dtype=np.float64)
        if not np.isfinite(total):
            raise ValueError(f"{name} has numbers that are not finite, or too large to be added up")
    low = schema.get("minimum", -math.inf)
    high = schema.get("maximum", math.inf)
    high = sizes.get(high, high)
    if (array < low).any() or (array > high).any():
        raise ValueError(f"{name} must be from {low} to {high}, but is from {array.min()} to {array.max()}")
