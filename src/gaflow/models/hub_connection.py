"""The connection to the hub: one attempt, then the cache alone.

Without a network the libraries of the hub try again and again for each file, for minutes. The convention this file
owns: a hub that answers anything is left to them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gaflow.errors import Argument, GaflowError

_SWITCH = threading.RLock()
_SECONDS = 10.0  # to wait for a connection, as the library of the hub does
# one of which the cache has of everything that can be loaded
_CACHED_FILES = ("config.json", "modules.json", "tokenizer_config.json", "tokenizer.json", "preprocessor_config.json")


@contextmanager
def one_attempt_to_connect(name: str, find_file: Callable[[str], Path | None], argument: str) -> Iterator[None]:
    """Take the files of a model from the cache alone if the hub cannot be reached; an error if they are not in it.

    `find_file` finds a file of the model in the cache; `argument` is what the name was given for.
    """
    with _SWITCH:  # another thread may be offline just now
        problem = None if Path(name).is_dir() else _connection_problem(name)
    if problem is None:
        yield
        return
    with _offline():
        if all(find_file(file) is None for file in _CACHED_FILES):
            message = (
                f" {name!r}: there is no folder {name!r} here, no such model in the cache, and the hub cannot be "
                f"reached ({problem}); give the path of a folder, or connect to the network"
            )
            raise GaflowError("cannot load ", Argument(argument), message)
        yield


@contextmanager
def _offline() -> Iterator[None]:
    """The hub's library works offline; one thread at a time, since the switch is that of the process."""
    from huggingface_hub import constants

    with _SWITCH:
        was_offline = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = was_offline


def _connection_problem(name: str) -> str | None:
    """Why there is no connection to the hub; None if there is one."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        url = hf_hub_url(name, "config.json", endpoint=constants.ENDPOINT)
        get_session().head(url, timeout=_SECONDS)
    except Exception as error:  # of a library for HTTP, which differs between versions of the hub's
        kind = type(error).__name__
        if "Connect" in kind or "Proxy" in kind:
            return str(error).strip().split("\n")[0] or kind
    return None
