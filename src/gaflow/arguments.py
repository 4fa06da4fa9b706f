"""Checks of arguments that many functions share. Each raises an error that names the argument and what was given."""

from __future__ import annotations

import inspect
import math
import os
import reprlib
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeGuard, TypeVar, Union, get_args, get_origin

import numpy as np
import torch

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError

Choice = TypeVar("Choice")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Record = TypeVar("Record")

# What is accepted for a type, if that is more than its instances.
_ACCEPTED = {int: Integral, float: Real, Path: os.PathLike, Sequence: Iterable, np.ndarray: Iterable}

_WORDS = {
    types.NoneType: "None",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
    list: "a list",
    Sequence: "a list",
    Iterable: "a list",
    Mapping: "a dict",
    Callable: "a function",
    np.ndarray: "an array",
}


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A public function that first compares its arguments with the types in its signature.

    An argument of another type is an error that names it: an ArgumentError where a number is needed, as for numbers
    out of range, and an ArgumentTypeError elsewhere. Whether a value makes sense is for the function to check. A type
    that cannot be told from a value, such as a protocol, accepts everything. NumPy's numbers become Python's.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def check_and_call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        hints = _hints(function)
        bound = signature.bind(*map(plain_number, args), **{name: plain_number(kwargs[name]) for name in kwargs})
        for name, value in bound.arguments.items():
            hint = hints.get(name, Any)
            if not _matches(value, hint):
                expected = " or ".join(dict.fromkeys(_describe(hint)))
                error = ArgumentError if "number" in expected else ArgumentTypeError
                raise error(Argument(name), f" must be {expected}, not {reprlib.repr(value)}")
            if isinstance(value, torch.Tensor):
                dense_tensor(name, value)
            if Path in _kind_and_members(hint)[1]:
                check_characters(name, value)
        return function(*bound.args, **bound.kwargs)

    return check_and_call


def checked_record(kind: type[Record]) -> type[Record]:
    """A dataclass whose fields are compared with their types, as `checked` does it with arguments."""
    kind.__init__ = checked(kind.__init__)
    return kind


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters, without those that only type checkers import."""
    hints = {}
    for parameter in inspect.signature(function).parameters.values():
        if isinstance(parameter.annotation, str) and parameter.kind is not parameter.VAR_KEYWORD:
            try:
                hints[parameter.name] = eval(parameter.annotation, function.__globals__)
            except NameError:
                continue
    return hints


@cache
def _kind_and_members(hint: object) -> tuple[Any, tuple[Any, ...]]:
    """A type without its brackets, and what is in them: `(list, (str,))` of `list[str]`."""
    return get_origin(hint) or hint, get_args(hint)


def _describe(hint: object) -> list[str]:
    """What a type accepts, in words."""
    kind, members = _kind_and_members(hint)
    if kind in (Union, types.UnionType):
        return [part for member in members for part in _describe(member)]
    if kind is Literal:
        return list(map(repr, members))
    if kind in (list, Sequence) and members[:1] == (str,):
        return ["a list of strings"]
    if kind in _WORDS:
        return [_WORDS[kind]]
    name = getattr(kind, "__name__", str(kind))
    article = "an" if name[0] in "AEIO" else "a"
    return [f"{article} {name}"]


def _matches(value: Any, hint: object) -> bool:
    """Whether a value can be of a type; of lists and dictionaries, whether strings and gaflow's objects can."""
    kind, members = _kind_and_members(hint)
    if kind in (Union, types.UnionType):
        return any(_matches(value, member) for member in members)
    if kind is Literal:
        return isinstance(value, tuple(map(type, members)))
    if hint is None or hint is Any:
        return hint is Any or value is None
    if kind in (int, float):
        return isinstance(value, _ACCEPTED[kind]) and not isinstance(value, bool)
    try:
        if not isinstance(value, _ACCEPTED.get(kind, kind)):
            return False
    except TypeError:  # a protocol
        return True
    if kind is Callable:
        return not (members and isinstance(members[0], list)) or _takes(value, len(members[0]))
    if kind is Mapping:
        return all(_matches(item, members[1]) for item in value.values())
    if kind not in (Sequence, Iterable, list, np.ndarray):
        return True
    if isinstance(value, str | bytes | Mapping) or getattr(value, "ndim", 1) == 0:
        return False
    plain = [member for member in members if member is str or getattr(member, "__module__", "").startswith("gaflow")]
    if not plain or not isinstance(value, Collection):
        return True
    return all(isinstance(item, plain[0]) for item in value)


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; of some built-in functions nobody knows."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return not isinstance(function, type)  # `int` and the like convert values, and report nothing
    return True


