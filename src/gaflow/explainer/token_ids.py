"""Scores of token ids, for code that is written for Captum: tensors in, a tensor out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.explainer.many import PreparedText, explain_many
from gaflow.explainer.runner import Runner
from gaflow.explainer.windows import Window
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import Tokenizer
from gaflow.methods import Method
from gaflow.tasks.targets import parse_all


def find_attention_mask(
    attention_mask: Tensor | None, forward_args: Tensor | tuple[Tensor, ...] | None
) -> Tensor | None:
    """The attention mask, or the first of Captum's additional arguments in its place."""
    if attention_mask is not None:
        return attention_mask
    if not isinstance(forward_args, tuple):
        return forward_args
    first = forward_args[0] if forward_args else None
    if first is not None and not isinstance(first, Tensor):
        message = f" must begin with the attention mask, a tensor, not {type(first).__name__}"
        raise ArgumentTypeError(Argument("additional_forward_args"), message)
    return first


def attribute_token_ids(
    runner: Runner,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    target: object,
    method: Method,
    batch_size: int,
) -> Tensor:
    """Scores (b, t) of token ids (b, t), 0 at padding."""
    runner.class_head("attributing token ids")
    _check_ids("inputs", input_ids, input_ids)
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    _check_ids("attention_mask", attention_mask, input_ids)
    lengths = _lengths(attention_mask)
    if runner.limit is not None and max(lengths) > runner.limit:
        raise ArgumentError(Argument("inputs"), f" has {max(lengths)} tokens, but the model takes {runner.limit}")
    targets = parse_all(runner.head, _as_list(target), len(lengths))
    prepared = []
    for row, length in enumerate(lengths):
        inputs = {"input_ids": input_ids[row, :length].tolist()}
        if token_type_ids is not None:
            _check_ids("token_type_ids", token_type_ids, input_ids)
            inputs["token_type_ids"] = token_type_ids[row, :length].tolist()
        encoding = _encoding(runner.tokenizer, inputs)
        name = f"inputs[{row}]"
        resolved = runner.head.resolve(targets[row], encoding, name)
        prepared.append(PreparedText(name, encoding, resolved, (Window.full(encoding),)))
    scores = torch.zeros(input_ids.shape, dtype=torch.float64)
    for results in explain_many(runner, prepared, [method], batch_size=batch_size):
        values = torch.tensor(results.attribution(method).scores)
        scores[results.index, : len(values)] = values
    return scores.to(input_ids.device)


def _check_ids(name: str, ids: Tensor, expected: Tensor) -> None:
    if ids.dim() != 2 or ids.shape != expected.shape or not ids.numel():
        raise ArgumentError(Argument(name), f" must have the shape (b, t) of the token ids, not {tuple(ids.shape)}")
    if ids.is_floating_point() or ids.is_complex():
        raise ArgumentTypeError(Argument(name), f" must hold whole numbers, not {ids.dtype}")


def _lengths(attention_mask: Tensor) -> list[int]:
    """The number of real tokens of each row; padding must be on the right."""
    mask = attention_mask.bool().cpu()
    lengths = mask.sum(1)
    is_on_the_right = torch.arange(mask.shape[1]) < lengths[:, None]
    if not bool((mask == is_on_the_right).all()) or not bool(lengths.all()):
        raise ArgumentError(Argument("attention_mask"), " must be 1 for the tokens and 0 for padding on their right")
    return lengths.tolist()


def _as_list(target: object) -> object:
    """Targets as a head takes them; Captum takes tensors too."""
    if isinstance(target, Tensor):
        return target.tolist()
    return target


def _encoding(tokenizer: Tokenizer, inputs: dict[str, list[int]]) -> Encoding:
    """An encoding whose text is its tokens, one after the other."""
    tokens: Sequence[str] = tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    special = set(tokenizer.all_special_ids)
    offsets = []
    segments = []
    text = ""
    for token, token_id in zip(tokens, inputs["input_ids"], strict=True):
        if token_id in special:
            offsets.append((0, 0))
            segments.append(-1)
            continue
        start = len(text)
        text += token
        offsets.append((start, len(text)))
        segments.append(0)
        text += " "
    return Encoding(
        text=text,
        text_pair=None,
        inputs=dict(inputs),
        tokens=tuple(tokens),
        offsets=tuple(offsets),
        segments=tuple(segments),
    )
