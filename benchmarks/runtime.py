"""How long every method takes: the paper's Table 8, on one machine in one run, and the same for longer texts.

`python -m benchmarks.runtime` writes results/runtime.md (about an hour on two cores, minutes on a GPU). A number is the
median wall-clock time of a whole explanation, from the text to its attribution: encoding, trace and method; the ratio
is to AttCAT, as in the paper's own numbers beside it, since seconds of different machines say little. Methods take
turns. A first turn is not counted, unless it took longer than --patience: then it is the only one. Attention flow
solves one maximum flow per token and is timed up to --pairs tokens only.

The embedded model comes first; "bert-base" has BERT-base's geometry, random weights and the same tokenizer. Texts of
128 and 512 tokens are the showcase sentence over and over.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch

import gaflow
from benchmarks.report import provenance, write

SENTENCE = "although this dog is not cute, it is very smart."
UNIT = "attcat"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAPER = {  # Table 8, seconds
    "rawatt": 0.123,
    "rollout": 0.154,
    "grads": 1.554,
    "attgrads": 1.571,
    "cat": 1.684,
    "attcat": 1.660,
    "partial_lrp": 1.571,
    "transatt": 1.620,
    "lime": 1.462,
    "kernel_shap": 2.342,
    "ig": 2.701,
    "af": 2.301,
    "gf": 2.305,
    "agf": 2.306,
}
ALL = "the {} methods of one trace together"


def main() -> None:
    """Measure every model and length, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=list(gaflow.METHODS), default=list(gaflow.METHODS))
    parser.add_argument("--lengths", type=int, nargs="*", default=[128, 512], help="tokens, beside the sentence")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds from which one turn is enough")
    parser.add_argument("--pairs", type=int, default=128, help="tokens up to which attention_flow is timed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="runtime.md", help="name of the file in results/")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    names = [*options.methods, *([] if UNIT in options.methods else [UNIT])]
    lines = [
        "# Runtime of every method",
        "",
        "Seconds per text, medians of one run; see benchmarks/runtime.py for what is measured.",
        "",
        provenance(repeats=options.repeats, patience=f"{options.patience:g} s", seed=options.seed),
    ]
    for model in options.models:
        explainer = MODELS[model]()
        texts = [SENTENCE, *(text_of(explainer, length) for length in options.lengths)]
        measured = []
        for text in texts:
            affordable = [n for n in names if n != "attention_flow" or length(explainer, text) <= options.pairs]
            measured.append(measure(explainer, text, affordable, options.repeats, options.patience))
        heads = [f"{length(explainer, text)} tokens" for text in texts]
        lines += [f"## {model}", "", describe(explainer), "", *table(heads, measured), ""]
    print("\n".join(lines))
    print("written to", write(options.output, "\n".join(lines)).name)


def bert_base() -> gaflow.Explainer:
    """BERT-base's geometry, untrained, with the embedded model's tokenizer."""
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = gaflow.Explainer().tokenizer
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer))).eval()
    model.to(DEVICE)  # type: ignore[arg-type]
    return gaflow.Explainer(model, tokenizer)


MODELS: dict[str, Callable[[], gaflow.Explainer]] = {"embedded": gaflow.Explainer, "bert-base": bert_base}


def describe(explainer: gaflow.Explainer) -> str:
    """The model in a line."""
    config = explainer.model.config
    parameters = sum(p.numel() for p in explainer.model.parameters())
    layers, heads, width = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    return f"{type(explainer.model).__name__}: {layers} layers, {heads} heads, width {width}, {parameters:,} parameters"


def length(explainer: gaflow.Explainer, text: str) -> int:
    """Tokens of a text, special ones included."""
    return len(explainer.tokenizer(text, verbose=False)["input_ids"])


def text_of(explainer: gaflow.Explainer, tokens: int) -> str:
    """The beginning of the sentence over and over that has `tokens` tokens."""
    words = (f"{SENTENCE} " * tokens).split()
    for count in range(1, len(words)):
        text = " ".join(words[:count])
        token_count = length(explainer, text)
        if token_count == tokens:
            return text
        if token_count > tokens:  # the last word has several tokens: single letters fill up
            text = " ".join(words[: count - 1])
            return text + " a" * (tokens - length(explainer, text))
    raise ValueError(f"no text of {tokens} tokens")


def measure(
    explainer: gaflow.Explainer, text: str, names: Sequence[str], repeats: int, patience: float
) -> dict[str, float]:
    """Median seconds of each method on one text, and of all that share one trace."""
    shared = [name for name in names if gaflow.METHODS[name].info.one_trace]  # type: ignore[attr-defined]
    parts: dict[str, Callable[[], object]] = {
        name: lambda name=name: explainer(text, name, keep_flow=False) for name in names
    }
    parts[ALL.format(len(shared))] = lambda: explainer.compare(text, shared, keep_flow=False)
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    first: dict[str, float] = {}
    for turn in range(repeats + 1):
        for name, part in parts.items():
            if first.get(name, 0) > patience:
                continue
            started = time.perf_counter()
            part()
            taken = time.perf_counter() - started
            if turn == 0:
                first[name] = taken
                print(f"{length(explainer, text)} tokens, {name}: {taken:.3f} s", flush=True)
            else:
                seconds[name].append(taken)
    return {name: statistics.median(durations or [first[name]]) for name, durations in seconds.items()}


def table(heads: Sequence[str], measured: Sequence[dict[str, float]]) -> list[str]:
    """Rows of Markdown: the paper's seconds and ratio, then ours for each text."""
    columns = ["method", "paper", f"/ {UNIT}"]
    for head in heads:
        columns += [head, f"/ {UNIT}"]
    lines = [f"| {' | '.join(columns)} |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    for name in measured[0]:
        paper = PAPER.get(name)
        cells = [name, *(["", ""] if paper is None else [f"{paper:.3f}", f"{paper / PAPER[UNIT]:.2f}"])]
        for seconds_by_method in measured:
            cells += (
                [f"{seconds_by_method[name]:.3f}", f"{seconds_by_method[name] / seconds_by_method[UNIT]:.2f}"]
                if name in seconds_by_method
                else ["", ""]
            )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
