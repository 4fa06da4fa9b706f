"""What every request must pass before anything reads it: host, origin, token and size.

A server on loopback can be reached by every page that a person on this machine opens. Three checks keep them out:

* `Host` must be this server's. A page whose own name resolves to 127.0.0.1 (DNS rebinding) has another host.
* `Origin` and `Sec-Fetch-Site`, which browsers set, must be this server's, and requests that change something must be
  JSON, which no form of another page can send.
* With a token, the API answers only requests that carry `Authorization: Bearer TOKEN`.

No answer allows other origins (CORS), none is cached, and pages may load nothing from elsewhere.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gaflow.web.problems import HttpProblem
from gaflow.web.server_settings import ServerSettings, is_loopback

API = "/api/"
OPEN_PATHS = ("/api/v1/health",)  # without a token
_OWN_SITE = ("same-origin", "none")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFETY_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware that refuses what is not for this server."""

    def __init__(self, app: ASGIApp, settings: ServerSettings):
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then hand it on; WebSockets are refused."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFETY_HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_origin(scope, headers)
            self._check_token(scope, headers)
            self._check_body(scope, headers)
        except HttpProblem as problem:
            await problem.response()(scope, receive, send_safely)
            return
        await self.app(scope, _Bounded(receive, self.settings.limits.body_bytes), send_safely)

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        name = _host_name(host)
        expected = is_loopback(name) or name == self.settings.host.strip("[]").lower()
        if not expected and (self.settings.token is None or is_loopback(self.settings.host)):
            raise HttpProblem(403, f"this server is not called {host!r}; use the address that it printed at start")
        origin = headers.get("origin")
        if origin is not None and _address_of(origin) != host.lower():
            raise HttpProblem(403, f"pages of {origin!r} may not use this server")
        site = headers.get("sec-fetch-site", "none")
        opens_page = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in _OWN_SITE and not (opens_page and not scope["path"].startswith(API)):
            raise HttpProblem(403, f"a {site} request; open this server's own page")

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        token = self.settings.token
        path = scope["path"]
        if token is None or not path.startswith(API) or path in OPEN_PATHS:
            return
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(credentials.strip().encode(), token.encode())
        if scheme.lower() != "bearer" or not same:
            problem_headers: Mapping[str, str] = {"WWW-Authenticate": "Bearer"}
            raise HttpProblem(401, "send the token: Authorization: Bearer TOKEN", "token", problem_headers)

    def _check_body(self, scope: Scope, headers: Headers) -> None:
        if scope["method"] != "POST":
            return
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HttpProblem(415, "send JSON: Content-Type: application/json")
        length = headers.get("content-length", "0")
        limit = self.settings.limits.body_bytes
        if not length.isdecimal() or int(length) > limit:
            raise _too_large(limit)


class _Bounded:
    """Receives a body that may not say how long it is, up to a limit."""

    def __init__(self, receive: Receive, limit: int):
        self.receive = receive
        self.limit = limit
        self.received = 0

    async def __call__(self) -> Message:
        message = await self.receive()
        self.received += len(message.get("body", b""))
        if self.received > self.limit:
            raise _too_large(self.limit)
        return message


def _too_large(limit: int) -> HttpProblem:
    return HttpProblem(413, f"the request is longer than {limit:,} bytes; send less")


def _address_of(origin: str) -> str | None:
    """Host and port in an Origin header; None if it has none, as `null`."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:  # half an IPv6 address
        return None


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
