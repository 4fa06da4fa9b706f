"""Write the corpus that the demo model is trained on: one Parquet row per text, as words joined by spaces.

    python benchmarks/demo_corpus.py --data DIR --teacher DIR --out corpus.parquet

The first DIR holds `sst2-{train,dev,test}.parquet` and `{imdb,yelp_polarity,amazon_polarity}-train.parquet`
(columns `text` and `label`, 0 negative, 1 positive). The words are those BERT's tokenizer splits into pieces:
lower-cased, punctuation apart. Kinds of row: `phrase` (SST-2 train), `review`, `held-out` (1 % of the
reviews, for choosing settings), `dev` (SST-2 dev, likewise) and `made` (negated and contrasted sentences, no
gold label: -1). SST-2 test is read for one purpose: phrases that equal one of its sentences are left out.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from tokenizers import Tokenizer

REVIEWS = ("imdb-train", "yelp_polarity-train", "amazon_polarity-train")
COPULAS = frozenset({"is", "was", "are", "were", "be", "seems", "looks", "feels"})
ENDS = frozenset(".!?")

Words = list[str]


def split_words(tokenizer: Tokenizer, text: str) -> Words:
    """The words of a text, as the tokenizer sees them before it cuts them into pieces."""
    clean = tokenizer.normalizer.normalize_str(text.replace("<br />", " "))
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(clean)]


def sentence_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    """Cut after every run of `.`, `!` or `?`; pieces of fewer than three words are dropped."""
    last = len(words) - 1
    ends = [i + 1 for i, word in enumerate(words) if word in ENDS and (i == last or words[i + 1] not in ENDS)]
    cuts = sorted({0, *ends, len(words)})
    return [(a, b) for a, b in itertools.pairwise(cuts) if b - a >= 3]


def negate(words: Words) -> Words | None:
    """The sentence with its first "not" taken out, or one put in after its first copula."""
    if "not" in words:
        at = words.index("not")
        return words[:at] + words[at + 1 :]
    for at, word in enumerate(words[:-1]):
        if word in COPULAS:
            return [*words[: at + 1], "not", *words[at + 1 :]]
    return None


def contrast(first: Words, second: Words, concessive: bool) -> Words:
    """ "although A, B." or "A, but B.": the second clause decides, and the teacher says how far."""
    return ["although", *first, ",", *second, "."] if concessive else [*first, ",", "but", *second, "."]


def made_texts(rng: np.random.Generator, sentences: list[Words], negations: int, contrasts: int) -> list[Words]:
    """Negated sentences and contrasted pairs of clauses, for the teacher to label."""
    negated = [words for words in map(negate, sentences) if words and 3 <= len(words) <= 30]
    order = rng.permutation(len(negated))[:negations]
    clauses = [words[:-1] for words in sentences if 4 <= len(words) <= 12 and words[-1] == "."]
    clauses = [words for words in clauses if COPULAS.intersection(words)]
    pairs = rng.integers(len(clauses), size=(contrasts, 2))
    forms = rng.random(contrasts) < 0.5
    return [negated[i] for i in order] + [
        contrast(clauses[a], clauses[b], bool(form)) for (a, b), form in zip(pairs, forms, strict=True)
    ]


def build(
    data: Path, tokenizer: Tokenizer, *, limit: int | None, negations: int, contrasts: int, seed: int
) -> pd.DataFrame:
    """The corpus; `limit` takes the first rows of every file only."""

    def read(name: str) -> list[tuple[Words, int]]:
        table = pd.read_parquet(data / f"{name}.parquet")[:limit]
        return [(split_words(tokenizer, t), int(y)) for t, y in zip(table["text"], table["label"], strict=True)]

    rng = np.random.default_rng(seed)
    dev, test = read("sst2-dev"), read("sst2-test")
    unseen = {tuple(words) for words, _ in dev + test}
    phrases = [(words, label) for words, label in read("sst2-train") if tuple(words) not in unseen]
    reviews = [row for name in REVIEWS for row in read(name)]
    reviews = [reviews[i] for i in rng.permutation(len(reviews))]
    heldout, reviews = reviews[: len(reviews) // 100], reviews[len(reviews) // 100 :]
    sentences = [words for words, _ in phrases]
    sentences += [
        words[a:b] for words, _ in reviews for a, b in sentence_spans(words) if tuple(words[a:b]) not in unseen
    ]
    synthetic = [(words, -1) for words in made_texts(rng, sentences, negations, contrasts)]
    kinds = {"dev": dev, "held-out": heldout, "phrase": phrases, "review": reviews, "made": synthetic}
    rows = [(" ".join(words), label, kind) for kind, texts in kinds.items() for words, label in texts]
    return pd.DataFrame(rows, columns=["words", "label", "kind"])


def main() -> None:
    """Read the arguments and write the corpus."""
    parser = argparse.ArgumentParser(description="Write the corpus that the demo model is trained on.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the Parquet files")
    parser.add_argument(
        "--teacher", type=Path, required=True, help="folder of the teacher: its tokenizer.json splits words"
    )
    parser.add_argument("--out", type=Path, required=True, help="Parquet file to write")
    parser.add_argument("--limit", type=int, help="rows to read of each file (default: all)")
    parser.add_argument("--negations", type=int, default=100_000)
    parser.add_argument("--contrasts", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.teacher / "tokenizer.json"))
    table = build(
        options.data,
        tokenizer,
        limit=options.limit,
        negations=options.negations,
        contrasts=options.contrasts,
        seed=options.seed,
    )
    table.to_parquet(options.out, compression="zstd", compression_level=19, index=False)
    print(table.groupby("kind")["words"].agg(texts="count", words=lambda s: int(s.str.count(" ").sum()) + len(s)))


if __name__ == "__main__":
    main()
