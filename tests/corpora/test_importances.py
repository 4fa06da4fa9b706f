from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gaflow
from gaflow.corpora import corpus_page, shortcuts
from gaflow.corpora.ngrams import SNIPPET, find_ngrams
from gaflow.errors import ArgumentError, DataError
from gaflow.jobs import attribute
from gaflow.jobs.stored import Stored
from tests.support.models import bert


def write(path, texts):
    """Texts of words between single spaces, given as (class, {word: score} or [(word, score)], true class)."""
    rows = []
    for number, (label, scores, gold) in enumerate(texts):
        words = list(scores.items()) if isinstance(scores, dict) else scores
        text = " ".join(word for word, _ in words)
        offsets = []
        for word, _ in words:
            start = offsets[-1][1] + 1 if offsets else 0
            offsets.append([start, start + len(word)])
        row = {"row": number, "text": text, "method": "agf", "tokens": [word for word, _ in words], "offsets": offsets}
        row |= {"segments": [0] * len(words), "scores": [score for _, score in words], "label": label}
        rows.append(row | {"gold_label": gold})
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


TEXTS = [
    ("good", {"a": 0.0, "superb": 3.0, "film": 1.0}, "good"),
    ("good", [("superb", 1.0), ("superb", 2.0), ("dull", -1.0)], "good"),
    ("good", {"a": 1.0, "film": 1.0}, "bad"),
    ("bad", {"dull": 2.0, "film": 2.0}, "bad"),
]


def row(table, label, words):
    (record,) = table[(table["class"] == label) & (table["words"] == words)].to_dict("records")
    return record


def test_numbers_by_hand(tmp_path):
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", TEXTS), minimum=1)
    superb = row(table, "good", "superb")
    # shares 3/4 in one text, 1/4 and 2/4 in another
    assert (superb["texts"], superb["count"]) == (2, 3)
    assert superb["share"] == pytest.approx((3 / 4 + 3 / 4) / 3)
    # of 8 words of the class 3 are it; of the shares above 0, 3/4 + 3/4 of 1 + 3/4 + 1
    assert superb["frequency"] == pytest.approx(3 / 8)
    assert superb["push"] == pytest.approx(1.5 / 2.75)
    assert superb["lift"] == pytest.approx(1.5 / 2.75 / (3 / 8))
    assert superb["gold_rate"] == 1.0
    assert row(table, "good", "film")["gold_rate"] == 0.5
    dull = row(table, "good", "dull")
    assert dull["share"] == pytest.approx(-1 / 4)
    assert dull["push"] == 0
    assert np.isnan(dull["low"])  # one text
    assert row(table, "bad", "dull")["share"] == pytest.approx(1 / 2)
    assert table.attrs == {"method": "agf", "texts": 4, "left_out": 0, "provenance": {}}
    assert table[table["class"] == "good"]["push"].sum() == pytest.approx(1)
    assert table[table["class"] == "good"]["frequency"].sum() == pytest.approx(1)


def test_ngrams_are_neighbours_and_have_the_sum_of_their_words(tmp_path):
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", TEXTS), minimum=1, length=2)
    pair = row(table, "good", "superb film")
    assert (pair["length"], pair["count"]) == (2, 1)
    assert pair["share"] == pytest.approx(1)
    assert not (table["words"] == "a film superb").any()
    lengths = table[table["class"] == "good"].groupby("length")["frequency"].sum()
    assert lengths.tolist() == pytest.approx([1, 1])


def test_rare_words_are_left_out_by_the_number_of_texts(tmp_path):
    file = write(tmp_path / "a.parquet", TEXTS)
    assert set(gaflow.corpus(file, minimum=2)["words"]) == {"superb", "a", "film"}
    full = row(gaflow.corpus(file, minimum=1), "good", "superb")
    assert row(gaflow.corpus(file, minimum=2), "good", "superb") == full  # sums over all words stay


def test_case_is_folded_unless_you_say_otherwise(tmp_path):
    file = write(tmp_path / "a.parquet", [("x", {"Good": 1.0}, None), ("x", {"good": 3.0}, None)])
    assert gaflow.corpus(file, minimum=1)["words"].tolist() == ["good"]
    assert set(gaflow.corpus(file, minimum=1, fold_case=False)["words"]) == {"Good", "good"}


def test_examples_are_the_strongest_occurrences_of_different_texts(tmp_path):
    texts = [("x", {"dog": float(k), "film": 1.0}, None) for k in range(6)]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", texts), minimum=1, examples=2)
    examples = row(table, "x", "dog")["examples"]
    assert [example.row for example in examples] == [5, 4]
    assert [example.share for example in examples] == pytest.approx([5 / 6, 4 / 5])
    assert str(examples[0]) == "dog film"
    assert row(gaflow.corpus(tmp_path / "a.parquet", examples=0, minimum=1), "x", "dog")["examples"] == ()


def test_snippets_are_short(tmp_path):
    words = [*[(f"word{k}", 0.0) for k in range(50)], ("dog", 1.0), *[(f"word{k}", 0.0) for k in range(50)]]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", [("x", words, None)]), minimum=1)
    (example,) = row(table, "x", "dog")["examples"]
    assert (len(example.before), example.match, len(example.after)) == (SNIPPET + 1, "dog", SNIPPET + 1)


def test_several_files_give_what_one_gives(tmp_path):
    one = gaflow.corpus(write(tmp_path / "one" / "a.parquet", TEXTS), minimum=1)
    write(tmp_path / "two" / "a.parquet", TEXTS[:1])
    write(tmp_path / "two" / "b.parquet", TEXTS[1:])
    two = gaflow.corpus(tmp_path / "two", minimum=1)
    assert one.drop(columns="examples").equals(two.drop(columns="examples"))


