"""Every model type that transformers maps to a task, traced: what works, how, and what cannot.

`python -m benchmarks.zoo` goes through them all (minutes on one core) and writes docs/models.md and results/zoo.json. A
type counts as traced if its attention becomes L matrices of t x t. Then these are checked: the gradient of the output
reaches every layer; a batch of two inputs of different length (of one length where padding would change the answer, and
for pictures and sounds) gives what its inputs give alone; the flow of `agf` converges; the model is left as found. The
last column says whether balanced gradients work: values bit-identical to the plain pass, and finite gradients.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import gaflow
from benchmarks.report import provenance
from benchmarks.zoo_models import TASKS, build, classes, make_batch, trace_output
from gaflow.errors import UnsupportedModelError
from gaflow.methods.balanced import with_gradients
from gaflow.models.adapters import ADAPTERS, runs_alone
from gaflow.models.tracing import Trace

ROOT = Path(__file__).parent.parent
LENGTHS = {
    "big_bird": [40, 33],
    "bigbird_pegasus": [40, 33],
    "imagegpt": [16, 16],
    "shieldgemma2": [16, 16],
}  # else 16 and 11
TOLERANCE = 1e-3  # of the largest element: float32, through models that amplify
SECONDS = 60  # for one model
HEADINGS = (
    "| type | traced | layers x heads x nodes | gradient reaches every layer | batch equals single | flow converges "
    "| balanced gradients |"
)
NOTES = {
    "convbert": "half of its heads are convolutions, which are not seen",
    "cvt": "torch's gradient of depthwise convolutions is wrong for a single picture on this CPU, and right for two",
    "gpt_oss": "what its attention sinks take is missing from the rows",
    "nystromformer": "as long as there are as many landmarks as tokens",
    "perceiver": "needs as many tokens as latents, or more",
    "shieldgemma2": "text only",
}
INTRODUCTION = """# Models

Can gaflow explain your model? Look for its type (`model.config.model_type`) in the tables below, or ask for any
model:

```
gaflow info org/name
```

Each row is a tiny model with random weights. The tables have every model type that transformers {version} knows
for a task. `python -m benchmarks.zoo` writes this page; CONTRIBUTING.md says how to add a family.

## What the columns say

- **traced**: gaflow gets the attention of every layer as a matrix of tokens by tokens, and the gradient of the
  output by it. Then every method works that needs no more than a trace. The entry says where the attention
  comes from:
  - *as handed out*: the model returns it;
  - *softmaxes*: gaflow finds the softmax of each layer in the forward pass. This needs no code for the type;
  - any other name: an adapter for this family (`gaflow.models.adapters`).
- **batch equals single**: an input has the same scores in a batch as alone. *padded*: also if the inputs of the
  batch have different lengths. *one length*: padding would change the model's output, so gaflow puts only texts
  of one length into a batch.
