"""How many texts a second a data-set run explains: the whole of `gaflow.jobs.attribute`, from the file to the shards.

`python -m benchmarks.throughput` writes results/throughput.md. The classifier has MiniLM-L6's geometry (6 layers, 12
heads, width 384), random weights and the embedded model's tokenizer. *Mixed* texts have lengths spread evenly from 16
tokens to the longest, in random order; the others have one length. CPU seconds count what the process itself
computed, so that they say what a core can do even where others share it. On a GPU,
`--texts 5000 --lengths 512 --mixed --batch-size 64 --output throughput_gpu.md` is 5,000 texts of up to 512 tokens.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import gaflow
from benchmarks.report import provenance, write
from gaflow.jobs import attribute

SHORTEST = 16  # tokens of a mixed text


def main() -> None:
    """Measure every length and method, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 128, 512], help="tokens of a text")
    parser.add_argument("--mixed", action="store_true", help="lengths are those of the longest texts")
    parser.add_argument("--methods", nargs="+", choices=list(gaflow.METHODS), default=["agf"])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", default="throughput.md", help="name of the file in results/")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    explainer = _explainer(options.device)
    explainer("a dog", options.methods[0])  # what is only slow once does not count
    settings = {"batch size": options.batch_size, "threads": options.threads, "seed": options.seed}
    lines = [
        "# Throughput of data-set runs",
        "",
        "MiniLM-L6's geometry, random weights; see benchmarks/throughput.py for what is measured.",
        "",
        provenance(**settings),
        "| method | tokens | texts | seconds | texts/s | CPU seconds a text | errors |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for length in options.lengths:
        texts = _texts(options.texts, length, options.mixed, options.seed)
        for method in options.methods:
            lines.append(_measure(explainer, texts, method, length, options))
            print(lines[-1], flush=True)
    print("written to", write(options.output, "\n".join(lines) + "\n").name)


def _explainer(device: str) -> gaflow.Explainer:
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = gaflow.Explainer(device="cpu").tokenizer
    sizes: Any = {
        "num_hidden_layers": 6, "num_attention_heads": 12, "hidden_size": 384, "intermediate_size": 1536,
        "vocab_size": len(tokenizer),
    }  # fmt: skip
    model: Any = BertForSequenceClassification(BertConfig(**sizes)).eval()
    return gaflow.Explainer(model.to(device), tokenizer)


def _texts(count: int, length: int, mixed: bool, seed: int) -> list[str]:
    """Texts of common words, each of one token."""
    generator = random.Random(seed)
    words = ["the", "plot", "is", "thin", "but", "this", "film", "a", "good", "one", "and", "never", "long", "not"]
    span = max(1, count - 1)
    lengths = [SHORTEST + (length - SHORTEST) * k // span if mixed else length for k in range(count)]
    generator.shuffle(lengths)
    return [" ".join(generator.choice(words) for _ in range(n - 2)) for n in lengths]


def _measure(explainer: gaflow.Explainer, texts: list[str], method: str, length: int, options: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        start, cpu = time.perf_counter(), time.process_time()
        outcome = attribute(explainer, texts, Path(folder, "out"), [method], batch_size=options.batch_size)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    tokens = f"{SHORTEST} to {length}" if options.mixed else str(length)
    cells = [method, tokens, f"{len(texts):,}", f"{seconds:.1f}", f"{len(texts) / seconds:.3g}"]
    return f"| {' | '.join([*cells, f'{cpu / len(texts):.3g}', str(outcome.errors)])} |"


if __name__ == "__main__":
    main()