def test_special_tokens_count_nowhere_and_the_pair_does():
    stored = Stored(
        text="a dog",
        text_pair="dog",
        method="agf",
        scores=np.array([9.0, 1.0, 2.0, 9.0, 1.0]),
        tokens=("[CLS]", "a", "dog", "[SEP]", "dog"),
        offsets=((0, 0), (0, 1), (2, 5), (0, 0), (0, 3)),
        segments=(-1, 0, 0, -1, 1),
    )
    shares = [(ngram.name, ngram.segment, ngram.share) for ngram in find_ngrams(stored, 2, True)]
    assert shares == [("a", 0, 0.25), ("dog", 0, 0.5), ("a dog", 0, 0.75), ("dog", 1, 0.25)]


def test_texts_whose_scores_are_all_zero_are_left_out_and_counted(tmp_path):
    texts = [("x", {"dog": 1.0}, None), ("x", {"film": 0.0}, None)]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", texts), minimum=1)
    assert table["words"].tolist() == ["dog"]
    assert table.attrs["left_out"] == 1


def test_a_stored_run_is_read_by_method(tmp_path):
    explainer = gaflow.Explainer(*bert())
    attribute(explainer, ["a good film", "a bad film", "good dog"], tmp_path / "run", ["agf", "attcat"], shard_size=2)
    with pytest.raises(ArgumentError, match="method"):
        gaflow.corpus(tmp_path / "run")
    table: Any = gaflow.corpus(tmp_path / "run", method="attcat", minimum=1)
    assert table.attrs["method"] == "attcat"
    provenance = explainer("a good film", "attcat").provenance
    assert table.attrs["provenance"] == provenance
    assert provenance["weights"] in corpus_page(table)
    expected = {}
    for text in ("a good film", "a bad film", "good dog"):
        att = explainer(text, "attcat")
        total = sum(abs(word.score) for word in att.words())
        for word in att.words():
            expected.setdefault((att.label, word.text), []).append(word.score / total)
    assert len(table) == len(expected)
    for (label, word), shares in expected.items():
        assert row(table, label, word)["share"] == pytest.approx(np.mean(shares), rel=1e-3)  # float32
    with pytest.raises(DataError, match="lime"):
        gaflow.corpus(tmp_path / "run", method="lime")


@pytest.mark.parametrize("options", [{"length": 0}, {"minimum": 0}, {"examples": -1}, {"confidence": 1.0}], ids=str)
def test_settings_that_mean_nothing_are_refused(tmp_path, options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        gaflow.corpus(write(tmp_path / "a.parquet", TEXTS), **options)


def planted(tmp_path):
    """A model that looks at the name "spielberg", which says nothing about the true class."""
    generator = np.random.default_rng(0)
    texts = []
    for k in range(200):
        fillers = [f"word{j}" for j in generator.integers(0, 20, 8)]
        words = [(word, float(generator.normal(0.5, 0.3))) for word in fillers]
        if k % 10 == 0:
            words.insert(3, ("spielberg", float(generator.normal(8, 1))))
        texts.append(("good", words, "good" if k % 20 else "bad"))
    return write(tmp_path / "planted.parquet", texts)


def test_a_word_that_pushes_more_than_it_appears_is_a_plausible_shortcut(tmp_path):
    table: Any = gaflow.corpus(planted(tmp_path))
    suspects: Any = shortcuts(table)
    assert suspects["words"].tolist() == ["spielberg"]
    assert (suspects["lift_low"] >= 3).all()
    assert suspects["gold_rate"].tolist() == [0.5]
    assert shortcuts(table, lift=100.0).empty
    with pytest.raises(ArgumentError, match="lift"):
        shortcuts(table, lift=0.0)


def test_the_page_escapes_words_classes_and_texts_and_has_examples(tmp_path):
    evil = "<script>alert(1)</script>"
    texts = [(f"good {evil}", {evil: 1.0, "film": 0.5}, None), (f"good {evil}", {evil: 2.0, "film": -0.5}, None)]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", texts), minimum=1)
    page = corpus_page(table, tmp_path / "words.html")
    assert (tmp_path / "words.html").read_text(encoding="utf-8") == page
    assert "<script" not in page
    assert page.count("<details>") >= len(table)
    assert page.count("<mark>") >= len(table)
    assert "row 1" in page


def test_the_page_has_words_against_a_class_apart(tmp_path):
    texts = [("good", {"superb": 3.0, "dull": -1.0}, None), ("good", {"superb": 2.0, "dull": -1.5}, None)]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", texts), minimum=1)
    page = corpus_page(table)
    pro, _, against = page.partition("Against this class")
    for part, word, other in ((pro, "superb", "dull"), (against, "dull", "superb")):
        assert f"<b><bdi>{word}</bdi>" in part
        assert f"<b><bdi>{other}</bdi>" not in part


def test_intervals_stay_within_the_shares_that_are_possible(tmp_path):
    texts = [("x", {"dog": 1.0}, None), ("x", {"dog": 1.0, "film": -2.0}, None)]
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", texts), minimum=2)
    dog = row(table, "x", "dog")
    assert dog["share"] == pytest.approx(2 / 3)
    assert (dog["low"], dog["high"]) == (-1.0, 1.0)  # of two texts
    single = row(gaflow.corpus(tmp_path / "a.parquet", minimum=1), "x", "film")
    assert np.isnan(single["low"])


def test_a_page_of_no_words_is_a_page(tmp_path):
    table: Any = gaflow.corpus(write(tmp_path / "a.parquet", TEXTS), minimum=100)
    assert table.empty
    assert "<h1>" in corpus_page(table)
