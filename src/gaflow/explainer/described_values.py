"""Settings, arrays, functions and classes as JSON, for descriptions: equal if they compute the same, in every process.

The conventions this file owns: arrays are hashed with all their numbers. Functions and classes are **named**. Of code
whose release no description records (yours, that of plug-ins and of adapters) a hash follows the name: of the compiled
code, and of the values that it carries: defaults, variables that it closes over, and the state of the object whose
method it is. Global variables, and functions that it calls, are not followed. Another release of Python compiles
otherwise, and so the hash is another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

RECORDED_PACKAGES = (  # whose versions a description holds
    "gaflow", "torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow", "captum", "ortools",
)  # fmt: skip
_DIGITS = 16  # of the hash after a name


def describe_value(value: object) -> Any:
    """A value as JSON."""
    return _describe(value, ())


def _describe(value: object, functions: tuple[int, ...]) -> Any:
    """A value as JSON; `functions` are the addresses of those that it is inside of."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value) if value.dtype.kind in "biufc" else value.tolist()
    if isinstance(value, torch.Tensor):  # whose repr shows a few digits of a few numbers
        return _describe_array(value)
    if isinstance(value, Mapping):
        return {str(name): _describe(inner, functions) for name, inner in value.items()}
    if isinstance(value, Set):
        return sorted(map(repr, value))  # in an order that is the same in every process
    if isinstance(value, Sequence):
        return [_describe(inner, functions) for inner in value]
    if isinstance(value, partial):
        parts = {"function": value.func, "arguments": value.args, "keywords": value.keywords}
        return _describe(parts, functions)
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": qualified_name(type(value)), **_describe(field_values(value), functions)}
    if callable(value):
        return _describe_callable(value, functions)
    if type(value).__repr__ is object.__repr__:  # which shows an address
        return qualified_name(type(value))
    return repr(value)


def field_values(record: object) -> dict[str, Any]:
    """The values of a dataclass by the names of its fields."""
    return {field.name: getattr(record, field.name) for field in fields(record)}  # type: ignore[arg-type]


def qualified_name(value: object) -> str:
    """The name of a class or a function; of other objects that of their class."""
    module = getattr(value, "__module__", "")
    name = getattr(value, "__qualname__", type(value).__name__)
    return f"{module}.{name}"


def is_data(value: object) -> bool:
    """Whether a value is a number, a string, an array or a function, or consists of such."""
    if isinstance(value, torch.nn.Module) or (isinstance(value, torch.Tensor) and value.is_meta):
        return False
    if isinstance(value, Mapping):
        return all(map(is_data, value.values()))
    if isinstance(value, list | tuple | Set):
        return all(map(is_data, value))
    plain = isinstance(value, str | int | float | torch.Tensor | np.ndarray | torch.dtype)
    return plain or value is None or callable(value)


def tensor_bytes(tensor: torch.Tensor | None) -> bytes:
    """The numbers of a tensor, bit by bit."""
    if tensor is None or not tensor.numel():
        return b""
    if hasattr(tensor, "__tensor_flatten__"):  # a quantised weight, which holds integers and scales
        names, _ = tensor.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        return b"".join(tensor_bytes(getattr(tensor, name)) for name in names)
    flat = tensor.detach().cpu().contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes()


def hash_own_code(kind: type) -> str | None:
    """A hash of those methods of a class whose code is in no recorded package; None if there are none."""
    return _hash_functions(_own_methods(kind), _ids_of_bases(kind))


def _describe_array(array: torch.Tensor) -> dict[str, Any]:
    digest = sha256(tensor_bytes(array)).hexdigest()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": digest}


