"""The JSON API: each function reads a request, lets the explorer work, and answers.

Work on a model or a network answers when it is done. With the header `Prefer: respond-async` it answers at once with
its id; then `/work/{id}` tells how far it is, `/work/{id}/events` sends it as server-sent events, and DELETE stops it.
Work also stops if the client goes away while it waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib import metadata
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from gaflow.attribution.attribution import load
from gaflow.methods import METHODS
from gaflow.methods.description import describe
from gaflow.schemas.published import schema
from gaflow.web import answers
from gaflow.web.bodies import (
    CompareBody,
    CutBody,
    DifferenceBody,
    DrawingBody,
    ExplainBody,
    ExportBody,
    HeadsBody,
    MaskBody,
    PredictionsBody,
    RangesBody,
    RemoveBody,
    RoutesBody,
    SolveBody,
)
from gaflow.web.explorer import Explorer
from gaflow.web.exports import MEDIA_TYPES
from gaflow.web.problems import MEDIA_TYPE, HttpProblem
from gaflow.web.runs import Filters, attribution_of_row, describe_run, rows_of, words_of
from gaflow.web.work import FINISHED, Answer, Work

SECONDS_BETWEEN_EVENTS = 0.1
SECONDS_BETWEEN_CHECKS = 0.25  # whether a client is still there

_PROBLEM: dict[str, Any] = {
    "description": "What is wrong, and what to do",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemJson"}}},
}
_STATUSES = (400, 401, 403, 404, 409, 413, 415, 422, 429, 501)
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": answers.WorkStatus,
        "description": "The work waits or runs; only with `Prefer: respond-async`",
        "headers": {
            "Location": {"description": "of its status", "schema": {"type": "string"}},
            "Preference-Applied": {"schema": {"type": "string"}},
        },
    }
}


def _answers(model: Any, *, accepted: bool = False) -> dict[str, Any]:
    """What a path says of its answers; they are sent as they are."""
    responses: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    if accepted:
        responses |= _ACCEPTED
    return {"response_model": None, "responses": responses}


_EVENT = {"type": "object", "properties": {"data": {"type": "string", "contentMediaType": "application/json"}}}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events whose data is the status as JSON, one for every change",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}
_FILES: dict[str, Any] = {name: {"schema": {"type": "string", "format": "binary"}} for name in MEDIA_TYPES}
_FILES["application/json"] = {"schema": {"type": "object"}}
_EXPORTED: dict[int | str, dict[str, Any]] = {200: {"description": "The file", "content": _FILES}}

router = APIRouter(prefix="/api/v1", responses=dict.fromkeys(_STATUSES, _PROBLEM))


def explorer_of(request: Request) -> Explorer:
    """The state of the server that a request reached."""
    return request.app.state.explorer


State = Annotated[Explorer, Depends(explorer_of)]
Prefer = Annotated[str, Header(description="respond-async: answer at once with the id of the work")]


@router.post("/explain", **_answers(answers.Result, accepted=True))
async def explain(body: ExplainBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Explain a text by one method. The attribution follows `/schema/attribution`."""
    return await _respond(explorer, explorer.explain(body), request, prefer)


