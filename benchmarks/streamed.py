"""Streamed attention beside eager attention: CPU seconds, peak memory, and what the estimate says.

`python -m benchmarks.streamed` writes results/streamed.md (Linux only). Each row is a process of its own, with a model
of random weights and one text; eager and streamed processes of a case alternate. Memory is the growth of the resident
set from a process that has explained a short text to its peak; *whole process* includes interpreter, libraries and
weights. Flows are not kept. Where eager attention would need more than --limit GiB by the estimate, only streamed
attention is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import MIB, resident
from benchmarks.report import provenance, write

CASES = [  # model, tokens, methods
    *(
        ("BERT-base", length, method)
        for length in (14, 128, 512)
        for method in ("agf", "relevance_flow", "peeled_flow")
    ),
    ("ModernBERT-base", 1024, "agf"),
    ("ModernBERT-base", 1024, "attcat"),
    ("ModernBERT-base", 4096, "attcat"),
]
WAYS: dict[str, Any] = {"eager": "eager", "streamed": "auto"}
LIMIT = 8.0


def main() -> None:
    """Measure every case, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT, help="GiB that an eager process may need")
    parser.add_argument("--repeat", type=int, default=1, help="processes for each row; the median of their seconds")
    parser.add_argument("--models", nargs="*", default=["BERT-base", "ModernBERT-base"])
    parser.add_argument("--part", help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(_explain(**json.loads(arguments.part), limit=arguments.limit)))
        return
    import torch

    torch.set_num_threads(1)  # what the processes have, for the table
    lines = [
        "# Eager and streamed attention",
        "",
        "One text on a CPU in float32, without its flow; see benchmarks/streamed.py for what is measured. Other work",
        "ran on the same two cores, which affects seconds: compare them within a case only.",
        "",
        provenance(threads=1, seed=0, vocabulary=30522, N=arguments.repeat),
        "| model | tokens | method | attention | estimated | measured | ratio | whole process | CPU seconds |",
        "|---|---:|---|---|---:|---:|---:|---:|---:|",
    ]
    for model, length, method in CASES:
        if model not in arguments.models:
            continue
        runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(arguments.repeat):
            for way in WAYS:
                runs[way].append(_child({"model": model, "length": length, "method": method, "way": way}, arguments))
        for way, measured_runs in runs.items():
            row = _row(measured_runs)
            lines.append(f"| {model} | {length:,} | {method} | {way} | {row} |")
            print(lines[-1], flush=True)
    print("written to", write("streamed.md", "\n".join(lines) + "\n").name)


def _row(runs: list[dict[str, float]]) -> str:
    """The cells of one way: the largest memory and the median of seconds."""
    estimated = runs[0]["estimated"] / MIB
    if "measured" not in runs[0]:
        return f"{estimated:,.0f} MiB | not run | | | "
    measured = max(run["measured"] for run in runs) / MIB
    whole_process = max(run["process"] for run in runs) / MIB
    seconds = sorted(run["seconds"] for run in runs)[len(runs) // 2]
    cells = [f"{estimated:,.0f} MiB", f"{measured:,.0f} MiB", f"{measured / estimated:.2f}"]
    return " | ".join([*cells, f"{whole_process:,.0f} MiB", f"{seconds:.2f}"])


def _child(case: dict[str, Any], arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.streamed", "--limit", str(arguments.limit)]
    command += ["--part", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _explain(model: str, length: int, method: str, way: Any, limit: float) -> dict[str, float]:
    import copy
    import random

    import torch

    import gaflow
    from gaflow.explainer.batch import explain_batch
    from gaflow.models.cost import estimate
    from gaflow.models.memory import geometry_of, method_costs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = _network(model)
    tokenizer = copy.deepcopy(gaflow.Explainer(device="cpu").tokenizer)
    tokenizer.model_max_length = length
    explainer = gaflow.Explainer(network, tokenizer, attention=WAYS[way])
    explainer("a dog", method)  # loads libraries, and finds out whether the model can be streamed
    words = ["a", "the", "film", "dog", "cat", "is", "was", "very", "good", "bad", "smart", "not", "but", "and"]
    text = " ".join(random.Random(0).choices(words, k=length - 2))
    encodings = explainer.runner.encode([text], names=["the text"])
    streamed = explainer.runner.streams(encodings, [gaflow.METHODS[method]])
    assert streamed == (way == "streamed")
    (cost,) = method_costs([gaflow.METHODS[method]], torch.device("cpu"), streamed)
    geometry = geometry_of(network)
    assert geometry is not None
    estimated = estimate(geometry, length, 1, cost).peak
    if not streamed and estimated > limit * 1024 * MIB:
        return {"estimated": estimated}
    before = resident()
    started = time.process_time()
    explain_batch(explainer.runner, encodings, [None], [gaflow.METHODS[method]])
    seconds = time.process_time() - started
    process = resident(peak=True)
    return {"estimated": estimated, "measured": process - before, "process": process, "seconds": seconds}


def _network(name: str) -> Any:
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        ModernBertConfig,
        ModernBertForSequenceClassification,
    )

    if name == "BERT-base":
        return BertForSequenceClassification(BertConfig(vocab_size=30522)).eval()
    tokens: Any = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    return ModernBertForSequenceClassification(ModernBertConfig(vocab_size=30522, **tokens)).eval()


if __name__ == "__main__":
    main()
