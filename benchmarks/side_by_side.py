"""gaflow and the libraries that people use, side by side: the same model, texts and judge, in one process.

    python -m benchmarks.side_by_side
    python -m benchmarks.side_by_side --model DIR --data sst2-dev.parquet --texts 100 --output side_by_side_sst2.md

The other libraries are installed by `pip install "gaflow[data]" shap captum transformers-interpret inseq`; what is not
installed is left out, and the table says so. Without `--model` the embedded sentiment model is explained, and without
`--data` the reviews of `examples/data`. Results are written to `benchmarks/results`.

Every library explains the predicted class of every text, one text at a time, and each text is explained by all of them
in turn. The first text is explained once more before, so what is only slow once does not count.

- *seconds* are of the processor, for one text: other work on the machine matters little. On a GPU they are wall-clock.
- *forward* and *backward* count texts that went through the model, for one text that is explained.
- *memory* is the peak of the process above what it held before the text, the largest of all texts; on a GPU, that of
  tensors.
- *AOPC* is the mean over the replacements [PAD], [MASK] and deletion, by `gaflow.evaluate(scores=...)` for everybody.

The settings are the libraries' own, but for LIME, which gets as many samples as SHAP's explainer runs at most. SHAP and
LIME explain the probability and integrated gradients the logit, as is usual; transformers-interpret has no choice.
"""

from __future__ import annotations

import argparse
import gc
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import gaflow
from benchmarks.memory import resident
from benchmarks.passes import Passes, counting
from benchmarks.report import provenance, write
from gaflow.data import Classes, open_data, rows_of
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.models.embeddings import word_embedding
from gaflow.progress import return_freed_memory

MIB = 1 << 20
REVIEWS = Path(__file__).parents[1] / "examples" / "data" / "reviews.csv"
OURS = ("peeled_flow", "relevance_flow", "agf")
REPLACEMENTS = ("pad", "mask", "delete")
SAMPLES = 500  # of LIME: SHAP's `max_evals`
STEPS = 50  # of integrated gradients: the default of Captum, and of transformers-interpret
SAMPLES_PER_PASS = 50

Explain = Callable[[str, int], Any]  # a text and a class -> a score for every token (t,)


@dataclass(frozen=True)
class Contestant:
    """One method of one library, ready to explain."""

    library: str  # as pip calls it
    explain: Explain


@dataclass
class Measured:
    """What the explanations of all texts took."""

    scores: list[np.ndarray] = field(default_factory=list)  # (t,) of each text
    seconds: float = 0.0
    forward: int = 0  # texts through the model
    backward: int = 0
    memory: int = 0  # bytes, the largest peak


