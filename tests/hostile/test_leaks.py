"""Many explanations and requests in one process: memory, files, threads and hooks stay as few as they were."""

import gc
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from torch import nn

from gaflow import Explainer
from tests.support.models import bert
from tests.support.servers import client_of, explorer_of, post, running

pytestmark = pytest.mark.slow

EXPLANATIONS = 2000
TEXTS = ["a good film", "not a bad one at all", "the best", "it is very smart and not cute"]
METHODS = ["agf", "attcat", "ig"]
POOL = 40  # threads that the server's framework answers short requests in, at most
STATUS = Path("/proc/self/statm")
FILES = Path("/proc/self/fd")


def memory_bytes() -> int:
    """Memory that the process holds now."""
    gc.collect()
    pages = int(STATUS.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def count_hooks(model: nn.Module) -> int:
    hooks = 0
    for module in model.modules():
        hooks += len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
    return hooks


@contextmanager
def nothing_left(calls: int, model: nn.Module | None = None) -> Iterator[None]:
    """Checks that memory, files, threads and hooks are after so many calls what they were before."""
    memory = memory_bytes()
    files = len(os.listdir(FILES))
    hooks = 0 if model is None else count_hooks(model)
    threads = threading.active_count()
    objects = len(gc.get_objects())
    yield
    assert memory_bytes() - memory < 20e6  # one text's trace in each would be ten times that
    assert len(gc.get_objects()) - objects < calls / 2
    assert len(os.listdir(FILES)) == files
    assert threading.active_count() == threads
    if model is not None:
        assert count_hooks(model) == hooks


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_two_thousand_explanations_leave_nothing_behind():
    explainer = Explainer(*bert())

    def explain(count: int) -> None:
        for number in range(count):
            explainer(TEXTS[number % len(TEXTS)], METHODS[number % len(METHODS)])

    explain(EXPLANATIONS // 10)  # caches fill up
    with nothing_left(EXPLANATIONS, explainer.model):
        explain(EXPLANATIONS)


@pytest.mark.skipif(not STATUS.exists(), reason="memory is read from /proc")
def test_a_thousand_requests_of_a_server_leave_no_more_than_it_keeps():
    with client_of(limits={"kept_bytes": 1 << 20}) as client:
        explorer = explorer_of(client)

        def ask(count: int) -> None:
            for number in range(count):
                text = TEXTS[number % len(TEXTS)]
                asynchronous = {"Prefer": "respond-async"}
                key = post(client, "explain", {"text": text, "method": "agf", "edges": 9})["id"]
                post(client, "solve", {"id": key, "cut_nodes": [[1, 1]], "edges": 9})
                post(client, "cut", {"id": "nothing"}, 404)
                work = post(client, "predictions", {"text": text}, 202, **asynchronous)
                with client.stream("GET", f"/api/v1/work/{work['id']}/events") as stream:
                    assert "done" in list(stream.iter_lines())[-2]

        ask(50)  # as much as is kept, and finished work
        with nothing_left(1000):
            ask(200)
        assert explorer.kept.size <= 1 << 20


def go_away(address: str, path: str, number: int) -> None:
    """Ask for an explanation, and close the connection before the answer comes."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    body = json.dumps({"text": TEXTS[number % len(TEXTS)], "method": "lime"}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: number % len(body)])
        if number % 3:
            connection.sendall(body[number % len(body) :])


@pytest.mark.skipif(not FILES.exists(), reason="files are counted in /proc")
def test_clients_that_go_away_stop_their_work_and_leave_no_connection_open():
    with running() as address:
        with urlopen(f"{address}api/v1/models"):
            pass
        go_away(address, "/api/v1/explain", 1)  # loads the model
        wait_until(lambda: model_of(address)["loaded"])
        files = len(os.listdir(FILES))
        threads = threading.active_count()
        for number in range(100):
            go_away(address, "/api/v1/explain", number)
        wait_until(lambda: len(os.listdir(FILES)) <= files and model_of(address)["waiting"] == 0)
        assert threading.active_count() <= threads + POOL


def model_of(address: str) -> dict[str, Any]:
    with urlopen(f"{address}api/v1/models") as response:
        return json.load(response)["models"][0]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that the server does, however busy the machine is."""
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