def _describe_callable(value: Callable[..., Any], functions: tuple[int, ...]) -> str:
    """The name of a function, of a class, or of the class of an object; with a hash, if it is nobody's release."""
    name = qualified_name(value)
    if id(value) in functions or isinstance(value, torch.nn.Module):  # models are hashed by themselves
        return name
    functions = (*functions, id(value))
    if not isinstance(value, FunctionType) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
        value = value.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]  # of a cache, for example
    if isinstance(value, type):
        digest = _hash_functions(_own_methods(value), (*functions, *_ids_of_bases(value)))
    elif isinstance(value, FunctionType):
        digest = _hash_functions([value] if _is_own(value) else [], functions)
    elif isinstance(value, MethodType):
        digest = _hash_method(value, functions)
    else:
        digest = _hash_object(value, functions)
    return name if digest is None else f"{name} {digest[:_DIGITS]}"


def _hash_method(method: MethodType, functions: tuple[int, ...]) -> str | None:
    function = method.__func__
    if not isinstance(function, FunctionType) or not _is_own(function):
        return None
    if isinstance(method.__self__, torch.nn.Module | type):
        return _hash_functions([function], functions)
    state = _describe_state(method.__self__, functions)
    return sha256(f"{_hash_functions([function], functions)} {state}".encode()).hexdigest()


def _hash_object(value: object, functions: tuple[int, ...]) -> str | None:
    """A hash of an object that can be called: its code and its state."""
    code = _hash_functions(_own_methods(type(value)), (*functions, *_ids_of_bases(type(value))))
    if code is None:
        return None
    return sha256(f"{code} {_describe_state(value, functions)}".encode()).hexdigest()


def _describe_state(value: object, functions: tuple[int, ...]) -> list[Any]:
    """The attributes of an object that are data."""
    state = []
    for name, inner in sorted(getattr(value, "__dict__", {}).items()):
        if is_data(inner):
            state.append([name, _describe(inner, functions)])
    return state


def _ids_of_bases(kind: type) -> tuple[int, ...]:
    return tuple(map(id, kind.__mro__))


def _own_methods(kind: type) -> list[FunctionType]:
    """The functions of a class and its bases that are in no recorded package, also if they were put there later."""
    methods = []
    for base in kind.__mro__:
        for value in vars(base).values():
            function = value
            if isinstance(value, staticmethod | classmethod):
                function = value.__func__
            elif isinstance(value, property):
                function = value.fget
            if isinstance(function, FunctionType) and _is_own(function):
                methods.append(function)
    return methods


def _is_own(function: FunctionType) -> bool:
    """Whether no description records the release of a function's code; a name may be copied, globals are not."""
    package = str(function.__globals__.get("__name__", "")).partition(".")[0]
    return package not in RECORDED_PACKAGES and package not in sys.stdlib_module_names


def _hash_functions(functions: Sequence[FunctionType], inside: tuple[int, ...]) -> str | None:
    """A hash of the code of functions and of the values that they carry; None of no function."""
    if not functions:
        return None
    digest = sha256()
    for function in functions:
        for part in _code_parts(function.__code__):
            digest.update(f"{part}\n".encode())
        carried: list[object] = [*(function.__defaults__ or ()), function.__kwdefaults__]
        for cell in function.__closure__ or ():
            try:
                carried.append(cell.cell_contents)
            except ValueError:  # not yet filled
                continue
        for value in carried:
            if id(value) in inside:  # such as the class of a method, whose name is not the same in a script
                continue
            described = _describe(value, inside) if is_data(value) else qualified_name(type(value))
            digest.update(f"{described}\n".encode())
    return digest.hexdigest()


def _code_parts(code: CodeType) -> Iterator[str]:
    """What compiled code does, without the lines and the file that it comes from."""
    yield f"{code.co_name} {code.co_argcount} {code.co_names} {code.co_varnames} {code.co_freevars}"
    yield code.co_code.hex()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield _constant(constant)


def _constant(value: object) -> str:
    """A constant of compiled code; the order of a set is not the same in every process."""
    if isinstance(value, frozenset):
        return str(sorted(map(_constant, value)))
    if isinstance(value, tuple):
        return str(list(map(_constant, value)))
    return repr(value)
