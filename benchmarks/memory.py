"""The memory that explanations take, beside what `gaflow.models.cost` says before.

`python -m benchmarks.memory` writes results/memory.md (Linux only). Each row is a process of its own, which loads a
model of random weights, explains a short text, and then texts of the length given in one batch; *measured* is the
growth of its resident set from there to its peak, *whole process* all of it: interpreter, libraries, weights and work.
The process may not have more than --limit GiB of private memory, as on a machine that has no more: to take more would
be an error, not swapping.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.report import provenance, write

MIB = 1 << 20
MODELS = {  # layers, heads, width, inner width
    "MiniLM-L6": (6, 12, 384, 1536),
    "BERT-base": (12, 12, 768, 3072),
    "a small one": (4, 2, 128, 512),
}
CASES = [  # model, tokens, texts
    ("MiniLM-L6", 128, 1),
    ("MiniLM-L6", 128, 8),
    ("MiniLM-L6", 512, 1),
    ("MiniLM-L6", 512, 4),
    ("BERT-base", 128, 1),
    ("BERT-base", 128, 4),
    ("BERT-base", 512, 1),
    ("a small one", 512, 1),
]
METHODS = ("rawatt", "agf", "peeled_flow")


def main() -> None:
    """Measure every case, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=4.0, help="GiB of private memory of a process")
    parser.add_argument("--part", help="used by the script itself")
    given = parser.parse_args()
    if given.part:
        print(json.dumps(_explain(**json.loads(given.part), limit=given.limit)))
        return
    import torch

    torch.set_num_threads(1)  # what the processes have, for the table
    lines = [
        "# Estimated and measured memory",
        "",
        f"Every process had {given.limit:g} GiB; see benchmarks/memory.py for what is measured.",
        "",
        provenance(threads=1, seed=0, vocabulary=30522),
        "| model | tokens | texts | method | estimated | measured | measured / estimated | whole process | seconds |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for model, length, batch in CASES:
        for method in METHODS:
            found = _child({"model": model, "length": length, "batch": batch, "method": method}, given.limit)
            estimated, measured, whole = (found[k] / MIB for k in ("estimated", "measured", "whole"))
            cells = [model, length, batch, method, f"{estimated:,.0f} MiB", f"{measured:,.0f} MiB"]
            cells += [f"{measured / estimated:.2f}", f"{whole:,.0f} MiB", f"{found['seconds']:.2f}"]
            lines.append(f"| {' | '.join(map(str, cells))} |")
            print(lines[-1], flush=True)
    print("written to", write("memory.md", "\n".join(lines) + "\n").name)


def _child(case: dict[str, Any], limit: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", "--limit", str(limit), "--part", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _explain(model: str, length: int, batch: int, method: str, limit: float) -> dict[str, float]:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 1024) * MIB, resource.RLIM_INFINITY))
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    import gaflow
    from gaflow.explainer.batch import explain_batch
    from gaflow.models.cost import ONE_TRACE, Geometry, estimate

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers, heads, width, inner = MODELS[model]
    sizes: Any = {
        "num_hidden_layers": layers, "num_attention_heads": heads, "hidden_size": width, "intermediate_size": inner,
    }  # fmt: skip
    network = BertForSequenceClassification(BertConfig(vocab_size=30522, **sizes)).eval()
    explainer = gaflow.Explainer(network, gaflow.Explainer(device="cpu").tokenizer)
    explainer("a dog", method)
    texts = [" ".join(["dog"] * (length - 2))] * batch
    before, start = resident(), time.perf_counter()
    chosen = gaflow.METHODS[method]
    encodings = explainer.runner.encode(texts, names=texts)
    found = explain_batch(explainer.runner, encodings, [None] * batch, [chosen]).by_text
    seconds, whole = time.perf_counter() - start, resident(peak=True)
    assert all(len(by_method[chosen.name].tokens) == length for by_method in found)
    flow = isinstance(chosen, gaflow.FlowMethod)
    cost = estimate(Geometry(layers, heads, width, inner), length, batch, chosen.cost if flow else ONE_TRACE)
    expected = max(cost.contexts, cost.flow) if flow else cost.trace
    return {"estimated": expected, "measured": whole - before, "whole": whole, "seconds": seconds}


def resident(peak: bool = False) -> int:
    """Bytes of the resident set, now or at its peak since it was last asked for now."""
    if not peak:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    name = "VmHWM" if peak else "VmRSS"
    found = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) * 1024 for words in found if words[0] == f"{name}:")


if __name__ == "__main__":
    main()
