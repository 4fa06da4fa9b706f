"""The recipes for other tools run with the real libraries, where they are installed."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaflow

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what others warn of is theirs

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "exchange.md").read_text(encoding="utf-8")
TEXT = "a gripping film."


def recipe(title: str) -> str:
    section = PAGE.partition(f"\n## {title}\n")[2]
    return re.findall(r"```python\n(.*?)```", section, re.S)[0]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a recipe in an empty folder, without sending anything, and returns its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")

    def run_recipe(title: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "recipe"}
        exec(compile(recipe(title), title, "exec"), names)
        return names

    return run_recipe


def test_mlflow_keeps_page_values_and_words(run):
    mlflow = pytest.importorskip("mlflow")
    att = run("MLflow")["att"]
    stored = mlflow.last_active_run()
    assert stored.data.params["weights"] == att.provenance["weights"]
    artifacts = stored.info.artifact_uri
    assert mlflow.artifacts.load_text(f"{artifacts}/why.html") == att.to_html()
    assert mlflow.artifacts.load_dict(f"{artifacts}/why.json") == att.to_dict()
    words = mlflow.load_table("words.json", run_ids=[stored.info.run_id])
    assert words["text"].tolist() == [word.text for word in att.words()]


def test_weights_and_biases_stores_page_and_table(run, tmp_path):
    pytest.importorskip("wandb")
    run("Weights & Biases")
    files = [path.name for path in tmp_path.glob("wandb/offline-run-*/files/media/*/*")]
    assert sorted(name.partition("_")[0] for name in files) == ["why", "words"]


def test_streamlit_shows_another_text_when_it_is_typed(run):
    testing = pytest.importorskip("streamlit.testing.v1")
    app = testing.AppTest.from_string(recipe("Streamlit"), default_timeout=60).run()
    assert not app.exception
    assert app.markdown[0].value.startswith("positive")
    assert app.dataframe[0].value["text"].tolist() == ["a", "gripping", "film", "."]
    app.text_input[0].set_value("a dull film").run()
    assert not app.exception
    assert app.markdown[0].value.startswith("negative")


def test_gradio_takes_highlighted_texts(run):
    pytest.importorskip("gradio")
    names = run("Gradio")
    label, pieces = names["why"](TEXT)
    assert label == "positive"
    highlighted = names["demo"].output_components[1].postprocess(pieces).model_dump()
    assert [(piece["token"], piece["class_or_confidence"]) for piece in highlighted] == pieces


def test_inseq_shows_and_stores_the_scores(run):
    pytest.importorskip("inseq")
    names = run("Inseq")
    att = gaflow.explain(TEXT)
    assert "gripping" in names["page"]
    (sequence,) = names["loaded"].sequence_attributions
    assert [token.token for token in sequence.source] == list(att.tokens)
    assert sequence.source_attributions.flatten().numpy() == pytest.approx(att.scores, abs=1e-6)
    (aggregated,) = names["output"].aggregate(normalize=False).sequence_attributions
    assert aggregated.source_attributions[:, 0].numpy() == pytest.approx(att.scores, abs=1e-6)


def test_quantus_measures_what_removing_tokens_in_their_order_gives(run):
    pytest.importorskip("quantus")
    names = run("Quantus")
    model, padding = names["explainer"].model, names["explainer"].tokenizer.pad_token_id
    expected = []
    for ids, scores, label in zip(names["ids"], names["scores"], names["labels"], strict=True):
        changed = ids.clone()
        curve = []
        for position in np.argsort(-scores.numpy(), kind="stable"):
            changed[position] = padding
            curve.append(model(input_ids=changed[None]).logits.softmax(-1)[0, label].item())
        expected.append(curve)
    assert np.array(names["curves"]) == pytest.approx(np.array(expected), rel=1e-4)


def test_lists_have_the_form_of_lime():
    lime_text = pytest.importorskip("lime.lime_text")
    explainer = gaflow.Explainer()

    def probabilities(texts):
        batch = explainer.tokenizer(list(texts), return_tensors="pt", padding=True)
        return explainer.model(**batch).logits.softmax(-1).detach().numpy()

    lime = lime_text.LimeTextExplainer(class_names=["negative", "positive"], random_state=0)
    theirs = lime.explain_instance(TEXT, probabilities, num_samples=50).as_list()
    ours = explainer(TEXT).as_list()
    for values in (theirs, ours):
        assert all(isinstance(text, str) and isinstance(score, float) for text, score in values)
        sizes = [abs(score) for _, score in values]
        assert sizes == sorted(sizes, reverse=True)
    assert {text for text, _ in theirs} <= {text for text, _ in ours}