@router.post("/compare", **_answers(answers.Results, accepted=True))
async def compare(body: CompareBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Explain a text by several methods, from one trace of the model."""
    return await _respond(explorer, explorer.compare(body), request, prefer)


@router.post("/predictions", **_answers(answers.Predictions, accepted=True))
async def predictions(body: PredictionsBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """List the outputs that can be explained, the most probable first."""
    return await _respond(explorer, explorer.predictions(body), request, prefer)


@router.post("/mask", **_answers(answers.MaskingCurve, accepted=True))
async def mask(body: MaskBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Mask the tokens with the largest scores, and ask the model: how faithful is this explanation?"""
    return await _respond(explorer, explorer.mask(body), request, prefer)


@router.post("/remove", **_answers(answers.WithoutAttention, accepted=True))
async def remove(body: RemoveBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Remove attention from the model itself, and ask it: does it change as the network does?"""
    return await _respond(explorer, explorer.remove(body), request, prefer)


@router.post("/heads", **_answers(answers.HeadAmounts, accepted=True))
async def heads(body: HeadsBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Attention times gradient of each head, for edges of a network."""
    return await _respond(explorer, explorer.heads(body), request, prefer)


@router.post("/solve", **_answers(answers.Result | answers.SolvedCapacities, accepted=True))
async def solve(body: SolveBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """Change the network of a result, or one of capacities, and solve it again. No model runs."""
    return await _respond(explorer, explorer.solve(body), request, prefer)


@router.post("/cut", **_answers(answers.Cut, accepted=True))
async def cut(body: CutBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """The minimum cut: which edges hold the flow back."""
    return await _respond(explorer, explorer.cut(body), request, prefer)


@router.post("/routes", **_answers(answers.RouteList, accepted=True))
async def routes(body: RoutesBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """The widest routes of a flow, from an input token to the output."""
    return await _respond(explorer, explorer.routes(body), request, prefer)


@router.post("/ranges", **_answers(answers.Ranges, accepted=True))
async def ranges(body: RangesBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """The least and the largest score of each token over all maximum flows."""
    return await _respond(explorer, explorer.ranges(body), request, prefer)


@router.post("/drawing", **_answers(answers.Drawings, accepted=True))
async def drawing(body: DrawingBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """The flows of a result between groups of its tokens, ready to draw: how opened rows of a long text look."""
    return await _respond(explorer, explorer.drawing(body), request, prefer)


@router.post("/difference", **_answers(answers.Difference, accepted=True))
async def difference(body: DifferenceBody, explorer: State, request: Request, prefer: Prefer = "") -> Response:
    """The edges on which two flows differ most."""
    return await _respond(explorer, explorer.difference(body), request, prefer)


@router.post("/export", response_class=Response, responses=_EXPORTED)
def export(body: ExportBody, explorer: State) -> Response:
    """A result as a file."""
    with explorer.solver.turn():
        content, media_type, name = explorer.export(body)
    return Response(content, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/work/{key}", **_answers(answers.WorkStatus))
def work_status(key: str, explorer: State) -> Response:
    """How far work is, and its answer once it is done."""
    return Response(explorer.work.get(key).status(), media_type="application/json")


@router.get("/work/{key}/events", response_class=StreamingResponse, responses=_EVENTS)
async def work_events(key: str, explorer: State) -> StreamingResponse:
    """The same as server-sent events, until the work ends."""
    return StreamingResponse(_events(explorer.work.get(key)), media_type="text/event-stream")


@router.delete("/work/{key}", status_code=204)
def stop_work(key: str, explorer: State) -> None:
    """Stop work: what waits never starts, and what runs ends at its next step, also within the solver."""
    explorer.work.get(key).stop()


@router.delete("/results/{key}", status_code=204)
def drop_result(key: str, explorer: State) -> None:
    """Forget a kept result."""
    explorer.kept.get(key)
    explorer.kept.remove(key)


@router.get("/models", **_answers(answers.Models))
def models(explorer: State) -> Answer:
    """The models of this server."""
    return {"models": [queue.describe() for queue in explorer.queues.values()]}


@router.get("/methods", **_answers(answers.Methods))
def methods() -> Answer:
    """All methods, and what their scores mean and cost."""
    return {"methods": [describe(name, method) for name, method in METHODS.items()]}


@router.get("/limits", **_answers(answers.LimitValues))
def limits(explorer: State) -> Answer:
    """How much a request may ask for, and how much the server keeps."""
    return {"limits": asdict(explorer.settings.limits)}


@router.get("/runs", **_answers(answers.Runs))
def runs(explorer: State) -> Answer:
    """The folders and files that this server was started with."""
    return {"runs": [describe_run(name, path) for name, path in explorer.runs.items()]}


@router.get("/runs/{name}/rows", **_answers(answers.Rows))
def run_rows(
    name: str,
    explorer: State,
    method: str | None = None,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    count: Annotated[int, Query(ge=1, le=200)] = 50,
    wrong: bool = False,
    least_error: Annotated[float | None, Query(ge=0, allow_inf_nan=False)] = None,
    least_special: Annotated[float | None, Query(ge=0, le=1, allow_inf_nan=False)] = None,
    contains: Annotated[str, Query(max_length=200)] = "",
) -> Answer:
    """Rows of a run that pass all filters.

    `wrong`: the prediction is not the label. `least_error`: of the certificate. `least_special`: the share of the
    scores that special tokens have. `contains`: in the text, in any case.
    """
    filters = Filters(wrong=wrong, least_error=least_error, least_special=least_special, contains=contains)
    return rows_of(explorer.run_of(name), method, offset, count, filters)


@router.get("/runs/{name}/corpus", **_answers(answers.Corpus))
def run_corpus(
    name: str,
    explorer: State,
    method: str | None = None,
    length: Annotated[int, Query(ge=1, le=5)] = 1,
    minimum: Annotated[int, Query(ge=1, le=10**6)] = 3,
    top: Annotated[int, Query(ge=1, le=200)] = 30,
) -> Answer:
    """Importances of words over a run, with intervals, by class."""
    path = explorer.run_of(name)
    with explorer.solver.turn():
        return words_of(path, method, length, minimum, top)


@router.post("/runs/{name}/open", **_answers(answers.Result))
def open_run(
    name: str,
    explorer: State,
    row: Annotated[int | None, Query(ge=0)] = None,
    method: str | None = None,
    edges: Annotated[int, Query(ge=0, le=3600)] = 0,
) -> Answer:
    """Keep a saved attribution, or a row of a run, as if it had just been explained."""
    path = explorer.run_of(name)
    if path.is_file() and path.suffix != ".parquet":
        return explorer.keep(load(path), edges)
    if row is None:
        raise HttpProblem(422, "this is a folder; list its rows, and name one", "row")
    return explorer.keep(attribution_of_row(path, row, method), edges)


@router.get("/schema/{name}")
def json_schema(name: Literal["attribution", "attribution file", "flow", "manifest"]) -> Answer:
    """The JSON Schema of results."""
    return schema(name)


@router.get("/health", **_answers(answers.Health))
def health() -> Answer:
    """Whether the server answers, and its version."""
    return {"status": "ok", "version": metadata.version("gaflow")}


async def _respond(explorer: Explorer, work: Work, request: Request, prefer: str) -> Response:
    """The answer of work, or its id."""
    if "respond-async" in prefer:
        location = f"{router.prefix}/work/{work.key}"
        headers = {"Location": location, "Preference-Applied": "respond-async"}
        return Response(work.status(), 202, headers, media_type="application/json")
    finished = asyncio.wrap_future(work.finished)
    while not finished.done():
        await asyncio.wait([finished], timeout=SECONDS_BETWEEN_CHECKS)
        if await request.is_disconnected():
            work.stop()
            break
    explorer.work.remove(work.key)  # nobody knows its id
    if work.problem is not None:
        return work.problem.response()
    return Response(work.content, media_type="application/json")


async def _events(work: Work) -> AsyncIterator[bytes]:
    """A message for every change of work."""
    last = b""
    while True:
        ended = work.state in FINISHED
        status = work.status()
        if status != last:
            yield b"data: " + status + b"\n\n"
            last = status
        if ended:
            return
        await asyncio.sleep(SECONDS_BETWEEN_EVENTS)