def main() -> None:
    """Measure everybody, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or hub id; without it, the embedded sentiment model")
    parser.add_argument("--data", default=str(REVIEWS), help="a file with a column of texts")
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", default="side_by_side.md", help="name of the file in results/")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    explainer = gaflow.Explainer(arguments.model, device=arguments.device)
    texts = read_texts(explainer, arguments.data, arguments.texts)
    contestants, refusals = find_contestants(explainer)
    measured = measure(explainer, contestants, texts, arguments.seed)
    rows = judge(explainer, texts, measured, arguments.seed)
    settings = {"texts": len(texts), "threads": arguments.threads, "seed": arguments.seed, "device": arguments.device}
    report = write_report(arguments.model, arguments.data, explainer, texts, contestants, refusals, rows, settings)
    print(report)
    print("written to", write(arguments.output, report).name)


def read_texts(explainer: gaflow.Explainer, path: str, count: int) -> list[str]:
    """The first texts of a file."""
    data = open_data(path)
    classes = Classes.of(data, explainer.runner.class_head("this benchmark"))
    return [str(row.input) for row in rows_of(data, classes, count)]


def find_contestants(explainer: gaflow.Explainer) -> tuple[dict[str, Contestant], dict[str, str]]:
    """Everybody who is installed and can explain the model, and why others cannot."""
    contestants = {}
    for method in OURS:
        contestants[method] = Contestant("gaflow", _gaflow(explainer, method))
    refusals = {}
    for name, (library, start) in OTHERS.items():
        try:
            contestants[name] = Contestant(library, start(explainer))
        except ImportError as error:
            refusals[name] = f"not installed ({error})"
        except Exception as error:
            refusals[name] = (str(error).splitlines() or [type(error).__name__])[0]
    return contestants, refusals


def _gaflow(explainer: gaflow.Explainer, method: str) -> Explain:
    return lambda text, target: explainer(text, method, target, keep_flow=False).scores


def _shap_partition(explainer: gaflow.Explainer) -> Explain:
    """SHAP's explainer of texts, on probabilities as a pipeline gives them."""
    shap: Any = import_module("shap")

    def probabilities(texts: Any) -> np.ndarray:
        inputs = _tokenized(explainer, list(map(str, texts)))
        with torch.no_grad():
            return explainer.model(**inputs).logits.softmax(-1).double().cpu().numpy()

    partition = shap.PartitionExplainer(probabilities, shap.maskers.Text(explainer.tokenizer))

    def explain(text: str, target: int) -> np.ndarray:
        return partition([text], silent=True).values[0][:, target]

    return explain


def _captum_ig(explainer: gaflow.Explainer) -> Explain:
    """Captum's integrated gradients by word embeddings, from a text of [PAD] to the text."""
    captum: Any = import_module("captum.attr")

    def logits(ids: Tensor, mask: Tensor) -> Tensor:
        return explainer.model(input_ids=ids, attention_mask=mask).logits

    gradients = captum.LayerIntegratedGradients(logits, word_embedding(explainer.model))

    def explain(text: str, target: int) -> np.ndarray:
        inputs = _tokenized(explainer, [text])
        ids = inputs["input_ids"]
        attributions = gradients.attribute(
            ids,
            baselines=_without_words(explainer, ids),
            target=target,
            additional_forward_args=(inputs["attention_mask"],),
            n_steps=STEPS,
        )
        return attributions.sum(-1)[0].detach().double().cpu().numpy()

    return explain


def _captum_lime(explainer: gaflow.Explainer) -> Explain:
    """Captum's LIME with its own similarity and regression; removed tokens become [PAD]."""
    captum: Any = import_module("captum.attr")
    import_module("sklearn")  # which Captum's regression needs, and does not install

    def probabilities(ids: Tensor, mask: Tensor) -> Tensor:
        rows = mask.expand(len(ids), -1)
        return explainer.model(input_ids=ids, attention_mask=rows).logits.softmax(-1)

    lime = captum.Lime(probabilities)

    def explain(text: str, target: int) -> np.ndarray:
        inputs = _tokenized(explainer, [text])
        ids = inputs["input_ids"]
        attributions = lime.attribute(
            ids,
            baselines=_without_words(explainer, ids),
            target=target,
            additional_forward_args=(inputs["attention_mask"],),
            n_samples=SAMPLES,
            perturbations_per_eval=SAMPLES_PER_PASS,
        )
        return attributions[0].double().cpu().numpy()

    return explain


def _transformers_interpret(explainer: gaflow.Explainer) -> Explain:
    library: Any = import_module("transformers_interpret")
    classifier = library.SequenceClassificationExplainer(explainer.model, explainer.tokenizer)

    def explain(text: str, target: int) -> np.ndarray:
        return np.array([score for _, score in classifier(text, index=target)])

    return explain


def _inseq(explainer: gaflow.Explainer) -> Explain:
    """Inseq attributes what a model generates: it has no call for a class."""
    inseq: Any = import_module("inseq")
    message = "it explains generated tokens only, not the class of a text"
    try:
        inseq.load_model(explainer.model, "integrated_gradients", tokenizer=explainer.tokenizer)
    except Exception as error:
        raise TypeError(f"{message}; loading the classifier ends with {type(error).__name__}: {error}") from error
    raise TypeError(message)


