"""Requests of strangers, and forged files behind the server: answers or problems, never an error of the server."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from gaflow.jobs.schema import shard_bytes
from tests.hostile.test_escaping import is_harmless
from tests.support.hostile import (
    INJECTIONS,
    attribution_files,
    changed_file,
    deep_json,
    json_values,
    shard_rows,
    write_job,
)
from tests.support.servers import check_problem, client_of, explorer_of, post

pytestmark = pytest.mark.slow

TEXT = "a good film"
HEADERS = ("Host", "Origin", "Authorization", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Content-Type", "Prefer", "Accept")
NETWORK_BODIES: dict[str, dict[str, Any]] = {
    "solve": {
        "cut_edges": [[0, 1, 1]], "cut_nodes": [[1, 1]], "skip_layers": [1], "widen": [[0, 1, 2, 2.0]],
        "sources": [0, 1], "targets": [1, 2], "groups": [[1, 2]], "epsilon": 1e-3, "barrier": "uniform", "edges": 9,
    },
    "cut": {"against": False, "nearest": "output"},
    "routes": {"against": False, "k": 3},
    "ranges": {"against": False, "layer": 0},
}  # fmt: skip
TEXT_BODIES: dict[str, dict[str, Any]] = {
    "explain": {"text": TEXT, "text_pair": None, "model": None, "truncation": False, "windows": False, "target": 1,
                "edges": 9, "method": "agf"},
    "compare": {"text": TEXT, "truncation": False, "windows": False, "target": 1, "edges": 9, "methods": ["agf"]},
    "predictions": {"text": TEXT, "truncation": False, "windows": False, "count": 2},
    "mask": {"levels": [50], "replacement": "pad"},
}  # fmt: skip
CAPACITIES: dict[str, Any] = {"capacities": [[[0.5, 0.25], [1.0, 0.0]]] * 3}
numbers = st.one_of(
    st.sampled_from([0, -1, 3, 2**63, 10**400, 1e308, 5e-324, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-9, 99),
)
values = st.one_of(
    json_values,
    numbers,
    st.lists(numbers, max_size=3),
    st.lists(st.lists(numbers, max_size=4), max_size=3),
    st.lists(st.lists(st.lists(numbers, max_size=3), max_size=3), max_size=3),
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of() as client:
        yield client


@cache
def explain_once(client: TestClient) -> str:
    return post(client, "explain", {"text": TEXT, "method": "agf"})["id"]


def check_answer(response: Any) -> None:
    """An answer of JSON that every browser reads, or a problem that the client can act on."""
    assert response.status_code < 500, response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    if response.status_code >= 400:
        check_problem(response)
        assert is_harmless(response.json()["detail"])
    elif response.content:
        json.loads(response.content, parse_constant=pytest.fail)  # no NaN


def send(client: TestClient, path: str, body: Any) -> Any:
    content = json.dumps(body)
    return client.post(f"/api/v1/{path}", content=content, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("path", [*NETWORK_BODIES, *TEXT_BODIES, "capacities"])
@given(choices=st.data())
def test_any_body_gets_an_answer_or_a_problem(client, path, choices):
    body = dict(NETWORK_BODIES.get(path) or TEXT_BODIES.get(path) or NETWORK_BODIES["solve"] | CAPACITIES)
    if path in NETWORK_BODIES or path == "mask":
        body["id"] = explain_once(client)
    names = choices.draw(st.lists(st.sampled_from(sorted(body)), min_size=1, max_size=2, unique=True))
    for name in names:
        body[name] = choices.draw(values)
    check_answer(send(client, "solve" if path == "capacities" else path, body))


@given(content=st.one_of(st.binary(max_size=40), json_values.map(json.dumps).map(str.encode), st.just(deep_json())))
def test_any_bytes_get_a_problem(client, content):
    response = client.post("/api/v1/explain", content=content, headers={"Content-Type": "application/json"})
    check_answer(response)


header_values = st.one_of(
    st.sampled_from(
        ["http://[", "[", "null", "//", "http://127.0.0.1:8000", "127.0.0.1:8000", "é", "Bearer \xe9", "9" * 5000]
    ),
    st.sampled_from(INJECTIONS).map(lambda text: re.sub(r"[^\x20-\x7e]", "é", text)),
    st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=9),
)


@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), header_values, min_size=1, max_size=3), path=st.text(max_size=9)
)
def test_any_header_and_path_get_an_answer_or_a_problem(client, headers, path):
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    safe_path = re.sub(r"[^a-z0-9%/]", "%2e", path)
    for url in (
        "/api/v1/models",
        f"/api/v1/work/{safe_path}",
        f"/static/{safe_path}",
        f"/api/v1/runs/{safe_path}/rows",
    ):
        check_answer(client.get(url, headers=encoded))
    check_answer(client.post("/api/v1/solve", content=b"{}", headers={"Content-Type": "application/json", **encoded}))


@contextmanager
def behind(client: TestClient, name: str, content: bytes) -> Iterator[Path]:
    """A file or a run that the server was started with, for a moment, under the name "forged"."""
    folder = Path(tempfile.mkdtemp())
    try:
        if name in ("manifest.json", "part.parquet"):
            write_job(folder, content if name == "part.parquet" else None)
            path = folder
        else:
            path = folder / name
        if name != "part.parquet":
            (folder / name).write_bytes(content)
        explorer_of(client).runs = {"forged": path}
        yield path
    finally:
        shutil.rmtree(folder)


@given(st.data())
def test_a_forged_file_behind_the_server_can_be_changed_or_is_a_problem(client, data):
    name = data.draw(st.sampled_from(sorted(attribution_files())))
    with behind(client, name, changed_file(data.draw, name, attribution_files()[name])):
        check_answer(client.get("/api/v1/runs"))
        check_answer(client.get("/api/v1/runs/forged/rows"))
        opened = client.post("/api/v1/runs/forged/open", headers={"Content-Type": "application/json"})
        check_answer(opened)
    if opened.status_code >= 400:
        return
    key = opened.json()["id"]
    for path, body in NETWORK_BODIES.items():
        check_answer(send(client, path, {"id": key, **body}))
    check_answer(send(client, "mask", {"id": key}))
    check_answer(client.delete(f"/api/v1/results/{key}"))


@given(st.data())
def test_a_forged_run_behind_the_server_has_rows_or_is_a_problem(client, data):
    if data.draw(st.booleans()):
        name = "part.parquet"
        content = shard_bytes(shard_rows())
    else:
        name = "manifest.json"
        content = manifest_bytes()
    with behind(client, name, changed_file(data.draw, name, content)):
        check_answer(client.get("/api/v1/runs"))
        for query in ("", "?method=agf&wrong=true", "?offset=1&count=1"):
            check_answer(client.get(f"/api/v1/runs/forged/rows{query}"))


@cache
def manifest_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return (write_job(Path(folder)) / "manifest.json").read_bytes()
