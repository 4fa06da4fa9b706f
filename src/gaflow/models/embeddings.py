"""The word embeddings of a model: where they are, and how a pass reads other ones.

The convention this file owns: word embeddings are what `get_input_embeddings()` returns for the input ids, before
positions and token types are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from gaflow.errors import unsupported


def word_embedding(model: nn.Module) -> nn.Module | None:
    """The module that turns input ids into vectors; None if the model does not name one."""
    try:
        embedding = model.get_input_embeddings()  # type: ignore[operator]
    except (NotImplementedError, AttributeError):
        return None
    return embedding if isinstance(embedding, nn.Module) else None


def roots(model: nn.Module) -> list[nn.Parameter]:
    """Parameters that every attention weight depends on: if they require gradients, so does the rest of the pass.

    Their own gradient is never computed, since autograd only walks to the tensors it is asked for.
    """
    embedding = word_embedding(model)
    parameters = [] if embedding is None else list(embedding.parameters())
    if not parameters:
        parameters = list(model.parameters())
    return [parameter for parameter in parameters if parameter.is_floating_point()]


@contextmanager
def replaced_embeddings(model: nn.Module, embeddings: Tensor | None) -> Iterator[None]:
    """Inside this block the model reads `embeddings` (n, t, d) in place of its word embeddings; None changes nothing.

    Only the output of the embedding module is replaced. The ids stay, because models derive positions and more from
    them.
    """
    if embeddings is None:
        yield
        return
    embedding = word_embedding(model)
    if embedding is None:
        raise unsupported(model, "its word embeddings cannot be replaced: get_input_embeddings() returns none")
    reads = 0

    def replace_output(_module: nn.Module, _inputs: object, output: object) -> Tensor:
        nonlocal reads
        reads += 1
        if reads > 1 or not isinstance(output, Tensor) or output.shape != embeddings.shape:
            raise unsupported(model, "it reads its word embeddings more than once or not token by token")
        return embeddings.to(output)

    with embedding.register_forward_hook(replace_output):
        yield
    if reads == 0:
        raise unsupported(model, "it does not read the word embeddings that get_input_embeddings() returns")