OTHERS: dict[str, tuple[str, Callable[[gaflow.Explainer], Explain]]] = {
    "SHAP, partition explainer": ("shap", _shap_partition),
    "Captum, integrated gradients": ("captum", _captum_ig),
    "Captum, LIME": ("captum", _captum_lime),
    "transformers-interpret": ("transformers-interpret", _transformers_interpret),
    "Inseq": ("inseq", _inseq),
}


def _tokenized(explainer: gaflow.Explainer, texts: Sequence[str]) -> dict[str, Tensor]:
    inputs = explainer.tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True)
    return {name: value.to(explainer.model.device) for name, value in inputs.items()}


def _without_words(explainer: gaflow.Explainer, ids: Tensor) -> Tensor:
    """The same special tokens, with [PAD] in place of all others."""
    tokenizer = explainer.tokenizer
    special = torch.tensor(tokenizer.get_special_tokens_mask(ids[0].tolist(), already_has_special_tokens=True))
    return torch.where(special.bool().to(ids.device), ids, tokenizer.pad_token_id)


def measure(
    explainer: gaflow.Explainer, contestants: dict[str, Contestant], texts: Sequence[str], seed: int
) -> dict[str, Measured]:
    """Explain every text by everybody, in turn."""
    classes = [_predicted_class(explainer, text) for text in texts]
    on_gpu = explainer.model.device.type == "cuda"
    measured = {name: Measured() for name in contestants}
    with warnings.catch_warnings(), counting(explainer.model) as passes:
        warnings.simplefilter("ignore")  # of the other libraries
        for contestant in contestants.values():
            contestant.explain(texts[0], classes[0])
        for number, (text, target) in enumerate(zip(texts, classes, strict=True)):
            for name, contestant in contestants.items():
                torch.manual_seed(seed + number)
                np.random.seed(seed + number)  # noqa: NPY002  (what the other libraries draw from)
                _explain_once(contestant, text, target, passes, measured[name], on_gpu=on_gpu)
            print(f"text {number + 1} of {len(texts)}", flush=True)
    return measured


def _predicted_class(explainer: gaflow.Explainer, text: str) -> int:
    target = explainer.predictions(text, 1)[0].target
    assert isinstance(target, int)
    return target


def _explain_once(
    contestant: Contestant, text: str, target: int, passes: Passes, measured: Measured, *, on_gpu: bool
) -> None:
    passes.reset()
    gc.collect()
    return_freed_memory(1 << 30)
    before = _memory(on_gpu)
    clock = time.perf_counter if on_gpu else time.process_time
    started = clock()
    scores = contestant.explain(text, target)
    measured.seconds += clock() - started
    measured.memory = max(measured.memory, _memory(on_gpu, peak=True) - before)
    measured.forward += passes.forward
    measured.backward += passes.backward
    measured.scores.append(np.asarray(scores, dtype=np.float64))


def _memory(on_gpu: bool, peak: bool = False) -> int:
    """Bytes now, or at the peak since they were last asked for now."""
    if not on_gpu:
        return resident(peak=peak)
    torch.cuda.synchronize()
    if peak:
        return torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


@dataclass(frozen=True)
class Row:
    """One line of the table; what an explanation took is for one text."""

    name: str
    seconds: float
    forward: float
    backward: float
    memory: int
    top: float  # AOPC, the mean over texts and replacements
    bottom: float
    top_by_replacement: tuple[float, ...]
    behind: tuple[float, float, float]  # area between top and bottom: gaflow's default less this, and its interval


