"""What methods say about themselves, as plain values: for lists of methods, on the command line and on a server."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from inspect import getdoc
from typing import Any

from gaflow.methods.base import Method, MethodInfo
from gaflow.methods.flow import FlowMethod


def describe(name: str, method: Method) -> dict[str, Any]:
    """What a method's settings object says about itself; None where it says nothing."""
    method_info = getattr(method, "info", None)
    if isinstance(method_info, MethodInfo):
        facts = asdict(method_info)
    else:
        facts = dict.fromkeys(field.name for field in fields(MethodInfo))
    settings = {}
    description = (getdoc(method) or "").split("\n")[0]
    if isinstance(method, FlowMethod):
        settings = method.options
        description = method.description
    elif is_dataclass(method):
        settings = {field.name: getattr(method, field.name) for field in fields(method)}
    return {"name": name, "description": description, **facts, "settings": settings}
