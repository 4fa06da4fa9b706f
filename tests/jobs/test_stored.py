import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gaflow
from gaflow.errors import DataError, GaflowError
from gaflow.jobs import attribute, read_attributions
from tests.support.models import SENTENCE, bert, roberta

STORED = Path(__file__).parents[1] / "data" / "stored_runs"
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
TEXTS = [SENTENCE, ("a good film", "bad"), "Café NAÏVE, don't stop!"]


def foreign(path, **columns):
    table = {
        "text": ["a good film"],
        "method": ["shap"],
        "tokens": [["a", "good", "film"]],
        "scores": [[0.5, -1.0, 2.0]],
    }
    table |= columns
    pq.write_table(pa.table({k: v for k, v in table.items() if v is not None}), path)
    return path


@pytest.mark.parametrize("make", [bert, roberta])
def test_what_is_stored_comes_back_as_it_was(tmp_path, make):
    explainer = gaflow.Explainer(*make())
    attribute(explainer, TEXTS, tmp_path / "job", ["agf", "random"], batch_size=1, shard_size=2)
    attributions: list[Any] = list(read_attributions(tmp_path / "job"))
    assert len(attributions) == 6
    for stored in attributions:
        text = stored.text if stored.text_pair is None else (stored.text, stored.text_pair)
        expected: Any = explainer(text, stored.method)
        att: Any = stored.attribution()
        for name in ("text", "text_pair", "tokens", "offsets", "segments", "method", "target", "label", "prediction"):
            assert getattr(att, name) == getattr(expected, name), name
        assert np.array_equal(att.scores, expected.scores)
        assert (att.output, att.probability, att.truncated) == (expected.output, expected.probability, False)
        assert np.array_equal(stored.special_mask, expected.special_mask)
        assert att.diagnostics == expected.diagnostics
        assert stored.logits is not None
        assert stored.logits[att.target] == pytest.approx(att.output)
        assert (att.certificate is None) == (stored.method == "random")
        if att.certificate is not None:
            assert att.certificate.converged
            assert att.certificate.gap == expected.certificate.gap
        assert att.provenance == expected.provenance
        assert att.provenance["weights"] is not None


def test_a_contrast_comes_back(tmp_path):
    explainer = gaflow.Explainer(*bert())
    attribute(explainer, ["a dog"], tmp_path / "job", ["rawatt"], target="positive minus negative")
    (stored,) = read_attributions(tmp_path / "job")
    assert stored.target == explainer("a dog", "rawatt", "positive minus negative").target
    assert stored.label == "positive minus negative"


def test_methods_are_chosen_by_name(tmp_path):
    attribute(gaflow.Explainer(*bert()), ["a dog", "b"], tmp_path / "job", ["rawatt", "random"])
    assert [s.method for s in read_attributions(tmp_path / "job", methods=["random"])] == ["random"] * 2
    with pytest.raises(TypeError, match=r"methods.*'random'"):
        read_attributions(tmp_path / "job", methods="random")


def test_a_file_from_elsewhere_needs_text_method_scores_and_tokens(tmp_path):
    (stored,) = read_attributions(foreign(tmp_path / "a.parquet"))
    assert stored.scores is not None
    assert stored.scores.tolist() == [0.5, -1.0, 2.0]
    assert stored.offsets == ((0, 1), (2, 6), (7, 11))
    assert (stored.row, stored.segments, stored.special_mask, stored.target, stored.gold) == (None,) * 5
    with pytest.raises(GaflowError, match="segments, target, label, output, prediction"):
        stored.attribution()


def test_offsets_do_in_place_of_tokens(tmp_path):
    path = foreign(tmp_path / "a.parquet", tokens=None, offsets=[[[0, 1], [2, 6], [7, 11]]])
    (stored,) = read_attributions(path)
    assert stored.tokens == ("a", "good", "film")


def test_special_tokens_of_other_libraries_belong_to_no_text(tmp_path):
    path = foreign(
        tmp_path / "a.parquet",
        tokens=[["[CLS]", "a", "good", "film"]],
        scores=pa.array([[9.0, 1.0, 2.0, 3.0]], pa.list_(pa.float32())),
        special_mask=[[True, False, False, False]],
        other=[1],
    )
    (stored,) = read_attributions(path)
    assert stored.segments == (-1, 0, 0, 0)
    assert stored.offsets == ((0, 0), (0, 1), (2, 6), (7, 11))


