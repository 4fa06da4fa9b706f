"""Who may ask: pages of other sites and strangers may not."""

import pytest
from starlette.websockets import WebSocketDisconnect

from tests.support.servers import check_problem, client_of

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def client():
    with client_of() as client:
        yield client


@pytest.fixture(scope="module")
def guarded():
    with client_of(host="0.0.0.0", token=TOKEN) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8000", "192.168.0.7", "", "[::1", "a@127.0.0.1 "]
)
def test_a_name_that_is_not_this_servers_is_refused(client, host):
    response = client.get("/api/v1/health", headers={"Host": host})
    assert response.status_code == 403
    check_problem(response)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "127.0.0.1", "[::1]:8000"])
def test_this_machine_has_several_names(client, host):
    assert client.get("/api/v1/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_pages_of_other_sites_are_refused(client, headers):
    for method, path in (("POST", "explain"), ("GET", "models"), ("DELETE", "work/x")):
        response = client.request(method, f"/api/v1/{path}", headers=headers, json={"text": "a"})
        assert response.status_code == 403
        check_problem(response)


def test_the_servers_own_page_may_ask(client):
    headers = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/v1/health", "/api/v1/explain", "/api/v1/work/x/events"])
@pytest.mark.parametrize("headers", [{}, {"Origin": "http://127.0.0.1:8000"}, {"Origin": "http://evil.example"}])
def test_web_sockets_are_refused(client, path, headers):
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect(path, headers=headers):
        pass
    assert refused.value.code == 1008


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""])
def test_forms_are_refused(client, kind):
    response = client.post("/api/v1/explain", content=b'{"text": "a"}', headers={"content-type": kind})
    assert response.status_code == 415
    check_problem(response)


def test_without_the_token_only_health_answers(guarded):
    assert guarded.get("/api/v1/health").status_code == 200
    for header in ("", TOKEN, f"Basic {TOKEN}", "Bearer ", f"Bearer {TOKEN}x", "Bearer \xe9"):
        response = guarded.get("/api/v1/models", headers={"Authorization": header.encode("latin-1")})
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        check_problem(response)
    for scheme in ("Bearer", "bearer"):
        assert guarded.get("/api/v1/models", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200


def test_a_server_with_a_token_may_have_any_name(guarded):
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "explain.example:8000"}
    assert guarded.get("/api/v1/models", headers=headers).status_code == 200
    headers["Origin"] = "http://evil.example"
    assert guarded.get("/api/v1/models", headers=headers).status_code == 403


def test_bodies_are_bounded_whether_they_say_how_long_they_are_or_not():
    with client_of(limits={"body_bytes": 1000}) as client:
        json = {"content-type": "application/json"}
        measured = client.post("/api/v1/solve", content=b" " * 1001, headers=json)
        streamed = client.post("/api/v1/solve", content=iter([b" " * 600, b" " * 600]), headers=json)
        for response in (measured, streamed):
            assert response.status_code == 413
            check_problem(response)


def test_every_answer_has_the_safety_headers(client):
    for response in (client.get("/api/v1/health"), client.get("/nothing"), client.get("/", headers={"Host": "x"})):
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in response.headers


def test_the_page_and_its_files_need_no_token_and_no_other_files_are_served(guarded):
    index = guarded.get("/")
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    for name in ("style.css", "explorer.js", "api.js", "elements.js", "flow.js"):
        response = guarded.get(f"/static/{name}")
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] in ("text/css", "text/javascript")
    for name in ("nothing.js", "index.html", "..%2fapi.py", "%2e%2e%2fapi.py", "__init__.py"):
        assert guarded.get(f"/static/{name}").status_code == 404
    for written in ("<script>", "onclick", "style=", "://"):
        assert written not in index.text
