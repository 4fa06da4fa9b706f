"""Is an explanation one of this model, and of this output? What scores must pass before their faithfulness counts.

    python -m benchmarks.sanity --data dev.parquet --model DIR --texts 100
    python -m benchmarks.sanity --data dev.parquet --model DIR --planted DIR --rationales DIR --classifiers DIR

Parts, chosen by `--parts`; without it all that the other options give the means for:

    logit       scores of the predicted class against those of another class, drawn for each text (Sixt et al. 2020)
    weights     against those of models whose weights are drawn anew, normal with the mean and deviation of each tensor:
                first the head's, then also those of one encoder layer after the other from the top, then also the
                embeddings' (Adebayo et al. 2018); the class explained stays that which the trained model predicts
    stability   largest change of a score, relative to the largest score of its text, under what must not matter: a
                batch or much padding against the text alone, doubled spaces; rank correlation between two seeds
    tokens      the share of all scores, by absolute value, that the first token and the special tokens get
    planted     words that decide are found: `--planted` is a folder that benchmarks/planted.py wrote
    rationales  agreement with people, apart from all else: `--rationales` is a folder of hatexplain-test.parquet and
                movie_rationales-test.parquet, `--classifiers` one of the classifiers hatexplain and imdb
                (benchmarks/train_classifier.py); see benchmarks/rationales.py

Correlations are over the ordinary tokens of a text, averaged over texts, with standard errors; texts whose scores are
all equal, or that a method fails on, are left out and counted. All scores are kept in a folder (`--kept`): killed at
any moment, it goes on, and processes with other `--methods` can share the work before one with all writes the report.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import torch
from torch import nn

from benchmarks.asking import CONTROL, Scored, Subject, change, cosine, markdown, mean_with_error, read, sizes, spearman
from benchmarks.deadline import Deadline, add_option
from benchmarks.rationales import SETS, agreement, read_marked, read_sentences
from benchmarks.report import provenance, write
from gaflow import METHODS, Explainer
from gaflow.data import open_data
from gaflow.errors import MissingExtraError
from gaflow.evaluation import Planted, recovery
from gaflow.methods import Method, find_method

KEPT = Path(__file__).parents[1] / "build" / "sanity"
PARTS = ("logit", "weights", "stability", "tokens", "planted", "rationales")


def random_logit(subject: Subject, methods: Sequence[Method], seed: int) -> list[str]:
    """The predicted class against another one."""
    classes = len(subject.explainer.head.labels)
    if classes < 2:
        raise SystemExit("the model has one output only, so that there is no other class to explain")
    steps = 1 + np.random.default_rng(seed).integers(classes - 1, size=len(subject.texts))
    other = ((np.array(subject.predicted) + steps) % classes).tolist()
    rows = []
    for method in methods:
        pair = subject.scores(method), subject.scores(method, "of another class", targets=other)
        similarities = [subject.compare(measure, *pair) for measure in (spearman, sizes, cosine)]
        rows.append([method.name, *map(mean_with_error, similarities), int(np.isnan(similarities[0]).sum())])
    return [
        "## Another class",
        "",
        f"The predicted class against another one of {classes}. 1: scores are the same whatever class is asked about; "
        "-1: they turn around, as those of two classes should whose logits do.",
        "",
        *markdown(["method", "rank correlation", "of absolute values", "cosine", "left out"], rows),
    ]


def stages(model: nn.Module) -> dict[str, list[str]]:
    """Names of the parameters from the top down: of the head, of each layer, of the embeddings.

    Layers are the longest list of modules; what the model holds after it is the head, what before it the embeddings.
    """
    lists = [(name, len(module)) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise SystemExit(f"{type(model).__name__} has no list of layers to draw the weights of, one after the other")
    inside, count = max(lists, key=lambda entry: entry[1])
    names = [name for name, _ in model.named_parameters()]
    within = [k for k, name in enumerate(names) if name.startswith(f"{inside}.")]
    groups = {"head": names[within[-1] + 1 :]}
    for k in reversed(range(count)):
        groups[f"layer {k + 1}"] = [name for name in names if name.startswith(f"{inside}.{k}.")]
    return groups | {"embeddings": names[: within[0]]}


@contextmanager
def randomised(model: nn.Module, names: Sequence[str], seed: int) -> Iterator[None]:
    """While this lasts these parameters are normal draws with their own mean and deviation; then they are as before."""
    parameters = dict(model.named_parameters())
    before = {name: parameters[name].detach().clone() for name in names}
    try:
        with torch.no_grad():
            for name, original in before.items():
                # a number of its name, so that a tensor is the same at every stage
                generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
                drawn = torch.randn(original.shape, generator=generator).to(original)
                parameters[name].copy_(original.mean() + original.std(correction=0) * drawn)
        yield
    finally:
        with torch.no_grad():
            for name, original in before.items():
                parameters[name].copy_(original)


def random_weights(subject: Subject, methods: Sequence[Method], seed: int) -> list[str]:
    """The trained model against ones that know less and less."""
    model, targets, drawn = subject.explainer.model, subject.predicted, list[str]()
    plain = {method.name: subject.scores(method) for method in methods}
    measures_by_method: dict[str, list[list[np.ndarray]]] = {name: [[], []] for name in plain}  # measure, stage
    for stage, names in (parts := stages(model)).items():
        drawn += names
        with randomised(model, drawn, seed):
            for method in methods:
                scores = subject.scores(method, f"drawn down to {stage}, seed {seed}", targets=targets)
                for cells, measure in zip(measures_by_method[method.name], (spearman, sizes), strict=True):
                    cells.append(subject.compare(measure, plain[method.name], scores))
    lines = ["## Weights drawn anew", "", "From the head down to the part that is named; 1: scores are what they were."]
    for k, title in enumerate(("Rank correlation with the scores of the trained model", "The same of absolute values")):
        rows = []
        for name, measured in measures_by_method.items():
            missing = max(int(np.isnan(cell).sum()) for cell in measured[k])
            rows.append([name, *map(mean_with_error, measured[k]), missing])
        lines += ["", f"{title}:", "", *markdown(["method", *parts, "left out, at most"], rows)]
    return lines


def stability(subject: Subject, methods: Sequence[Method]) -> list[str]:
    """The same question asked in other ways."""
    texts, size = subject.texts, max(2, subject.batch_size)
    wide = _same_tokens(subject.explainer, texts, [text.replace(" ", "  ") for text in texts])
    alone, padded = [[k] for k in range(len(texts))], _padded(len(texts), size)
    long = [*texts, *[" ".join([max(texts, key=len)] * 2)] * len(padded)]  # twice the longest: all else is padding
    rows = []
    for method in methods:
        batch, one = subject.scores(method), subject.scores(method, "alone", groups=alone)
        beside = subject.scores(method, "padded", texts=long, groups=padded)[: len(texts)]
        pairs = (one, batch), (one, beside), (batch, subject.scores(method, "with doubled spaces", texts=wide))
        largest = [np.nanmax(subject.compare(change, *pair), initial=0.0) for pair in pairs]
        rows.append([method.name, *(f"{change:.1e}" for change in largest), _seeds(subject, method, batch)])
    doubled = sum(one != other for one, other in zip(texts, wide, strict=True))
    return [
        "## What must not matter",
        "",
        f"{len(texts)} texts, {doubled} of which have the same tokens with doubled spaces: largest change of a score, "
        "relative to the largest of its text, in float32; rank correlation between two seeds of methods that draw.",
        "",
        *markdown(["method", "batch", "padding", "doubled spaces", "another seed"], rows),
    ]


def special_tokens(subject: Subject, methods: Sequence[Method]) -> list[str]:
    """How much of the scores lies on tokens that say nothing."""
    special = [text.special_mask for text in subject.attributions]
    first = [np.arange(len(mask)) == 0 for mask in special]
    uniform = [np.array([mask.mean() for mask in masks]) for masks in (first, special)]
    rows = [["as many scores as tokens", *(mean_with_error(share, ".1%") for share in uniform), 0]]
    for method in methods:
        scores = subject.scores(method)
        shares = [np.array([_share(*pair) for pair in zip(scores, masks, strict=True)]) for masks in (first, special)]
        rows.append([method.name, *(mean_with_error(share, ".1%") for share in shares), int(np.isnan(shares[0]).sum())])
    return [
        "## First and special tokens",
        "",
        "Share of the absolute scores of all tokens. Special tokens have score 0 where they are never removed.",
        "",
        *markdown(["method", "first token", "special tokens", "left out"], rows),
    ]


def _share(scores: Scored, mask: np.ndarray) -> float:
    """What of the absolute scores lies on the tokens of a mask; NaN where there are none."""
    total = 0.0 if scores is None else float(abs(scores).sum())
    return float(abs(scores[mask]).sum()) / total if scores is not None and total else np.nan


def _same_tokens(explainer: Explainer, texts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Of each text the other one if the model reads the same in it, or else the text."""
    encodings = zip(read(explainer, texts), read(explainer, others), strict=True)
    same = [one.inputs["input_ids"] == other.inputs["input_ids"] for one, other in encodings]
    return [other if equal else text for text, other, equal in zip(texts, others, same, strict=True)]


