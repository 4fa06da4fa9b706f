"""The application: the API, its guard, errors as problems, and the files of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from gaflow.arguments import checked
from gaflow.errors import GaflowError
from gaflow.web import page_files
from gaflow.web.answers import ProblemJson
from gaflow.web.api import router
from gaflow.web.explorer import Explorer
from gaflow.web.guard import Guard
from gaflow.web.problems import invalid_body, problem_of
from gaflow.web.server_settings import ServerSettings

_DESCRIPTION = """Explain predictions of Transformer models by attention flow, and change the network of a flow.

Errors are `application/problem+json`. Nothing is sent to other machines."""


@checked
def create_app(settings: ServerSettings | None = None) -> FastAPI:
    """The ASGI application of a server; `gaflow serve` runs it with uvicorn.

    app = create_app(ServerSettings(models=["org/name"], folders=[Path("run")]))
    """
    explorer = Explorer(settings or ServerSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        explorer.close()

    app = FastAPI(
        title="gaflow",
        version="1",
        description=_DESCRIPTION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.explorer = explorer
    app.openapi = partial(_describe, app)
    app.include_router(router)
    app.include_router(page_files.router)
    app.add_exception_handler(GaflowError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(Exception, _answer_error)
    app.add_middleware(Guard, settings=explorer.settings)
    return app


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with what FastAPI does not know: problems and the token."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document["components"]
        components["schemas"]["ProblemJson"] = ProblemJson.model_json_schema()
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{}, {"token": []}]  # only a server that was started with a token needs it
        app.openapi_schema = document
    return app.openapi_schema


async def _answer_error(request: Request, error: Exception) -> Response:
    return problem_of(error).response()


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return invalid_body(error.errors()).response()
