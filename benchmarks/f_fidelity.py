"""Does the ranking of methods hold where masked texts are nothing new to the model? (F-Fidelity, Zheng et al. 2025)

    python -m benchmarks.f_fidelity --base DIR --train FILE --test FILE --labels negative,positive --data-name sst2 \\
        --out build/f_fidelity --device cuda --output f_fidelity_sst2.md

Two classifiers are fine-tuned from `--base` by `train_classifier.py` with the same settings and seed: one on the texts
as they are ("plain"), and one whose training texts are masked at random, up to the share `--beta` of their tokens, by
[PAD], [MASK] or deletion ("masked"). `--plain DIR` and `--masked DIR` take classifiers that are there, instead of
training them. Then

- accuracies of both on test texts as they are, and with up to `--beta` of the tokens masked at random: how far masking
  is out of distribution for each
- AOPC of the methods on test texts, drawn by `--seed`: on both classifiers with at most `--beta` of a text masked at
  once (`max_share`, `--draws` random parts of what a level would mask), and on the plain one as usual
- how far the rankings agree

Everything is stored in OUT, and what is there is not computed again: after an interruption, or once `--seconds` are
over, run the same command again. Training is the only part that starts again from its beginning. A measurement that is
not done in time is left out of the tables, and named. With `--setups` processes share the measurements before one with
all of them writes the tables. A first run on the CPU, with all parts small: `--train-texts 600 --epochs 1 --texts 20
--draws 2 --methods attnlrp,agf`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

import gaflow
from benchmarks.asking import spearman
from benchmarks.deadline import Deadline, add_option, missing_lines
from benchmarks.ranked_table import METHODS, report
from benchmarks.report import provenance, standard_error, write
from benchmarks.train_classifier import Training, accuracy, encode, random_masking, read, train
from gaflow.benchmark import bench
from gaflow.data import open_data
from gaflow.evaluation import Evaluation
from gaflow.evaluation.ranking import CONTROL
from gaflow.files import write_atomically

REPLACEMENTS = ("pad", "mask", "delete")
COMPARED = (
    ("peeled_flow", "lime"),
    ("peeled_flow", "attnlrp"),
    ("relevance_flow", "attnlrp"),
    ("relevance_flow", "ig"),
)
By = dict[str, Evaluation]  # replacement -> evaluation
SETUPS = {  # classifier, and whether no more than `--beta` of a text is masked at once
    "plain-limited": ("plain", True),
    "plain": ("plain", False),
    "masked-limited": ("masked", True),
}


def classifiers(options: argparse.Namespace) -> dict[str, Path]:
    """Folders of the classifiers that the setups need, plain and masked, trained now if they are not there."""
    folders = {"plain": options.plain or options.out / "plain", "masked": options.masked or options.out / "masked"}
    needed = {classifier for classifier, _ in options.setups.values()}
    folders = {name: folder for name, folder in folders.items() if name in needed}
    settings = Training(
        epochs=options.epochs, max_length=options.max_length, texts=options.train_texts, seed=options.seed
    )
    for name, folder in folders.items():
        if getattr(options, name):
            continue
        own_settings = replace(settings, masking=options.beta if name == "masked" else 0.0)
        if (folder / "training.json").exists():
            refuse_other_training(folder, own_settings, options)
            continue
        files = (options.train, options.test)
        labels = options.labels.split(",")
        record = train(options.base, files, labels, folder, own_settings, options.device, options.column)
        print(f"{name}: accuracy {record['accuracy']['test']:.3f}, {record['seconds']:.0f} s", flush=True)
    return folders


def refuse_other_training(folder: Path, settings: Training, options: argparse.Namespace) -> None:
    """End with an error if the stored classifier was trained in another way."""
    record = json.loads((folder / "training.json").read_text())
    wanted = {"settings": asdict(settings), "base": Path(options.base).name, "train": Path(options.train).name}
    for key, value in wanted.items():
        if record[key] != value:
            raise SystemExit(f"{folder} was trained with {key} {record[key]}, not {value}; choose another --out")


def accuracies(explainer: gaflow.Explainer, options: argparse.Namespace) -> dict[str, float]:
    """On test texts as they are, and masked at random in each of the ways."""
    tokenizer = explainer.tokenizer
    texts, classes = read(options.test, options.column)
    data = encode(tokenizer, texts, classes, options.max_length)
    pad = int(tokenizer.pad_token_id)
    device = torch.device(options.device)
    with torch.no_grad():
        by_way = {"as they are": accuracy(explainer.model, data, pad, device)}
        for way in REPLACEMENTS:
            mask = random_masking(tokenizer, Training(seed=options.seed, masking=options.beta, masked_by=way))
            by_way[way] = accuracy(explainer.model, mask(data), pad, device)
    return by_way


def evaluations(
    explainer: gaflow.Explainer,
    folder: Path,
    max_share: float | None,
    options: argparse.Namespace,
    deadline: Deadline | None = None,
) -> By | None:
    """AOPC of all methods on the test texts, continued where it ended; None if the time is over before it is done."""
    deadline = deadline or Deadline()
    (outcome,) = bench(
        explainer,
        {options.data_name: open_data(options.test, text_column=options.column, label_column="label")},
        folder,
        methods=options.methods.split(","),
        replacements=REPLACEMENTS,
        sample=options.texts,
        seed=options.seed,
        truncation=True,
        max_share=max_share,
        draws=options.draws,
        shard_size=options.shard_size,
        batch_size=options.batch_size,
        progress=False,
        stop=lambda: deadline.is_over,
    )
    if not outcome.finished:
        return None
    print(f"{folder.name}: {outcome.texts} texts, left out {dict(outcome.left_out)}", flush=True)
    return {replacement: Evaluation.load(path) for replacement, path in outcome.evaluations.items()}


def differences(by_setup: dict[str, By]) -> list[str]:
    """Paired differences of the mean AOPC over the replacements, with standard errors, in every setup."""
    pairs = []
    for first, second in COMPARED:
        if all(first in by["pad"].methods and second in by["pad"].methods for by in by_setup.values()):
            pairs.append((first, second))
    if not pairs:
        return []
    titles = [f"`{first}` less `{second}`" for first, second in pairs]
    lines = ["| setup | " + " | ".join(titles) + " |", "|---" * (1 + len(pairs)) + "|"]
    for setup, by in by_setup.items():
        cells = [setup]
        for first, second in pairs:
            difference = _mean_aopc(by, first) - _mean_aopc(by, second)
            cells.append(f"{difference.mean():+.3f} ± {standard_error(difference):.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _mean_aopc(by: By, method: str) -> np.ndarray:
    """AOPC (n,) of the highest-scored tokens, mean over the replacements."""
    by_replacement = []
    for evaluation in by.values():
        by_replacement.append(evaluation.per_text("aopc", "top")[evaluation.methods.index(method)])
    return np.mean(by_replacement, axis=0)


def agreement(by_setup: dict[str, By]) -> str:
    """Rank correlation of the methods' AOPC between each two setups."""
    setups = list(by_setup)
    parts = []
    for number, first in enumerate(setups):
        for second in setups[number + 1 :]:
            methods = []
            for method in by_setup[first]["pad"].methods:
                if method != CONTROL and method in by_setup[second]["pad"].methods:
                    methods.append(method)
            if len(methods) < 3:
                continue
            first_means = np.array([_mean_aopc(by_setup[first], method).mean() for method in methods])
            second_means = np.array([_mean_aopc(by_setup[second], method).mean() for method in methods])
            correlation = spearman(first_means, second_means)
            parts.append(f"{first} and {second}: {correlation:.2f} ({len(methods)} methods)")
    return "; ".join(parts) or "too few methods"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, help="folder or hub id of the encoder")
    parser.add_argument("--train", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--column", default="text")
    parser.add_argument("--labels", required=True, help="names of the classes, by comma")
    parser.add_argument("--data-name", default="data")
    parser.add_argument("--plain", type=Path, help="classifier that was trained on texts as they are")
    parser.add_argument("--masked", type=Path, help="classifier that was trained with `--masking` of the same share")
    parser.add_argument("--beta", type=float, default=0.3, help="share of a text that is masked at most")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--texts", type=int, default=300, help="to explain")
    parser.add_argument("--train-texts", type=int, help="texts to train on; all if left out")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--epochs", type=int, default=Training.epochs)
    parser.add_argument("--max-length", type=int, default=Training.max_length)
    parser.add_argument("--shard-size", type=int, default=50, help="texts that an interruption costs at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--output", help="name of the file in results/, or a path; none: print only")
    parser.add_argument("--setups", nargs="+", choices=list(SETUPS), default=list(SETUPS), help="what is measured")
    parser.add_argument("--compute-only", action="store_true", help="store what is measured, and write no tables")
    parser.add_argument("--batch-size", type=int, default=16, help="of explaining")
    add_option(parser)
    options = parser.parse_args(arguments)
    options.setups = {name: SETUPS[name] for name in options.setups}
    if options.masked and (options.masked / "training.json").exists():
        share = json.loads((options.masked / "training.json").read_text())["settings"]["masking"]
        if share != options.beta:
            raise SystemExit(f"{options.masked} was trained with --masking {share}, not with --beta {options.beta}")
    if not 0 < options.beta < 1:
        raise SystemExit(f"--beta must be above 0 and below 1, not {options.beta}")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Train, explain, mask, and write the tables."""
    options = parse(arguments)
    deadline = Deadline(options.seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    tested: dict[str, dict[str, float]] = {}
    by_setup: dict[str, By] = {}
    failed: dict[str, str] = {}
    for name, folder in classifiers(options).items():
        if not (folder / "config.json").exists():
            failed[f"{name} classifier"] = f"there is none in {folder}"
            continue
        explainer = gaflow.Explainer(folder, device=options.device, dtype=torch.float32)
        stored = options.out / f"accuracy-{name}-{Path(options.test).stem}-{options.beta:g}.json"
        if not stored.exists():
            write_atomically(stored, json.dumps(accuracies(explainer, options)).encode())
        tested[name] = json.loads(stored.read_text())
        for setup, (classifier, is_limited) in options.setups.items():
            if classifier != name:
                continue
            title = (
                f"{name} classifier, at most {options.beta:.0%} masked"
                if is_limited
                else f"{name} classifier, all levels"
            )
            max_share = options.beta if is_limited else None
            by = evaluations(explainer, options.out / f"bench-{setup}", max_share, options, deadline)
            if by is None:
                deadline.left_out.append(title)
            else:
                by_setup[title] = by
    if options.compute_only:
        return
    if not by_setup:
        reasons = " ".join(missing_lines(deadline.left_out, failed))
        raise SystemExit(f"nothing was measured; run the same command again. {reasons}")
    lines = [*tables(tested, by_setup, options), *missing_lines(deadline.left_out, failed)]
    print("\n".join(lines))
    if options.output:
        print("written to", write(options.output, "\n".join(lines)).name)


def tables(tested: dict[str, dict[str, float]], by_setup: dict[str, By], options: argparse.Namespace) -> list[str]:
    """The whole result."""
    texts = len(next(iter(next(iter(by_setup.values())).values())).sizes)
    lines = [
        f"# F-Fidelity on {texts} texts of {Path(options.test).name}",
        "",
        provenance(
            base=Path(options.base).name,
            train=Path(options.train).name,
            epochs=options.epochs,
            beta=options.beta,
            draws=options.draws,
            texts=texts,
            seed=options.seed,
        ),
        f"Accuracy on all test texts, and with up to {options.beta:.0%} of the tokens of each masked at random:",
        "",
        "| classifier | " + " | ".join(next(iter(tested.values()))) + " |",
        "|---" * (1 + len(next(iter(tested.values())))) + "|",
    ]
    for name, by_way in tested.items():
        lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in by_way.values()) + " |")
    lines += ["", f"Rank correlation of the methods' AOPC: {agreement(by_setup)}.", ""]
    if differences(by_setup):
        lines += ["Paired differences of the AOPC, mean of the replacements, with standard errors:", ""]
    lines += differences(by_setup)
    for setup, by in by_setup.items():
        lines += [f"## {setup[0].upper()}{setup[1:]}", "", *report(by)]
    return lines


if __name__ == "__main__":
    main()