def plain_number(value: Any) -> Any:
    """Python's number for one of NumPy's; anything else as it is."""
    return value.item() if isinstance(value, np.integer | np.floating) else value


def dense_tensor(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose values can be read one by one."""
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor.layout != torch.strided:
        raise ArgumentTypeError(
            Argument(name), " must be a dense tensor with values, not a meta, quantised, nested or sparse one"
        )
    return tensor


def is_whole_number(value: object) -> TypeGuard[int]:
    """Whether a value is an int; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """A whole number from `least` to `most` (None: no upper bound)."""
    value = plain_number(value)
    if is_whole_number(value) and value >= least and (most is None or value <= most):
        return value
    bounds = f">= {least}" if most is None else f"from {least} to {most}"
    raise ArgumentError(Argument(name), f" must be a whole number {bounds}, not {value!r}")


def optional_whole_number(name: str, value: object, least: int = 1) -> None:
    """Refuse what is neither None nor a whole number of at least so much."""
    if value is not None:
        whole_number(name, value, least=least)


def positive_number(name: str, value: object) -> float:
    """A finite number above 0."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ArgumentError(Argument(name), f" must be a number > 0, not {value!r}")
    return value


def open_fraction(name: str, value: object) -> float:
    """A number between 0 and 1, both excluded, as levels of confidence are."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ArgumentError(Argument(name), f" must lie between 0 and 1, not {value!r}")
    return value


def boolean(name: str, value: object) -> bool:
    """True or False, and nothing that only counts as one."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(Argument(name), f" must be True or False, not {value!r}")
    return value


def location(name: str, value: object) -> Path:
    """The path of a file or folder; an empty string, which Python takes for the current folder, is refused."""
    if not isinstance(value, str | os.PathLike):
        raise ArgumentTypeError(Argument(name), f" must be a path, not {value!r}")
    check_characters(name, value)
    if not str(value).strip():
        raise ArgumentError(Argument(name), f" is empty ({str(value)!r}); give a path, such as '.' for this folder")
    return Path(value)


def output_folder(name: str, value: object) -> Path:
    """The path of a folder to write into, which need not exist; a file in its place is refused."""
    folder = location(name, value)
    for path in (folder, *folder.parents):
        if path.is_dir():
            break
        if path.exists():
            raise ArgumentError(Argument(name), f" {str(folder)!r}: {str(path)!r} is a file; give a folder")
    return folder


def check_characters(name: str, path: object) -> None:
    """Refuse characters that no name of a file can have."""
    if not isinstance(path, str | os.PathLike):
        return
    if "\0" in str(path):
        raise ArgumentError(Argument(name), f" has a NUL character, which no path has: {path!r}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        character = str(path)[error.start]
        raise ArgumentError(Argument(name), f" has {character!r}, which no path has: {path!r}") from error


def one_of(name: str, value: object, choices: Collection[Choice]) -> Choice:
    """One of a few values."""
    for choice in choices:
        if isinstance(value, type(choice)) and value == choice:  # arrays and the like are never compared
            return choice
    listed = ", ".join(repr(choice) for choice in choices)
    raise ArgumentError(Argument(name), f" must be one of {listed}, not {reprlib.repr(value)}")


def vector(name: str, values: object, size: int | None = None) -> np.ndarray:
    """An array (n,) of finite numbers or truth values, of `size` if it is given."""
    if isinstance(values, torch.Tensor):
        values = dense_tensor(name, values).detach().cpu()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError):  # lists of different lengths, and types that NumPy does not have
        array = np.array(None)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ArgumentError(Argument(name), f" must be a list of finite numbers, not {reprlib.repr(values)}")
    if size is not None and len(array) != size:
        raise ArgumentError(Argument(name), f" has {len(array)} values where {size} are needed")
    return array


def distinct(name: str, values: Sequence[str], reason: str) -> None:
    """Refuse names that are there twice; `reason` says why they must differ."""
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        raise ArgumentError(Argument(name), f" names {', '.join(repeated)} twice; {reason}")
