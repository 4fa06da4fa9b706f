import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from gaflow.data import open_data
from gaflow.errors import DataError, MissingExtraError


def rows(source, **options):
    return list(open_data(source, **options).read())


class Hub:
    """What the library `datasets` gives, as far as it is used."""

    column_names = ("text", "other", "label")
    features: ClassVar = {"label": SimpleNamespace(names=["neg", "pos"])}

    def select_columns(self, names):
        return [{name: f"{name} {k}" for name in names} for k in range(2)]


def test_lists_hold_texts_pairs_or_rows():
    assert rows(["a", ("b", "c"), None]) == [("a", None, None), ("b", "c", None), (None, None, None)]
    records = [{"body": "a", "y": 1, "z": "b"}]
    assert rows(records, text_column="body", label_column="y", pair_column="z") == [("a", "b", 1)]
    with pytest.raises(DataError, match="no column 'text'"):
        rows(records)


def test_a_function_gives_a_new_iterator_every_time_and_an_iterator_is_refused():
    data = open_data(lambda: iter(["a", "b"]))
    assert list(data.read()) == list(data.read()) == [("a", None, None), ("b", None, None)]
    with pytest.raises(TypeError, match="only once"):
        open_data(iter(["a"]))


def test_a_data_set_stays_what_it_is():
    data = open_data(["a"], text_column="x")
    assert open_data(data) is data


@pytest.mark.parametrize(
    "path", ["no.csv", "data/no.csv", "no.txt", "data/no.JSON", "no.tsv.gz", "./no", "a/b/no", "/no/such", Path("no")]
)
def test_what_can_only_be_a_path_is_not_looked_up_on_the_hub(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="no such file"):
        open_data(path)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"no file 'org/name'.*gaflow\[hub\]"):
        open_data("org/name")
    with pytest.raises(MissingExtraError, match=r"no file 'org/name-v1\.1'"):  # a dot alone is no file's ending
        open_data("org/name-v1.1")


def test_a_hub_id_is_loaded_with_its_split_and_brings_its_label_names(monkeypatch):
    calls = []

    def load(*args, **named):
        calls.append((args, named))
        return Hub()

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    data = open_data("org/name", label_column="label", split="validation", subset="sst2", revision="v1")
    assert calls == [(("org/name", "sst2"), {"split": "validation", "revision": "v1"})]
    assert list(data.read()) == [("text 0", None, "label 0"), ("text 1", None, "label 1")]
    assert data.class_names == ("neg", "pos")
    assert data.name == "org/name/sst2/validation"
    with pytest.raises(DataError, match="no column 'txt'"):
        open_data("org/name", text_column="txt")


def test_what_the_hub_does_not_have_is_refused_in_one_line(monkeypatch):
    def load(*args, **named):
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(DataError, match=r"no file 'org/name'.*no route$"):
        open_data("org/name")


def test_a_data_set_of_the_library_itself_is_read_again_and_again():
    import datasets

    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "other": datasets.Value("int64"),
            "label": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    table = datasets.Dataset.from_dict({"text": ["x", None, "z"], "other": [1, 2, 3], "label": [1, 0, -1]}, features)
    data = open_data(table, label_column="label")
    assert list(data.read()) == list(data.read()) == [("x", None, 1), (None, None, 0), ("z", None, -1)]
    assert data.class_names == ("a", "b")
