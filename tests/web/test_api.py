"""The JSON API, against the same calls in Python."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

import gaflow
from gaflow.web.work import Work
from tests.support.networks import random_attention
from tests.support.servers import client_of, explorer_of, post

TEXT = "although this dog is not cute, it is very smart."


@pytest.fixture(scope="module")
def client():
    with client_of() as client:
        yield client


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


@pytest.fixture(scope="module")
def result(client):
    return post(client, "explain", {"text": TEXT, "edges": 500})


@pytest.fixture(scope="module")
def att(explainer):
    return explainer(TEXT)


def check_attribution(values: dict[str, Any], att: gaflow.Attribution) -> None:
    """The JSON follows the published schema, and has the numbers of Python."""
    jsonschema.validate(values, gaflow.schema("attribution"))
    assert values["tokens"] == list(att.tokens)
    assert values["method"] == att.method
    np.testing.assert_allclose(values["scores"], att.scores, rtol=1e-6, atol=1e-9)


def test_an_explanation_is_that_of_python(result, att):
    check_attribution(result["attribution"], att)
    assert result["drawing"]["names"] == ["peeled_flow, for", "peeled_flow, against"]


def test_a_target_and_a_method_can_be_named(client, explainer):
    for target, parsed in (("negative", "negative"), (0, 0), ([1, 0], (1, 0)), ("positive minus negative", (1, 0))):
        answer = post(client, "explain", {"text": TEXT, "method": "agf", "target": target})
        check_attribution(answer["attribution"], explainer(TEXT, "agf", parsed))


def test_a_comparison_has_a_result_for_each_method(client, explainer):
    methods = ["agf", "attcat", "rollout"]
    answer = post(client, "compare", {"text": TEXT, "methods": methods})
    assert list(answer["results"]) == methods
    for name, att in explainer.compare(TEXT, methods).items():
        check_attribution(answer["results"][name]["attribution"], att)


def test_predictions_are_those_of_python(client, explainer):
    predictions = post(client, "predictions", {"text": TEXT})["predictions"]
    outputs = explainer.predictions(TEXT)
    assert [row["label"] for row in predictions] == [output.label for output in outputs]
    np.testing.assert_allclose(
        [row["probability"] for row in predictions], [output.probability for output in outputs], rtol=1e-5
    )


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for something that another thread does, however busy the machine is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


EDITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"cut_edges": [[2, 0, 3], [0, 1, 1]]}, {"cut_edges": [(2, 0, 3), (0, 1, 1)]}),
    ({"cut_nodes": [[3, 11]]}, {"cut_nodes": [(3, 11)]}),
    ({"skip_layers": [1]}, {"skip_layers": [1]}),
    ({"widen": [[4, 0, 11, 2.5]]}, {"widen": {(4, 0, 11): 2.5}}),
    ({"sources": [0], "targets": [5, 6]}, {"sources": [0], "targets": [5, 6]}),
    ({"epsilon": 0.1}, {"epsilon": 0.1}),
    ({"groups": [[1, 2], [4, 5]]}, {"groups": [[1, 2], [4, 5]]}),
    ({"groups": "sentence"}, {"groups": "sentence"}),
]


@pytest.mark.parametrize(("request_edits", "edits"), EDITS, ids=[",".join(pair[1]) or "none" for pair in EDITS])
def test_a_changed_network_is_solved_as_in_python(client, result, att, request_edits, edits):
    answer = post(client, "solve", {"id": result["id"], **request_edits, "edges": 100})
    check_attribution(answer["attribution"], att.edit(**edits))
    assert answer["attribution"]["certificate"]["converged"]
    assert len(answer["drawing"]["methods"]) == 2


def test_a_changed_network_can_be_changed_again(client, result, att):
    words = post(client, "solve", {"id": result["id"], "groups": "word"})
    answer = post(client, "solve", {"id": words["id"], "cut_nodes": [[2, 3]]})
    check_attribution(answer["attribution"], att.edit(groups="word").edit(cut_nodes=[(2, 3)]))


def test_capacities_are_solved_without_any_text(client):
    information = random_attention(0, 3, 6)
    body = {"capacities": information.tolist(), "barrier": "capacity", "sources": [0], "epsilon": 0.01}
    answer = post(client, "solve", body)
    jsonschema.validate(answer["flow"], gaflow.schema("flow"))
    flow = gaflow.solve(information, barrier="capacity", sources=[0], epsilon=0.01, terminal="adjacent")
    torch.testing.assert_close(torch.tensor(answer["flow"]["target"]), flow.target[0].float(), rtol=1e-5, atol=1e-8)
    assert answer["certificate"]["converged"]


@pytest.mark.parametrize("against", [False, True])
def test_cuts_routes_and_ranges_are_those_of_python(client, result, att, against):
    flow = att.flow_against if against else att.flow
    network = {"id": result["id"], "against": against}
    cut = post(client, "cut", {**network, "nearest": "input"})
    expected = gaflow.min_cut(flow, nearest="input")
    assert cut["value"] == pytest.approx(expected.value, rel=1e-6)
    assert [(edge["layer"], edge["i"], edge["j"]) for edge in cut["edges"]] == [edge[:3] for edge in expected.edges]
    assert cut["bottleneck"] == expected.bottleneck
    routes = post(client, "routes", {**network, "k": 3})
    widest = gaflow.routes(flow, k=3)
    assert [tuple(route["tokens"]) for route in routes["routes"]] == [route.tokens for route in widest]
    assert sum(route["amount"] for route in routes["routes"]) + routes["rest"] == pytest.approx(routes["value"])
    ranges = post(client, "ranges", network)
    low, high = gaflow.score_ranges(flow)
    np.testing.assert_allclose(ranges["low"], low, atol=1e-9)
    np.testing.assert_allclose(ranges["high"], high, rtol=1e-5, atol=1e-9)


def test_masking_asks_the_model(client, explainer, result, att):
    answer = post(client, "mask", {"id": result["id"], "levels": [50, 10]})
    assert answer["levels"] == [10, 50]
    assert answer["unmasked"] == pytest.approx(att.probability, rel=1e-5)
    evaluation = gaflow.evaluate(
        explainer, [TEXT], methods=[], scores={"a": [att]}, order="top", levels=[10, 50], eraser=False
    )
    expected = dict(zip(evaluation.methods, np.exp(evaluation.masked[:, 0]), strict=True))
    np.testing.assert_allclose(answer["probability"], expected["a"], rtol=1e-4)
    np.testing.assert_allclose(answer["random"], expected["random"], rtol=1e-4)


def test_lists_say_what_the_server_has(client):
    (model,) = client.get("/api/v1/models").json()["models"]
    assert model["name"] == "built-in"
    assert model["labels"] == ["negative", "positive"]
    methods = client.get("/api/v1/methods").json()["methods"]
    assert [method["name"] for method in methods] == list(gaflow.METHODS)
    assert client.get("/api/v1/schema/attribution").json() == gaflow.schema("attribution")
    assert client.get("/api/v1/health").json()["status"] == "ok"
    assert client.get("/api/v1/runs").json() == {"runs": []}


def test_openapi_lists_every_path_and_its_problems(client):
    document = client.get("/api/v1/openapi.json").json()
    work = ["explain", "compare", "predictions", "mask"]
    network = ["solve", "cut", "routes", "ranges"]
    lists = ["models", "methods", "runs", "health"]
    assert {f"/api/v1/{name}" for name in [*work, *network, *lists]} <= set(document["paths"])
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["422"]["content"]


PROBLEMS: list[tuple[str, dict[str, Any], int, str]] = [
    ("explain", {"text": ""}, 422, "text"),
    ("explain", {"text": TEXT, "method": "agff"}, 422, "method"),
    ("explain", {"text": TEXT, "target": "happy"}, 422, "target"),
    ("explain", {"text": TEXT, "target": [0]}, 422, "target"),
    ("explain", {"text": TEXT, "model": "../secret"}, 404, "model"),
    ("explain", {"text": TEXT, "edges": -1}, 422, "edges"),
    ("explain", {"text": "word " * 600}, 422, "text"),
    ("explain", {"text": TEXT, "methd": "agf"}, 422, "methd"),
    ("explain", {}, 422, "text"),
    ("explain", {"text": "a\0b"}, 422, "text"),
    ("compare", {"text": TEXT, "methods": []}, 422, "methods"),
    ("compare", {"text": TEXT, "methods": ["agf", "nothing"]}, 422, "methods"),
    ("compare", {"text": TEXT, "methods": ["agf"] * 21}, 422, "methods"),
    ("solve", {}, 422, "id"),
    ("solve", {"id": "nothing"}, 404, "id"),
    ("solve", {"capacities": [[[1.0, 2.0]]]}, 422, "capacities"),
    ("solve", {"capacities": [[[1.0], [2.0, 3.0]]]}, 422, "capacities"),
    ("solve", {"capacities": [[[-1.0]]]}, 422, "capacities"),
    ("solve", {"capacities": [[[1e308]], [[1e308]]]}, 422, "capacities"),
    ("solve", {"capacities": [[[1.0]]], "widen": [[0, 0, 0, 1e308]]}, 422, "widen"),
    ("solve", {"capacities": []}, 422, "capacities"),
    ("solve", {"capacities": [[[1.0]]], "epsilon": 0}, 422, "epsilon"),
    ("solve", {"capacities": [[[1.0]]], "groups": "word"}, 422, "groups"),
    ("cut", {"id": "nothing"}, 404, "id"),
    ("mask", {"id": "nothing"}, 404, "id"),
]


@pytest.mark.parametrize(("path", "body", "status", "argument"), PROBLEMS)
def test_a_wrong_request_is_a_problem_that_names_the_argument(client, path, body, status, argument):
    assert post(client, path, body, status)["argument"] == argument


@pytest.mark.parametrize(
    ("edits", "argument"),
    [
        ({"cut_edges": [[99, 0, 0]]}, "cut_edges"),
        ({"cut_edges": [[0, 0]]}, "cut_edges"),
        ({"cut_nodes": [[0, 99]]}, "cut_nodes"),
        ({"skip_layers": [0, 1, 2, 3, 4]}, "skip_layers"),
        ({"widen": [[0, 0, 0, -1]]}, "widen"),
        ({"sources": [99]}, "sources"),
        ({"groups": [[0, 1]]}, "groups"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
    ],
)
def test_an_edit_that_cannot_be_is_a_problem_that_names_the_argument(client, result, edits, argument):
    assert post(client, "solve", {"id": result["id"], **edits}, 422)["argument"] == argument


def test_a_method_without_a_flow_has_no_network(client):
    answer = post(client, "explain", {"text": TEXT, "method": "attcat", "edges": 100})
    post(client, "solve", {"id": answer["id"]}, 422)
    post(client, "cut", {"id": answer["id"]}, 422)
    agf = post(client, "explain", {"text": TEXT, "method": "agf"})
    assert post(client, "routes", {"id": agf["id"], "against": True}, 422)["argument"] == "id"


def test_bodies_that_are_no_json_objects_are_problems(client):
    for content in (b"", b"{", b"[]", b'"text"', b'{"text": NaN}', b"\xff"):
        response = client.post("/api/v1/explain", content=content, headers={"content-type": "application/json"})
        assert response.status_code in (400, 422)
        assert response.headers["content-type"] == "application/problem+json"


def test_paths_and_methods_that_are_not_there_are_problems(client):
    for method, path, status in (("GET", "nothing", 404), ("GET", "explain", 405), ("DELETE", "results/x", 404)):
        response = client.request(method, f"/api/v1/{path}")
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"


def test_a_dropped_result_is_gone(client):
    answer = post(client, "explain", {"text": TEXT, "method": "af"})
    assert client.delete(f"/api/v1/results/{answer['id']}").status_code == 204
    post(client, "solve", {"id": answer["id"]}, 404)


def test_work_reports_its_progress_as_events(client):
    response = client.post("/api/v1/explain", json={"text": TEXT}, headers={"Prefer": "respond-async"})
    assert response.status_code == 202
    location = response.headers["location"]
    with client.stream("GET", f"{location}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in stream.iter_lines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    fractions = [event["progress"] for event in events]
    assert fractions == sorted(fractions)
    assert events[-1]["state"] == "done"
    assert events[-1]["answer"]["attribution"]["text"] == TEXT
    assert client.get(location).json() == events[-1]


def test_work_that_is_deleted_stops(client):
    """The model is held by other work until the request to stop has come."""
    explorer = explorer_of(client)
    gate = threading.Event()
    steps = []

    def hold(explainer: object, progress: Any) -> dict[str, Any]:
        gate.wait(300)
        progress(1, 2)
        steps.append("went on")
        return {}

    (queue,) = explorer.queues.values()
    running: Work = queue.submit(hold)
    explorer.work.add(running)
    waiting = client.post("/api/v1/explain", json={"text": TEXT}, headers={"Prefer": "respond-async"}).json()
    for key in (waiting["id"], running.key):
        assert client.delete(f"/api/v1/work/{key}").status_code == 204
    gate.set()
    running.finished.result(300)
    assert steps == []
    for key in (waiting["id"], running.key):
        status = client.get(f"/api/v1/work/{key}").json()
        assert status["state"] == "stopped"
        assert "answer" not in status
    assert client.get("/api/v1/work/nothing").status_code == 404


def test_a_full_queue_answers_when_to_try_again():
    with client_of(limits={"queue": 1}) as client:
        gate = threading.Event()

        def hold(explainer: object, progress: Any) -> dict[str, Any]:
            gate.wait(300)
            return {}

        (queue,) = explorer_of(client).queues.values()
        running = queue.submit(hold)
        wait_until(lambda: running.state != "waiting")
        queue.submit(hold)
        response = client.post("/api/v1/explain", json={"text": TEXT})
        gate.set()
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) > 0


def test_limits_of_tokens_methods_and_time_are_told():
    with client_of(limits={"tokens": 8, "methods": 1, "seconds": 1e-9}) as client:
        post(client, "explain", {"text": TEXT}, 422)  # out of time
        assert post(client, "compare", {"text": "a", "methods": ["agf", "af"]}, 422)["argument"] == "methods"
        post(client, "solve", {"capacities": np.ones((1, 2, 2)).tolist()}, 422)  # out of time
    with client_of(limits={"tokens": 8}) as client:
        post(client, "solve", {"capacities": np.ones((1, 9, 9)).tolist()}, 413)
        assert post(client, "explain", {"text": TEXT}, 413)["argument"] == "text"
        assert post(client, "predictions", {"text": TEXT}, 413)["argument"] == "text"


def test_a_model_that_is_idle_is_unloaded_and_loaded_again():
    with client_of(limits={"idle_seconds": 0.05}) as client:
        post(client, "predictions", {"text": TEXT})
        (queue,) = explorer_of(client).queues.values()
        wait_until(lambda: not queue.loaded)
        post(client, "predictions", {"text": TEXT})