def _padded(count: int, size: int) -> list[list[int]]:
    """Batches of `count` texts, each with one more text at its end, numbered from `count` on."""
    starts = range(0, count, size - 1)
    return [[*range(k, min(k + size - 1, count)), count + turn] for turn, k in enumerate(starts)]


def _seeds(subject: Subject, method: Any, first: Sequence[Scored]) -> str:
    """Rank correlation with another seed; nothing of methods that draw nothing."""
    if not hasattr(method, "seed"):
        return ""
    second = subject.scores(replace(method, seed=method.seed + 1))
    drawn = np.nanmax(subject.compare(change, first, second), initial=0.0) > 0
    return mean_with_error(subject.compare(spearman, first, second)) if drawn else ""


def planted(folder: Path, methods: Sequence[Method], options: argparse.Namespace) -> list[str]:
    """Words that decide, and whether scores find them."""
    rows = [
        Planted(row["text"], row["label"], tuple((a, b) for a, b in row["spans"]), k)
        for k, row in enumerate(pyarrow.parquet.read_table(folder / "planted.parquet").to_pylist()[: options.texts])
    ]
    subject = Subject.of(load(folder, options), [row.text for row in rows], options.kept, options.batch_size)
    scores = {method.name: subject.scores(method) for method in methods}
    complete = [k for k in range(len(rows)) if all(method_scores[k] is not None for method_scores in scores.values())]
    attributions = {
        name: [replace(subject.attributions[k], scores=method_scores[k], method=name) for k in complete]
        for name, method_scores in scores.items()
    }
    judged = recovery(attributions, [rows[k] for k in complete], seed=options.seed)
    measures = judged.precision, judged.mean_rank, judged.depth
    cells = [
        [name, *(mean_with_error(measure[k], ".3f") for measure in measures)] for k, name in enumerate(judged.methods)
    ]
    return [
        "## Planted words",
        "",
        f"Classifier {folder.name}: {len(judged.rows)} texts of {np.mean(judged.sizes):.1f} tokens, k = "
        f"{np.mean(judged.planted):.1f} of which decide. The rule is followed in {judged.followed:.1%} of the texts; "
        f"others are left out, as are {len(rows) - len(complete)} that a method fails on.",
        "",
        *markdown(["method", "precision@k", "mean rank", "depth"], cells),
    ]


