"""Servers in this process, and requests of them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.testclient import TestClient

from gaflow.web import Limits, ServerSettings, create_app
from gaflow.web.explorer import Explorer

ADDRESS = "http://127.0.0.1:8000"


@contextmanager
def client_of(**settings: Any) -> Iterator[TestClient]:
    """A client of a server with these settings; `limits` is a dict."""
    limits = Limits(**settings.pop("limits", {}))
    with TestClient(create_app(ServerSettings(**settings, limits=limits)), base_url=ADDRESS) as client:
        yield client


def explorer_of(client: TestClient) -> Explorer:
    """The state of the server behind a client."""
    return client.app.state.explorer  # type: ignore[attr-defined]


def post(client: TestClient, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    """The JSON answer of a POST, which must have this status."""
    response = client.post(f"/api/v1/{path}", json=body, headers=headers)
    assert response.status_code == status, response.text
    if status >= 400:
        check_problem(response)
    return response.json()


def check_problem(response: Any) -> None:
    """An error is problem+json, and shows nothing of the inside."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    assert "Traceback" not in response.text
    assert ".py" not in response.text


@contextmanager
def running(**settings: Any) -> Iterator[str]:
    """A server on a free port of this machine, in a thread of its own; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    config = uvicorn.Config(create_app(ServerSettings(**settings)), log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
