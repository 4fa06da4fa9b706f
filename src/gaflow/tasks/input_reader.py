"""The settings by which a task reads its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gaflow.inputs.encoding import Encoding, encode
from gaflow.inputs.transformers_types import PretrainedModel, Processor


@dataclass(frozen=True)
class InputReader:
    """All that a task needs to turn inputs into encodings."""

    model: PretrainedModel  # pictures and sounds depend on its config and dtype; texts do not
    processor: Processor  # tokenizer, image processor or feature extractor
    limit: int | None = None  # the most tokens that the model takes, special ones included
    truncation: bool = False  # cut longer texts

    def encode(self, texts: Sequence[object], names: Sequence[str], **options: Any) -> list[Encoding]:
        """Encodings of texts; `options` are those of `gaflow.inputs.encode`."""
        return encode(self.processor, texts, names, limit=self.limit, truncation=self.truncation, **options)
