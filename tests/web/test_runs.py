"""Folders and files that a server was started with."""

import pytest

import gaflow
from gaflow.data import open_data
from gaflow.jobs import attribute
from tests.support.servers import client_of, post

TEXTS = ["a good film", "a bad film", "not a good film"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    explainer = gaflow.Explainer()
    source = folder / "texts.csv"
    rows = [f"{text},{label}" for text, label in zip(TEXTS, ["positive", "positive", "negative"], strict=True)]
    source.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    attribute(explainer, open_data(source, label_column="label"), folder / "run", ["agf", "attcat"])
    explainer(TEXTS[0], "agf").save(folder / "one.safetensors")
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "manifest.json").write_text("{}", encoding="utf-8")
    with client_of(folders=[folder / name for name in ("run", "one.safetensors", "empty", "broken")]) as client:
        yield client


def test_runs_are_listed_with_what_they_hold(client):
    runs = {run["name"]: run for run in client.get("/api/v1/runs").json()["runs"]}
    assert {name: run["kind"] for name, run in runs.items()} == {
        "run": "run",
        "one.safetensors": "attribution",
        "empty": "files",
        "broken": "unreadable",
    }
    assert runs["run"]["methods"] == ["agf", "attcat"]
    assert runs["run"]["texts"] == 3
    assert runs["run"]["finished"]


def test_rows_come_in_pages(client):
    pages = []
    for offset in (0, 2):
        path = f"/api/v1/runs/run/rows?method=agf&count=2&offset={offset}"
        pages.append(client.get(path).json())
    assert [page["more"] for page in pages] == [True, False]
    rows = [row for page in pages for row in page["rows"]]
    assert [row["text"] for row in rows] == TEXTS
    assert {row["method"] for row in rows} == {"agf"}
    assert all(len(row["scores"]) == len(row["tokens"]) for row in rows)


def test_wrong_predictions_can_be_singled_out(client):
    rows = client.get("/api/v1/runs/run/rows?method=agf").json()["rows"]
    wrong = [row["text"] for row in rows if row["prediction"] != row["gold_label"]]
    assert "a bad film" in wrong
    filtered = client.get("/api/v1/runs/run/rows?method=agf&wrong=true").json()["rows"]
    assert [row["text"] for row in filtered] == wrong


def test_a_saved_attribution_is_opened_and_its_network_changed(client):
    answer = post(client, "runs/one.safetensors/open", {})
    assert answer["attribution"]["text"] == TEXTS[0]
    edited = post(client, "solve", {"id": answer["id"], "cut_edges": [[0, 1, 1]]})
    assert edited["attribution"]["certificate"]["converged"]
    assert post(client, "mask", {"id": answer["id"]}, 422)["argument"] == "id"


@pytest.mark.parametrize("name", ["nothing", "..", "%2e%2e", "..%2frun", "/etc"])
def test_only_runs_that_were_named_can_be_read(client, name):
    assert client.get(f"/api/v1/runs/{name}/rows").status_code == 404


def test_rows_of_files_and_files_of_folders_are_refused(client):
    assert client.get("/api/v1/runs/one.safetensors/rows").status_code == 422
    post(client, "runs/run/open", {}, 422)
    assert client.get("/api/v1/runs/empty/rows").status_code == 422
    assert client.get("/api/v1/runs/broken/rows").status_code == 422
    assert client.get("/api/v1/runs/run/rows?count=0").status_code == 422
