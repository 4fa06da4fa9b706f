"""Errors as `application/problem+json` (RFC 9457): a status, what is wrong, and what to do. Never a traceback.

| status | meaning |
|---|---|
| 401, 403 | no token; a page of another site asks |
| 404 | no such model, run or result; results are dropped when the server needs their memory |
| 413 | the text or the request is too long |
| 422 | an argument has a wrong value; `argument` names it |
| 429 | the server is busy; `Retry-After` says when to try again |
| 501 | an optional library is missing |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from gaflow.errors import GaflowError, MissingExtraError, TooLargeError, visible

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2


class HttpProblem(HTTPException):
    """An error that a client can act on; what it repeats of a request is displayed, never obeyed."""

    def __init__(self, status: int, detail: str, argument: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(status, visible(detail), headers)
        self.argument = argument

    def content(self) -> dict[str, Any]:
        """The JSON document."""
        content: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
        }
        if self.argument is not None:
            content["argument"] = self.argument
        return content

    def response(self) -> JSONResponse:
        """The answer to a request."""
        return JSONResponse(self.content(), self.status_code, self.headers, media_type=MEDIA_TYPE)


def problem_of(error: BaseException) -> HttpProblem:
    """The problem that an error is; an unexpected one says only that it happened."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, TooLargeError):
        return HttpProblem(413, str(error), error.argument)
    if isinstance(error, MissingExtraError):
        return HttpProblem(501, str(error), error.argument)
    if isinstance(error, HTTPException):  # of the framework: no such path, a wrong method
        return HttpProblem(error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, GaflowError):
        return HttpProblem(422, str(error), error.argument)
    return HttpProblem(500, f"an unexpected {type(error).__name__}; please report it with the request")


def invalid_body(errors: Sequence[Any]) -> HttpProblem:
    """The problem of a request that does not follow the schema; it names the first argument that is wrong."""
    first = errors[0]
    path = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    name = ".".join(path)
    message = first["msg"]
    detail = f"{name}: {message}" if name else str(message)
    argument = path[0] if path else None
    return HttpProblem(422, detail, argument)


def busy(name: str) -> HttpProblem:
    """Too many requests wait."""
    return HttpProblem(
        429, f"too many requests wait for {name}; try again in a moment", headers={"Retry-After": str(RETRY_SECONDS)}
    )
