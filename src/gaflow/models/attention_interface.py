"""The interface of transformers by which models compute their attention with a function of ours.

The convention this file owns: a model whose attention goes through the interface names `ALL_ATTENTION_FUNCTIONS` in the
module of its layer's `forward`. Nothing else about a model is assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

_REGISTRY = "ALL_ATTENTION_FUNCTIONS"  # of transformers, as modules of models import it


def register_attention(name: str, function: Callable[..., Any]) -> None:
    """Let models compute their attention by `function`, with eager masks, when their config names it."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, eager_mask)


def uses_interface(modules: Iterable[nn.Module]) -> bool:
    """Whether any of these modules of a model asks the interface for its attention function."""
    kinds = {type(module) for module in modules}
    return any(_names_registry(kind) for kind in kinds)


def _names_registry(kind: type[nn.Module]) -> bool:
    forward = inspect.unwrap(kind.forward)
    code = getattr(forward, "__code__", None)
    return code is not None and _REGISTRY in code.co_names