- **flow converges**: the flow of the tiny model has a certificate.
- **balanced gradients**: [balanced gradients](relevance_flow.md#balanced-gradients) work, with the same values
  in every bit and finite gradients. Otherwise the entry names the operation that has no rule, and the default
  method is `agf`. `relevance_flow` and `peeled_flow` also need the residual stream, which gaflow does not find
  where attention comes in parts.
- *Not built*: the type needs a library that was not installed.

Every traced model was left as it was found, unless its row says otherwise.

## What you should know

- Encoder-decoders are explained by their encoder. The network has no edges for what the decoder reads of the
  text by itself.
- Masked positions are no edges: the future in a decoder, or tokens outside a sliding window.
- Attention and gradients are float32 or wider. Models in bfloat16 are traced as they are. In float16, small
  gradients would vanish, so gaflow multiplies the output by the largest power of two that does not overflow,
  and divides the gradients afterwards.
- Layers that torch has quantised have no gradient and are refused. Integer weights are fine if the layer
  computes in floating point ([loading](howto/loading.md)).
- Some models fail in float64 inside transformers, because their masks contain infinities (ModernBERT with
  padding, CANINE). The error says so.

## How many
"""


@dataclass(frozen=True)
class Finding:
    """What became of one model type."""

    task: str
    type: str
    model: str  # its class
    outcome: str  # "traced", "refused", "not built" or "failed"
    how: str = ""  # the adapter, or why not
    shape: tuple[int, int, int] | None = None  # layers, heads, nodes
    reached: bool | None = None  # the gradient reaches every layer
    alike: str = ""  # how inputs of a batch that equals them differed: "padded", "one length", "one size"; "": unequal
    converged: bool | None = None
    restored: bool | None = None
    balanced: str = ""  # "yes", or why balanced gradients do not work

    @property
    def sound(self) -> bool:
        """Whether it was traced and every check held."""
        return self.outcome == "traced" and bool(self.reached and self.alike and self.converged and self.restored)


def main() -> None:
    """Go through the types and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--types", nargs="*", help="only these")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    findings: list[Finding] = []
    began = time.perf_counter()
    for task in options.tasks:
        for kind in classes(task):
            if not options.types or kind in options.types:
                findings.append(inspect(task, kind))
                print(json.dumps(asdict(findings[-1])), flush=True)
    print(*summary(findings), f"{time.perf_counter() - began:.0f} s", sep="\n", file=sys.stderr)
    if options.write:
        (ROOT / "docs" / "models.md").write_text(page(findings, transformers.__version__), encoding="utf-8")
        rows = [asdict(f) for f in findings]
        notes = {"transformers": transformers.__version__, "provenance": provenance(seconds=SECONDS)}
        text = json.dumps({**notes, "findings": rows}, indent=1)
        (ROOT / "benchmarks" / "results" / "zoo.json").write_text(text + "\n", encoding="utf-8")


def inspect(task: str, kind: str) -> Finding:
    """Build a type, trace it and check the trace; whatever goes wrong is part of the finding."""
    blank = Finding(task, kind, classes(task)[kind], "not built")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(SECONDS):
                model = build(kind, task)
        except Exception as error:  # any configuration may be impossible, each in its own way
            return replace(blank, how=_line(error))
        try:
            with limited(SECONDS):
                return check(model, blank)
        except UnsupportedModelError as error:
            return replace(blank, outcome="refused", how=_reason(error))
        except Exception as error:  # likewise
            return replace(blank, outcome="failed", how=_line(error))


def check(model: nn.Module, blank: Finding) -> Finding:
    """The finding of a model that can be traced."""
    task, kind = blank.task, blank.type
    lengths = LENGTHS.get(kind, [16, 11])
    if runs_alone(model):
        lengths = lengths[:1] * 2
    before = condition(model)
    together = _trace(model, kind, task, lengths)
    restored = condition(model) == before
    alike = all(_same(together, k, _trace(model, kind, task, lengths, only=k)) for k in range(2))
    information = gaflow.information.agf(together.attention, together.gradient)
    flow = gaflow.solve(information, mask=together.mask, throw=False)
    _, layers, heads, t, _ = together.attention.shape
    return replace(
        blank,
        outcome="traced",
        how=together.adapter,
        shape=(layers, heads, t),
        reached=bool((together.gradient.flatten(2).abs().amax(-1) > 0).all()),
        alike=_batching(task, lengths) if alike else "",
        converged=bool(flow.converged.all()),
        restored=restored,
        balanced=_balanced(together),
    )


def _balanced(plain: Trace) -> str:
    """Whether balanced gradients of a traced model work: "yes", or why not."""
    try:
        balanced = with_gradients(plain, "balanced")
    except UnsupportedModelError as error:
        reason = str(error).split(" as this model uses it")[0].split(": ")[0]
        return reason.split(" covers ")[-1].split(" through ")[-1]  # the operation alone
    if not torch.equal(balanced.logits, plain.logits):
        return "other values"
    return "yes" if all(bool(g.isfinite().all()) for g in balanced.gradients) else "not finite"


def _batching(task: str, lengths: Sequence[int]) -> str:
    if task in ("image-classification", "audio-classification"):
        return "one size"
    return "padded" if len(set(lengths)) > 1 else "one length"


def _trace(model: nn.Module, kind: str, task: str, lengths: Sequence[int], only: int | None = None) -> Trace:
    batch = make_batch(model, kind, task, list(lengths))
    if only is not None:
        n = lengths[only]
        cut = batch.mask.shape[1] > 0
        inputs = {name: x[only : only + 1, :n] if cut else x[only : only + 1] for name, x in batch.inputs.items()}
        batch = replace(batch, inputs=inputs, mask=batch.mask[only : only + 1, :n], padded=False)
    return trace_output(model, batch)


def _same(together: Trace, item: int, alone: Trace) -> bool:
    n = alone.mask.shape[1]
    pairs = [(together.attention, alone.attention), (together.gradient, alone.gradient)]
    return all(
        bool((a[item : item + 1, ..., :n, :n] - b).abs().max() <= TOLERANCE * max(1e-6, b.abs().max().item()))
        for a, b in pairs
    )


def condition(model: nn.Module) -> Any:
    """Everything about a model that a trace could disturb."""
    modules = {
        name: (m.training, list(m._forward_hooks), list(m._forward_pre_hooks), id(m), sorted(vars(m)))
        for name, m in model.named_modules()
    }
    weights = {name: (p.requires_grad, p.grad is None, p._version) for name, p in model.named_parameters()}
    configs = [getattr(m, "config", None) for m in model.modules()]
    attention_kinds = [getattr(c, "_attn_implementation", None) for c in configs]
    return modules, weights, attention_kinds, torch.get_rng_state().tolist()


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Give up after so many seconds, where the system has alarms."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    if not hasattr(signal, "SIGALRM"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:160].rsplit(" ", 1)[0] + " ..."


def _reason(error: Exception) -> str:
    return str(error).split(" cannot be traced: ")[-1].split(". Use a model")[0]


def summary(findings: Sequence[Finding]) -> list[str]:
    """Counts for every task."""
    headings = "| task | types | traced, all checks hold | traced | refused | not built | failed | balanced gradients |"
    lines = [headings, "|---" * 8 + "|"]
    for task in dict.fromkeys(f.task for f in findings):
        of_task = [f for f in findings if f.task == task]
        count = Counter(f.outcome for f in of_task)
        numbers = [
            len(of_task),
            sum(f.sound for f in of_task),
            *(count[o] for o in ("traced", "refused", "not built", "failed")),
            sum(f.balanced == "yes" for f in of_task),
        ]
        lines.append(f"| {task} | {' | '.join(str(n) for n in numbers)} |")
    return lines


def page(findings: Sequence[Finding], version: str) -> str:
    """docs/models.md, from the findings with one version of transformers."""
    lines = [INTRODUCTION.format(version=version), *summary(findings), "", "## Adapters", ""]
    lines += ["| adapter | model types |", "|---|---|"]
    kinds: dict[str, list[str]] = {}
    for kind, adapter in ADAPTERS.items():
        kinds.setdefault(adapter.name or "the model's own, texts of one length only", []).append(kind)
    encoders = {f.type for f in findings if f.how == "encoder" and f.type not in ADAPTERS}
    kinds.setdefault("encoder", []).extend(sorted(encoders))
    lines += [f"| {name} | {', '.join(sorted(of_task))} |" for name, of_task in sorted(kinds.items())]
    for task in dict.fromkeys(f.task for f in findings):
        lines += ["", f"## {task[0].upper()}{task[1:].replace('-', ' ')}", "", HEADINGS, "|---" * 7 + "|"]
        lines += [row(f) for f in findings if f.task == task]
    return "\n".join(lines) + "\n"


def row(finding: Finding) -> str:
    """One line of a table."""
    if finding.outcome != "traced":
        return f"| {finding.type} | {finding.outcome}: {finding.how.replace('|', '/')} | | | | | |"
    how = finding.how or "as handed out"
    notes = [NOTES[finding.type]] if finding.type in NOTES else []
    notes += [] if finding.restored else ["not left as found"]
    assert finding.shape is not None
    shape = " x ".join(str(n) for n in finding.shape)
    cells = [f"{how}{'; ' if notes else ''}{'; '.join(notes)}", shape]
    cells += [
        "yes" if finding.reached else "**no**",
        finding.alike or "**no**",
        "yes" if finding.converged else "**no**",
        "yes" if finding.balanced == "yes" else f"no: {finding.balanced}",
    ]
    return f"| {finding.type} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