def plausible(methods: Sequence[Method], options: argparse.Namespace, deadline: Deadline) -> list[str]:
    """What people marked, and whether scores rank it high."""
    lines = [
        "## Plausibility",
        "",
        "Agreement with people, who may have other reasons than the model: not faithfulness.",
    ]
    for name in options.sets.split(","):
        title, column, reader = SETS[name]
        file, model = Path(options.rationales) / f"{name}-test.parquet", Path(options.classifiers) / reader
        if missing := [path.name for path in (file, model) if not path.exists()]:
            lines += ["", f"{title}: left out, since there is no {' and no '.join(missing)}."]
            continue
        marked = read_marked(file, column, options.texts, options.seed)
        sentences = read_sentences(file)
        explainer = load(model, options)
        table = agreement(explainer, marked, methods, options.kept, options.batch_size, sentences, deadline)
        lines += ["", f"### {title}", "", *trained_on(model), *table]
    return lines


def trained_on(folder: Path) -> list[str]:
    """What train_classifier.py says of the classifier; nothing if another script made it."""
    record_file = folder / "training.json"
    if not record_file.exists():
        return []
    record = json.loads(record_file.read_text())
    count = record["texts"]
    return [
        f"Classifier: {record['base']}, {record['settings']['epochs']} epochs on {count['train']} texts of "
        f"{record['train']}, accuracy {record['accuracy']['test']:.3f} on {count['test']} texts of {record['test']}, "
        f"seed {record['settings']['seed']}.",
        "",
    ]


def load(model: Any, options: argparse.Namespace) -> Explainer:
    """The explainer of a folder; None is the embedded model."""
    return Explainer(model, device=options.device, dtype=torch.float32)


