"""What benchmarks/before_after.py measures in one process: seconds of the processor per operation, and memory.

It uses only names that every commit of gaflow has, and prints one JSON line. `gaflow` is whatever `PYTHONPATH` says.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

import gaflow

TEXT = "although this dog is not cute, it is very smart."
LONG_TOKENS = 128


def operations(folder: Path) -> dict[str, Callable[[], Any]]:
    """The operations by name, each ready to be called."""
    explainer = gaflow.Explainer(device="cpu")
    torch.manual_seed(0)
    bert_base = BertConfig(
        num_hidden_layers=12,
        num_attention_heads=12,
        hidden_size=768,
        intermediate_size=3072,
        vocab_size=30522,
    )
    network = BertForSequenceClassification(bert_base).eval()
    large = gaflow.Explainer(network, explainer.tokenizer, device="cpu")
    long_text = " ".join(["dog"] * (LONG_TOKENS - 2))
    batch = [TEXT] * 16
    att = explainer(TEXT, "agf")
    capacities = torch.rand(6, 14, 14, generator=torch.Generator().manual_seed(0))
    return {
        "agf, 14 tokens": lambda: explainer(TEXT, "agf"),
        "attcat, 14 tokens": lambda: explainer(TEXT, "attcat"),
        "transatt, 14 tokens": lambda: explainer(TEXT, "transatt"),
        "compare agf, attcat, rollout": lambda: explainer.compare(TEXT, methods=["agf", "attcat", "rollout"]),
        "agf, 16 texts": lambda: explainer(batch, "agf", batch_size=16),
        "evaluate agf, 4 texts": lambda: gaflow.evaluate(explainer, [TEXT] * 4, methods=["agf"]),
        "solve, 6 x 14 x 14": lambda: gaflow.solve(capacities),
        "to_html": att.to_html,
        "save and load": lambda: _save_and_load(att, folder / "a.safetensors"),
        f"agf, BERT-base, {LONG_TOKENS} tokens": lambda: large(long_text, "agf"),
    }


def _save_and_load(att: gaflow.Attribution, path: Path) -> None:
    att.save(path)
    gaflow.load(path)


def measure(operation: Callable[[], Any], seconds: float) -> float:
    """The median of the processor's seconds of one call, over calls for about `seconds`."""
    operation()
    durations: list[float] = []
    while sum(durations) < seconds or len(durations) < 3:
        start = time.process_time()
        operation()
        durations.append(time.process_time() - start)
    return statistics.median(durations)


def main() -> None:
    """Measure everything once."""
    seconds = float(sys.argv[1])
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        measured = {name: measure(operation, seconds) for name, operation in operations(Path(folder)).items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": measured, "peak": peak}))


if __name__ == "__main__":
    main()
