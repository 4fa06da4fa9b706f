"""What a server may do: its models and folders, who may reach it, and how much work it takes on.

The conventions this file owns: **models and folders are only those named at start**, and requests call them by short
names, never by paths. A server that other machines can reach needs a token.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gaflow.arguments import checked_record, location, positive_number, whole_number
from gaflow.errors import Argument, ArgumentError, DataError
from gaflow.jobs.manifest import MANIFEST

BUILT_IN = "built-in"
SHORTEST_TOKEN = 16  # characters


@dataclass(frozen=True)
class Limits:
    """How much a request may ask for, and how much the server keeps."""

    tokens: int = 512  # of a text
    body_bytes: int = 8 << 20  # of a request: the capacities of 12 layers of 128 tokens take 4 MB
    methods: int = 20  # of a comparison
    seconds: float = 120.0  # that explaining a text may take
    queue: int = 8  # requests that wait for a model, or for the solver
    solves: int = 2  # networks that are solved at the same time
    kept_bytes: int = 1 << 30  # of results whose networks can be changed
    idle_seconds: float = 900.0  # after which a model is unloaded

    def __post_init__(self) -> None:
        for name in ("tokens", "body_bytes", "methods", "queue", "solves", "kept_bytes"):
            whole_number(name, getattr(self, name))
        for name in ("seconds", "idle_seconds"):
            positive_number(name, getattr(self, name))


@checked_record
@dataclass(frozen=True)
class ServerSettings:
    """Everything that `gaflow serve` is started with."""

    models: Sequence[str] = ()  # hub ids or folders; none: the built-in model
    folders: Sequence[Path] = ()  # runs that `gaflow attribute` or `gaflow bench` wrote
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None  # that requests must carry; None: none
    device: str | None = None
    trust_remote_code: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        whole_number("port", self.port, least=0, most=65535)
        if not is_loopback(self.host) and self.token is None:
            raise ArgumentError(
                Argument("host", self.host),
                " can be reached from other machines, so a token is required; pass ",
                Argument("token"),
                f" with at least {SHORTEST_TOKEN} characters",
            )
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise ArgumentError(
                Argument("token"),
                f" has {len(self.token)} characters; take at least {SHORTEST_TOKEN} characters of ASCII, such as the "
                "output of: python -c 'import secrets; print(secrets.token_urlsafe())'",
            )

    @property
    def model_names(self) -> Mapping[str, str | None]:
        """The models by the names that requests use; None is the built-in one."""
        if not self.models:
            return {BUILT_IN: None}
        names: dict[str, str | None] = {}
        for model in self.models:
            path = location("model", model)
            name = path.name if path.is_dir() else model
            names[_unique(name, names)] = None if model == BUILT_IN else model
        return names

    @property
    def runs(self) -> Mapping[str, Path]:
        """The folders by the names that requests use."""
        runs: dict[str, Path] = {}
        for path in self.folders:
            folder = location("open", path).resolve()
            if not folder.exists():
                raise DataError(Argument("open"), f": no such file or folder: {str(path)!r}")
            for name, run in _runs_in(folder).items():
                runs[_unique(name, runs)] = run
        return runs


def _runs_in(path: Path) -> Mapping[str, Path]:
    """The runs of a benchmark's folder and the saved attributions of a folder, or what was named itself."""
    if path.is_file() or (path / MANIFEST).exists():
        return {path.name: path}
    inside: dict[str, Path] = {}
    for manifest in sorted([*path.glob(f"attributions/{MANIFEST}"), *path.glob(f"*/attributions/{MANIFEST}")]):
        data_set = manifest.parent.parent
        name = path.name if data_set == path else f"{path.name}.{data_set.name}"
        inside[name] = manifest.parent
    for file in sorted(path.glob("*.safetensors")):
        inside[f"{path.name}.{file.name}"] = file
    is_inside = {name: run.resolve() for name, run in inside.items() if run.resolve().is_relative_to(path)}
    return is_inside or {path.name: path}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unique(name: str, names: Mapping[str, object]) -> str:
    """The name, with a number where another one is called the same."""
    unique = name
    number = 2
    while unique in names:
        unique = f"{name}-{number}"
        number += 1
    return unique