def test_a_folder_without_manifest_is_read_file_by_file(tmp_path):
    foreign(tmp_path / "b.parquet", method=["lime"])
    foreign(tmp_path / "a.parquet")
    attributions = list(read_attributions(tmp_path))
    assert [s.method for s in attributions] == ["shap", "lime"]
    assert attributions[0].text_hash == attributions[1].text_hash


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": None}, "no column 'text'"),
        ({"method": None}, "no column 'method'"),
        ({"tokens": None}, "neither 'tokens' nor 'offsets'"),
        ({"scores": [[0.5]]}, "row 0: 1 scores but 3 tokens"),
        ({"scores": [[0.5, float("nan"), 1.0]]}, "row 0: scores has numbers that are not finite"),
        ({"scores": [["a", "b", "c"]]}, "column 'scores' holds"),
        ({"text": [3]}, "column 'text' holds int64"),
        ({"offsets": [[[0, 1], [2, 6], [7, 12]]]}, r"offset \(7, 12\) lies outside"),
        ({"offsets": [[[0, 1], [2, 6]]]}, r"offsets must have the shape \(3, 2\)"),
        ({"segments": [[0, 0]]}, r"segments must have the shape \(3,\)"),
        ({"facts": ["{"]}, "row 0"),
    ],
)
def test_what_does_not_fit_together_is_an_error_that_says_where(tmp_path, columns, message):
    with pytest.raises(DataError, match=message) as caught:
        list(read_attributions(foreign(tmp_path / "a.parquet", **columns)))
    assert "a.parquet" in str(caught.value)


def test_rows_without_scores_say_why(tmp_path):
    scores = pa.array([None], pa.list_(pa.float64()))
    (stored,) = read_attributions(foreign(tmp_path / "a.parquet", scores=scores, error=["too long"]))
    assert (stored.scores, stored.error) == (None, "too long")
    with pytest.raises(GaflowError, match="too long"):
        stored.attribution()


def test_what_is_not_there_or_not_parquet_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_attributions(tmp_path / "nothing")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match="Parquet"):
        list(read_attributions(tmp_path / "a.parquet"))


def test_a_missing_shard_and_a_damaged_manifest_are_named(tmp_path):
    attribute(gaflow.Explainer(*bert()), ["a dog", "b"], tmp_path, ["rawatt"], shard_size=1)
    (tmp_path / "part-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"part-00001\.parquet'.*missing"):
        list(read_attributions(tmp_path))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for damage in ("{", "[]", json.dumps(manifest | {"format": 9}), json.dumps(manifest | {"shards": [{}]})):
        (tmp_path / "manifest.json").write_text(damage)
        with pytest.raises(DataError, match=r"manifest\.json"):
            list(read_attributions(tmp_path))


def test_a_manifest_cannot_point_out_of_its_folder(tmp_path):
    attribute(gaflow.Explainer(*bert()), ["a dog"], tmp_path / "job", ["rawatt"])
    path = tmp_path / "job" / "manifest.json"
    path.write_text(path.read_text().replace("part-00000.parquet", "part-/../../00000.parquet"))
    with pytest.raises(DataError, match="damaged"):
        list(read_attributions(tmp_path / "job"))


@pytest.mark.parametrize("name", EXPECTED)
def test_runs_of_earlier_versions_are_read(name):
    """Folders as versions of gaflow wrote them, from the first one on; reading compares files with their checksums."""
    attributions = list(read_attributions(STORED / name))
    assert len(attributions) == len(EXPECTED[name])
    for stored, expected in zip(attributions, EXPECTED[name], strict=True):
        for field in ("row", "method", "label", "gold_label", "error"):
            assert getattr(stored, field) == expected[field], field
        if stored.scores is None:
            assert expected["scores"] is None
            continue
        att = stored.attribution()
        assert list(att.tokens) == expected["tokens"]
        assert att.scores.tolist() == expected["scores"]
        assert att.provenance["model"] == "embedded"
        assert att.provenance["method"] == stored.method
        assert len(att.provenance["weights"]) == 64
    words: Any = gaflow.corpus(STORED / name, method="agf", minimum=1)
    assert set(words["words"]) == {"a", "superb", "film", "cast", "dull", "so", ","}
