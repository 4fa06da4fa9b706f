"""Other tools read the stored files without gaflow, and find in them what gaflow finds."""

from collections import defaultdict
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pytest
from datasets import load_dataset

import gaflow
from gaflow.jobs import attribute, read_attributions
from tests.support.models import bert

LISTS = ["tokens", "scores", "special_mask"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of three files; the second text is too long and has an error instead of scores."""
    path = tmp_path_factory.mktemp("run") / "why"
    texts = ["a smart dog", "dog " * 600, "the dog is cute", "not a smart film", "a bad film"]
    done = attribute(gaflow.Explainer(*bert()), texts, path, ["attcat"], shard_size=2)
    assert (done.errors, len(list(path.glob("*.parquet")))) == (1, 3)
    return path


@pytest.fixture(scope="module")
def expected(folder) -> dict[str, float]:
    """The mean score of every ordinary token."""
    scores = defaultdict(list)
    for stored in read_attributions(folder):
        if stored.error is None:
            att = stored.attribution()
            for token, score, special in zip(att.tokens, att.scores, att.special_mask, strict=True):
                if not special:
                    scores[token].append(score)
    return {token: sum(values) / len(values) for token, values in scores.items()}


def with_duckdb(folder, _):
    query = f"""
        SELECT token, avg(score) FROM (
            SELECT unnest(tokens) AS token, unnest(scores) AS score, unnest(special_mask) AS special
            FROM '{folder}/*.parquet' WHERE error IS NULL
        ) WHERE NOT special GROUP BY token"""
    with duckdb.connect() as connection:
        rows = connection.execute(query).fetchall()
    return dict(rows)


def with_polars(folder, _):
    rows = pl.scan_parquet(f"{folder}/*.parquet").filter(pl.col("error").is_null()).select(LISTS)
    tokens = rows.explode(LISTS).filter(~pl.col("special_mask"))
    return dict(tokens.group_by("tokens").agg(pl.col("scores").mean()).collect().rows())


def with_pandas(folder, _):
    frame = pd.concat(pd.read_parquet(file) for file in sorted(folder.glob("*.parquet")))
    return mean_scores(frame)


def with_datasets(folder, cache):
    stored = load_dataset("parquet", data_files=f"{folder}/*.parquet", split="train", cache_dir=str(cache))
    return mean_scores(stored.to_pandas())


def mean_scores(frame):
    tokens = frame[frame["error"].isna()].explode(LISTS)
    ordinary = tokens[~tokens["special_mask"].astype(bool)].astype({"scores": float})
    return ordinary.groupby("tokens")["scores"].mean().to_dict()


@pytest.mark.parametrize("read", [with_duckdb, with_polars, with_pandas, with_datasets])
def test_other_tools_find_the_same_scores(read, folder, expected, tmp_path):
    assert len(expected) > 5
    assert read(folder, tmp_path) == pytest.approx(expected)
