import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import gaflow
from benchmarks import f_fidelity
from gaflow import Explainer
from tests.support.models import SIZE, wordpiece

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fidelity")
    texts = [f"this {word} film is very {end}" for word in ("good", "bad") for end in "abcdefghijklmnopqrst"]
    rows = pa.table({"text": texts, "label": [0] * 20 + [1] * 20})
    parquet.write_table(rows, folder / "train.parquet")
    parquet.write_table(rows.slice(15, 10), folder / "test.parquet")
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(vocab_size=len(wordpiece()), **SIZE)).save_pretrained(folder / "base")
    wordpiece().save_pretrained(folder / "base")
    return folder


def test_two_classifiers_are_trained_once_and_methods_ranked_on_both(files, tmp_path, capsys):
    arguments = ["--base", str(files / "base"), "--train", str(files / "train.parquet")]
    arguments += ["--test", str(files / "test.parquet"), "--labels", "good,bad", "--out", str(tmp_path / "out")]
    arguments += ["--epochs", "2", "--texts", "4", "--draws", "2", "--methods", "attnlrp,agf", "--device", "cpu"]
    output = tmp_path / "table.md"
    f_fidelity.main([*arguments, "--beta", "0.4", "--output", str(output)])
    first = output.read_text()
    weights = (tmp_path / "out" / "masked" / "model.safetensors").stat().st_mtime_ns
    f_fidelity.main([*arguments, "--beta", "0.4", "--output", str(output)])
    assert output.read_text() == first
    assert (tmp_path / "out" / "masked" / "model.safetensors").stat().st_mtime_ns == weights  # not trained again
    f_fidelity.main([*arguments, "--beta", "0.4", "--output", str(output), "--seconds", "0"])
    assert output.read_text() == first  # what is done is read, whatever the time
    assert "## Masked classifier, at most 40% masked" in first
    assert "## Plain classifier, all levels" in first
    assert "accuracy" in capsys.readouterr().out


def test_the_numbers_are_those_of_evaluate(files, tmp_path):
    arguments = ["--base", str(files / "base"), "--train", str(files / "train.parquet")]
    arguments += ["--test", str(files / "test.parquet"), "--labels", "good,bad", "--out", str(tmp_path)]
    arguments += ["--texts", "4", "--draws", "3", "--methods", "attnlrp", "--device", "cpu", "--seed", "1"]
    options = f_fidelity.parse(arguments)
    explainer = Explainer(files / "base", device="cpu")
    by = f_fidelity.evaluations(explainer, tmp_path / "bench", 0.3, options)
    assert by is not None
    assert set(by) == {"pad", "mask", "delete"}
    texts = [str(text) for text in parquet.read_table(files / "test.parquet")["text"].to_pylist()]
    again = gaflow.evaluate(
        explainer, texts, methods=["attnlrp"], replacement="mask", max_share=0.3, draws=3, seed=1, eraser=False
    )
    sizes = by["mask"].sizes
    assert len(sizes) == 4
    benchmarked = by["mask"].per_text("aopc")[by["mask"].methods.index("attnlrp")]
    of_all = again.per_text("aopc")[again.methods.index("attnlrp")]
    assert all(np.isclose(of_all, value, atol=1e-6).any() for value in benchmarked)


def test_measurements_are_shared_among_processes_and_missing_ones_named(files, tmp_path):
    arguments = ["--base", str(files / "base"), "--train", str(files / "train.parquet"), "--epochs", "1"]
    arguments += ["--test", str(files / "test.parquet"), "--labels", "good,bad", "--out", str(tmp_path / "out")]
    arguments += ["--texts", "3", "--draws", "2", "--methods", "attnlrp", "--device", "cpu"]
    output = tmp_path / "table.md"
    f_fidelity.main([*arguments, "--setups", "plain", "--compute-only", "--output", str(output)])
    assert not output.exists()
    assert not (tmp_path / "out" / "masked").exists()
    f_fidelity.main([*arguments, "--output", str(output), "--seconds", "0"])
    text = output.read_text()
    assert "## Plain classifier, all levels" in text
    assert "time was over: plain classifier, at most 30% masked, masked classifier, at most 30% masked" in text
    absent = ["--masked", str(tmp_path / "absent")]
    f_fidelity.main([*arguments, *absent, "--output", str(output), "--seconds", "0"])
    assert "`masked classifier` failed" in output.read_text()
    with pytest.raises(SystemExit, match="run the same command again"):
        f_fidelity.main([*arguments, *absent, "--setups", "masked-limited"])


def test_a_classifier_that_saw_another_share_masked_is_refused(tmp_path):
    (tmp_path / "training.json").write_text('{"settings": {"masking": 0.5}}')
    arguments = ["--base", "x", "--train", "x", "--test", "x", "--labels", "a,b", "--out", "x"]
    with pytest.raises(SystemExit, match=r"--masking 0\.5"):
        f_fidelity.parse([*arguments, "--masked", str(tmp_path)])


def test_a_share_that_masks_nothing_or_all_is_refused():
    arguments = ["--base", "x", "--train", "x", "--test", "x", "--labels", "a,b", "--out", "x"]
    with pytest.raises(SystemExit, match="--beta"):
        f_fidelity.parse([*arguments, "--beta", "1"])
