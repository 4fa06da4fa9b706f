"""An input with some of its tokens removed, wholly or in part: what texts, pictures and sounds have in common.

The convention this file owns: `y` is a function of the **inclusion weights** `p` of the ordinary tokens, 1 for a
token as it is and 0 for a removed one, which its baseline replaces. Special tokens are never removed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gaflow.arguments import is_whole_number
from gaflow.errors import Argument, ArgumentError
from gaflow.models.attention_tensors import accumulation_dtype
from gaflow.models.cost import rows_in_a_pass
from gaflow.models.tracing import TracedModel
from gaflow.progress import Report, silent

TOKEN_NAMES = ("pad", "mask", "unk")
Replacement = str | int | None  # one of these names or a token id; None: the first there is


class Removal(ABC):
    """`y` as a function of the inclusion weights of the ordinary tokens of one input."""

    input_name: str  # of the input that changes

    def __init__(
        self, traced_model: TracedModel, item: int, values: Tensor, replacement: str, batch_size: int | None
    ) -> None:
        encoding = traced_model.batch.encodings[item]
        ordinary = torch.tensor(encoding.segments, device=values.device) >= 0
        self.traced_model = traced_model
        self.item = item  # of the traced model's batch
        self.values = values  # (1, ...) of the input, as far as removing tokens changes them
        self.length = len(encoding)  # how many tokens the input has, special ones included
        self.positions = ordinary.nonzero()[:, 0]  # (m,) of the ordinary tokens
        self.dtype = accumulation_dtype(values)  # of inclusion weights
        self.batch_size = batch_size or rows_in_a_pass(values.device, self.length)
        self.replacement = replacement  # what the baseline is, for the reader

    @abstractmethod
    def values_at(self, inclusion: Tensor) -> Tensor:
        """The values (s, ...) for inclusion weights (s, m)."""

    def __call__(self, inclusion: Tensor) -> Tensor:
        """`y` (s,) for inclusion weights (s, m) in a single pass; gradients flow if they are enabled."""
        items = [self.item] * len(inclusion)
        changed = {self.input_name: self.values_at(inclusion)}
        return self.traced_model.output(items, self.length, **changed)

    def __len__(self) -> int:
        return len(self.positions)

    def uniform_inclusion(self, weight: float) -> Tensor:
        """The same weight for all ordinary tokens, (1, m)."""
        return torch.full((1, len(self)), weight, dtype=self.dtype, device=self.positions.device)

    def outputs(self, inclusion: Tensor, report: Report = silent) -> Tensor:
        """`y` (s,) without gradients for any number of rows (s, m); equal rows are computed once."""
        unique, row_of = inclusion.unique(dim=0, return_inverse=True)
        outputs = []
        with torch.no_grad():
            for start in range(0, len(unique), self.batch_size):
                end = start + self.batch_size
                outputs.append(self(unique[start:end]))
                report(min(1.0, end / len(unique)))
        return torch.cat(outputs)[row_of.to(outputs[0].device)]


def check_replacement(value: object) -> None:
    """Refuse values that are neither None, a name, nor a token id."""
    if value is None or value in TOKEN_NAMES:
        return
    if not is_whole_number(value) or value < 0:
        names = ", ".join(repr(name) for name in TOKEN_NAMES)
        raise ArgumentError(Argument("replacement"), f" must be None, {names} or a token id, not {value!r}")
