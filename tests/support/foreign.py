"""Model folders of strangers: with code of their own, or with pickled weights that run code."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from tests.support.commands import saved
from tests.support.models import bert, wordpiece

_CODE = """
from pathlib import Path
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

Path({marker!r}).touch()

class ForeignConfig(BertConfig):
    model_type = "foreign"

class ForeignForSequenceClassification(BertForSequenceClassification):
    config_class = ForeignConfig

class ForeignTokenizer(PreTrainedTokenizerFast):
    pass
"""


def with_code(folder: Path, marker: Path) -> Path:
    """A classifier that is made by code in its folder, which touches `marker`."""
    model = saved(bert(), folder)
    (model / "foreign.py").write_text(_CODE.format(marker=str(marker)))
    classes = {
        "AutoConfig": "foreign.ForeignConfig",
        "AutoModelForSequenceClassification": "foreign.ForeignForSequenceClassification",
    }
    architectures = ["ForeignForSequenceClassification"]
    _update(model / "config.json", {"model_type": "foreign", "architectures": architectures, "auto_map": classes})
    return model


def tokenizer_with_code(folder: Path, marker: Path) -> Path:
    """A tokenizer that is made by code in its folder, which touches `marker`."""
    wordpiece().save_pretrained(folder / "tokenizer")
    (folder / "tokenizer" / "foreign.py").write_text(_CODE.format(marker=str(marker)))
    classes = {"AutoTokenizer": [None, "foreign.ForeignTokenizer"]}
    changes = {"tokenizer_class": "ForeignTokenizer", "auto_map": classes}
    _update(folder / "tokenizer" / "tokenizer_config.json", changes)
    return folder / "tokenizer"


def with_pickle(folder: Path, marker: Path) -> Path:
    """A classifier whose weights are a pickle that touches `marker` when it is read without care."""

    class Touch:
        def __reduce__(self):
            return Path.touch, (marker,)

    model = saved(bert(), folder)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.weight": Touch()}))
    return model


def with_config(model: Path, changes: dict[str, object]) -> Path:
    """A model's folder whose config says something else."""
    _update(model / "config.json", changes)
    return model


def _update(path: Path, changes: dict[str, object]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