def judge(explainer: gaflow.Explainer, texts: Sequence[str], measured: dict[str, Measured], seed: int) -> list[Row]:
    """AOPC of all scores, by the same code."""
    scores = {name: of_name.scores for name, of_name in measured.items()}
    evaluations = gaflow.evaluate(
        explainer, list(texts), scores=scores, replacement=list(REPLACEMENTS), eraser=False, seed=seed, progress=False
    )
    tops = []
    bottoms = []
    for replacement in REPLACEMENTS:
        tops.append(evaluations[replacement].per_text("aopc", "top"))
        bottoms.append(evaluations[replacement].per_text("aopc", "bottom"))
    top = np.stack(tops)  # (replacements, methods, texts)
    bottom = np.stack(bottoms)
    area = (top - bottom).mean(0)
    names = evaluations[REPLACEMENTS[0]].methods
    default = area[names.index(OURS[0])]
    rows = []
    for k, name in enumerate(names):
        of_name = measured.get(name, Measured(memory=-1))
        count = len(texts)
        difference = default - area[k]
        low, high = interval(bootstrap_means(difference, 2000, seed), 0.95)
        row = Row(
            name=name,
            seconds=of_name.seconds / count,
            forward=of_name.forward / count,
            backward=of_name.backward / count,
            memory=of_name.memory,
            top=float(top[:, k].mean()),
            bottom=float(bottom[:, k].mean()),
            top_by_replacement=tuple(top[:, k].mean(-1).tolist()),
            behind=(float(difference.mean()), float(low), float(high)),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: row.bottom - row.top)


def write_report(
    model: str | None,
    data: str,
    explainer: gaflow.Explainer,
    texts: Sequence[str],
    contestants: dict[str, Contestant],
    refusals: dict[str, str],
    rows: Sequence[Row],
    settings: dict[str, object],
) -> str:
    """The whole file."""
    lengths = [len(explainer.tokenizer(text)["input_ids"]) for text in texts]
    libraries = dict.fromkeys(["gaflow", "transformers", *(library for library, _ in OTHERS.values())])
    versions = ", ".join(f"{library} {_version(library)}" for library in libraries)
    source = "examples/data/reviews.csv" if data == str(REVIEWS) else Path(data).name
    name = "the embedded sentiment model" if model is None else Path(model).name
    lines = [
        "# gaflow and other libraries, side by side",
        "",
        "See benchmarks/side_by_side.py for what is measured. Lines are in the order of the area between the curves of",
        "AOPC. All figures are for one text.",
        "",
        provenance(**settings) + f"- model: {name}; texts: {source}, {min(lengths)} to {max(lengths)} tokens, median "
        f"{int(np.median(lengths))}\n- versions: {versions}, Python {platform.python_version()}\n",
        "| method | seconds | forward | backward | memory, MiB | AOPC top | AOPC bottom | area | "
        f"{OURS[0]} is ahead by (95 %) | top: {', '.join(REPLACEMENTS)} |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for row in rows:
        lines.append(_line(row, contestants))
    if refusals:
        lines += ["", "Not measured:", ""]
        for other, reason in refusals.items():
            lines.append(f"- {other}: {reason}")
    return "\n".join(lines) + "\n"


def _line(row: Row, contestants: dict[str, Contestant]) -> str:
    if row.name in contestants:
        library = contestants[row.name].library
        title = f"gaflow, `{row.name}`" if library == "gaflow" else row.name
        took = [f"{row.seconds:.3f}", f"{row.forward:,.0f}", f"{row.backward:,.0f}", f"{row.memory / MIB:,.0f}"]
    else:
        title = "random scores"
        took = [""] * 4
    ahead, low, high = row.behind
    behind = "" if row.name == OURS[0] else f"{ahead:+.3f} ({low:+.3f} to {high:+.3f})"
    by_replacement = ", ".join(f"{value:.3f}" for value in row.top_by_replacement)
    area = row.top - row.bottom
    cells = [title, *took, f"{row.top:.3f}", f"{row.bottom:.3f}", f"{area:.3f}", behind, by_replacement]
    return f"| {' | '.join(cells)} |"


def _version(library: str) -> str:
    if library == "gaflow":
        return gaflow.__version__
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
