"""`gaflow serve`: the explorer, a page and an API on this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gaflow.cli.app import Device, TrustRemoteCode, app, as_path, number
from gaflow.errors import Argument, ArgumentError
from gaflow.extras import need

if TYPE_CHECKING:
    from fastapi import FastAPI

_BACKLOG = 128  # connections that wait to be accepted


@app.command()
def serve(
    model: Annotated[list[str] | None, typer.Argument(metavar="[MODEL ...]", help="Hub ids or folders.")] = None,
    open: Annotated[
        list[Path] | None,
        typer.Option(parser=as_path, metavar="PATH", help="A folder of 'gaflow attribute', or a saved attribution."),
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address; one beyond this machine needs --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, number("Port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", envvar="GAFLOW_TOKEN", help="Requests must carry it; also in GAFLOW_TOKEN."),
    ] = None,
    device: Device = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Open the explorer: a page that explains texts and changes their networks, and an API. Ctrl-C ends it.

    The first line printed is the address of the page. /api/v1/openapi.json describes the API.

    \b
    Examples:
      gaflow serve
      gaflow serve org/name --open attributions --port 8080
    """
    for module in ("fastapi", "uvicorn"):
        need(module, "web", "the server needs FastAPI and uvicorn")
    from gaflow.web import ServerSettings, create_app

    settings = ServerSettings(
        models=tuple(model or ()),
        folders=tuple(open or ()),
        host=host,
        port=port,
        token=token,
        device=device,
        trust_remote_code=trust_remote_code,
    )
    application = create_app(settings)
    listener = _listen(settings.host, settings.port)
    name = f"[{host}]" if ":" in host else host
    typer.echo(f"http://{name}:{listener.getsockname()[1]}/")
    _run(application, listener)


def _listen(host: str, port: int) -> socket.socket:
    """The socket of the server; a port that is taken is an error that says so."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ArgumentError(
            Argument("port", port),
            " of ",
            Argument("host", host),
            f" cannot be used: {error}; choose another, or port 0 for a free one",
        ) from error


def _run(application: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C, which is the normal end."""
    import uvicorn

    config = uvicorn.Config(application, log_level="warning", access_log=False, server_header=False)
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        return
