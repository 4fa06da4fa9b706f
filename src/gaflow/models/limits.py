"""How many tokens a model takes, and how texts of different lengths may share its batches."""

from __future__ import annotations

from torch import nn

from gaflow.inputs.batch import Padding
from gaflow.inputs.transformers_types import ModelConfig, Tokenizer
from gaflow.models.adapters import runs_alone
from gaflow.models.restore import modules_of

_UNLIMITED = 10**9  # tokenizers write 1e30 when they do not know their limit


def length_limit(model: nn.Module, tokenizer: Tokenizer) -> int | None:
    """The most tokens that model and tokenizer take, special tokens included; None if neither has a limit."""
    config: ModelConfig = getattr(model, "config", None)
    limits = [getattr(tokenizer, "model_max_length", None), getattr(config, "max_position_embeddings", None)]
    limits.append(getattr(model, "max_seq_length", None))  # of a sentence encoder
    for module in modules_of(model):
        for name, child in module._modules.items():
            if name.endswith("position_embeddings") and isinstance(child, nn.Embedding):
                # RoBERTa and its kin number positions from padding_idx + 1
                first = 0 if child.padding_idx is None else child.padding_idx + 1
                limits.append(child.num_embeddings - first)
    real = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit < _UNLIMITED]
    return min(real, default=None)


def padding_of(model: nn.Module, tokenizer: Tokenizer) -> Padding:
    """The padding that model and tokenizer agree on; the model's own padding token is the one it looks for."""
    if getattr(model, "main_input_name", "input_ids") != "input_ids":
        return Padding(0, left=True)  # pictures and sounds are never padded
    token = getattr(tokenizer, "pad_token_id", None)
    if token is not None:
        token = getattr(getattr(model, "config", None), "pad_token_id", token)
    segment = getattr(tokenizer, "pad_token_type_id", None) or 0
    left = getattr(tokenizer, "padding_side", "right") == "left" or runs_alone(model)
    return Padding(token, segment, left)
