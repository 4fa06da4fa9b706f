"""What methods cost, end to end, over the model's own forward and backward pass.

    python -m benchmarks.method_cost --device cpu

Writes results/method_cost.md, or method_cost_gpu.md. The model has the geometry of BERT-base and random weights. A row
is the length of a text of random words; every part takes turns with the others in the same run, and ratios are those of
medians. An explanation goes from the text to its attribution: encoding, trace and solution. The units are the least
that a gradient method does: one forward pass, and one backward pass from a logit to the input embeddings, without the
gradients of parameters. One is by fused attention (SDPA, the model's default), the other by eager attention, which
shows the weights that attention methods read. Seconds on a CPU are those of the processor with one thread, so other
work on the machine matters little. It still matters: passes over memory suffer more from it than matrix products do.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import gaflow
from benchmarks.report import provenance, write

UNITS = {"fused": "sdpa", "eager": "eager"}  # forward + backward by this implementation of attention
METHODS = ("agf", "relevance_flow", "peeled_flow", "attnlrp")


def main() -> None:
    """Measure every length and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[14, 128, 512])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    explainer = bert(options.device)
    header = ["tokens", "attention of the unit", "forward + backward, ms"]
    header += [f"{name}, ratio" for name in options.methods]
    lines = [
        "# Cost of methods over the model's own passes",
        "",
        "Medians of one run; see benchmarks/method_cost.py for what is measured.",
        "",
        provenance(model="BERT-base geometry", seed=0, repeats=options.repeats, threads=1),
        f"| {' | '.join(header)} |",
        "|---:" * len(header) + "|",
    ]
    for tokens in options.lengths:
        seconds = measure(explainer, tokens, options.methods, options.repeats)
        for unit in UNITS:
            ratios = [f"{seconds[name] / seconds[unit]:.2f}" for name in options.methods]
            lines.append(f"| {tokens} | {unit} | {1000 * seconds[unit]:.0f} | {' | '.join(ratios)} |")
            print(lines[-1], flush=True)
    name = "method_cost.md" if options.device == "cpu" else "method_cost_gpu.md"
    print("written to", write(name, "\n".join(lines) + "\n").name)


def bert(device: str) -> gaflow.Explainer:
    """An explainer of BERT-base, untrained, with the built-in tokenizer."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    model: Any = BertForSequenceClassification(BertConfig()).eval()
    return gaflow.Explainer(model.to(device), gaflow.Explainer(device="cpu").tokenizer)


def measure(explainer: gaflow.Explainer, tokens: int, methods: list[str], repeats: int) -> dict[str, float]:
    """Median seconds of the units and of each method on one text."""
    text = random_words(explainer, tokens - 2)
    model = explainer.model
    ids = torch.tensor([explainer.tokenizer(text)["input_ids"]], device=model.device)
    assert ids.shape == (1, tokens)

    def passes(attention: str) -> None:
        default = model.config._attn_implementation
        model.set_attn_implementation(attention)
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embeddings).logits[0, 0], embeddings)
        model.set_attn_implementation(default)

    parts: dict[str, Callable[[], Any]] = {}
    for unit, attention in UNITS.items():
        parts[unit] = lambda attention=attention: passes(attention)
    for name in methods:
        parts[name] = lambda name=name: explainer(text, name, target=0)
    durations: dict[str, list[float]] = {name: [] for name in parts}
    for turn in range(repeats + 1):
        for name, part in parts.items():
            seconds = time_of(part, model.device)
            if turn:  # the first turn warms up
                durations[name].append(seconds)
    return {name: statistics.median(values) for name, values in durations.items()}


def random_words(explainer: gaflow.Explainer, count: int) -> str:
    """A text of words that are one token each: one word again and again would make all tokens alike."""
    words = [word for word in sorted(explainer.tokenizer.get_vocab()) if word.isalpha() and word.islower()]
    return " ".join(random.Random(0).choices(words, k=count))


def time_of(part: Callable[[], Any], device: torch.device) -> float:
    """Seconds of one call: of the processor on a CPU, of the clock on an accelerator."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = clock()
    part()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


if __name__ == "__main__":
    main()
