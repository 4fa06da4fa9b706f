"""Optional libraries: what to install when one is missing."""

from __future__ import annotations

import importlib
import random

from gaflow.errors import MissingExtraError


def need(module: str, extra: str | None, purpose: str) -> None:
    """Import an optional library, or say what to install.

    `extra` is the extra of gaflow that installs it, None if none does. `purpose` is a phrase such as "figures need
    matplotlib". Write the ordinary import after this call:

        need("pandas", "data", "tables need pandas")
        import pandas as pd

    Some libraries draw random numbers when they are imported. Nobody notices.
    """
    random_state = random.getstate()
    try:
        importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0] if extra is None else f"'gaflow[{extra}]'"
        raise MissingExtraError(f"{purpose} ({error}); run: pip install {package}") from error
    finally:
        random.setstate(random_state)