def read_texts(path: str, column: str, count: int, seed: int) -> list[str]:
    """Different texts of a file, drawn by `seed`."""
    source_texts = (text for text, _, _ in open_data(path, text_column=column).read())
    different = list(dict.fromkeys(text.strip() for text in source_texts if text and text.strip()))
    order = np.random.default_rng(seed).permutation(len(different))[:count]
    return [different[k] for k in order]


def methods_of(names: str | None) -> tuple[list[Method], list[str]]:
    """The methods of these names (None: all that can run here), the control among them, and those that cannot run."""
    if names:
        return [find_method(name) for name in dict.fromkeys([*names.split(","), CONTROL])], []
    methods, missing = [], []
    for name in METHODS:
        try:
            methods.append(find_method(name))
        except MissingExtraError:
            missing.append(name)
    return methods, missing


def parts_of(options: argparse.Namespace) -> list[str]:
    """The parts that are asked for, or those that there are the means for."""
    needs = {"planted": ["planted"], "rationales": ["rationales", "classifiers"]}
    lacking = {part: [f"--{n}" for n in needs.get(part, ["data"]) if not getattr(options, n)] for part in PARTS}
    parts = options.parts.split(",") if options.parts else [part for part in PARTS if not lacking[part]]
    wrong = [f"no part {part!r}; there are {', '.join(PARTS)}" for part in parts if part not in PARTS]
    wrong += [f"{part} needs {' and '.join(lacking[part])}" for part in parts if lacking.get(part)]
    if wrong or not parts:
        raise SystemExit("; ".join(wrong) or "nothing to do: give --data, --planted, or --rationales and --classifiers")
    return parts


def main(given: list[str] | None = None) -> None:
    """Compute what is missing, then write the report."""
    options = arguments(given)
    deadline = Deadline(options.seconds)
    torch.set_num_threads(options.threads)
    parts, (methods, missing) = parts_of(options), methods_of(options.methods)
    settings = provenance(texts=options.texts, batch=options.batch_size, seed=options.seed)
    lines = ["# Is it an explanation of this model, and of this output?", "", "See benchmarks/sanity.py.", "", settings]
    if missing:
        lines += [f"Not installed here, hence left out: {', '.join(missing)}.", ""]
    if set(parts) & {"logit", "weights", "stability", "tokens"}:
        texts = read_texts(options.data, options.column, options.texts, options.seed)
        subject = Subject.of(load(options.model, options), texts, options.kept, options.batch_size)
        name = Path(options.model).name if options.model else "embedded"
        lines += [
            f"Model {name}, {len(subject.texts)} texts of {Path(options.data).name}, where no other is named.",
            "",
        ]
        for part, work in (("logit", random_logit), ("weights", random_weights)):
            lines += [*work(subject, methods, options.seed), ""] if part in parts else []
        lines += [*stability(subject.first(options.few), methods), ""] if "stability" in parts else []
        lines += [*special_tokens(subject, methods), ""] if "tokens" in parts else []
    lines += [*planted(Path(options.planted), methods, options), ""] if "planted" in parts else []
    lines += [*plausible(methods, options, deadline), ""] if "rationales" in parts else []
    print("\n".join(lines))
    print("written to", write(options.output, "\n".join(lines)).name)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="Parquet file of texts")
    parser.add_argument("--column", default="text")
    parser.add_argument("--model", help="folder of a text classifier; the embedded one if left out")
    parser.add_argument("--planted", help="folder that benchmarks/planted.py wrote")
    parser.add_argument("--rationales", help="folder of texts with human rationales")
    parser.add_argument("--classifiers", help="folder of the classifiers that read them")
    parser.add_argument("--methods", help="names, by comma; all that can run if left out")
    parser.add_argument("--parts", help=f"by comma, of {', '.join(PARTS)}")
    parser.add_argument("--texts", type=int, default=100, help="most texts of each data set")
    parser.add_argument("--few", type=int, default=32, help="texts of the part stability")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", default=str(KEPT), help="folder of what is done")
    parser.add_argument("--output", default="sanity.md", help="name of the file in results/, or a path")
    parser.add_argument("--sets", default=",".join(SETS), help="of the part rationales, by comma")
    add_option(parser)
    options = parser.parse_args(given)
    unknown = [name for name in options.sets.split(",") if name not in SETS]
    if unknown:
        parser.error(f"no texts with rationales are called {', '.join(unknown)}; there are {', '.join(SETS)}")
    return options


if __name__ == "__main__":
    main()
