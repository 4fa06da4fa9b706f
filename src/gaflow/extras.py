"""Optional libraries: what to install when one is missing."""

from __future__ import annotations

import importlib
import random

from gaflow.errors import MissingExtraError


def need(module: str, extra: str, purpose: str) -> None:
    """Import an optional library, or say what to install.

    `purpose` is a phrase such as "figures need matplotlib". Write the ordinary import after this call:

        need("pandas", "data", "tables need pandas")
        import pandas as pd

    Some libraries draw random numbers when they are imported. Nobody notices.
    """
    random_state = random.getstate()
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} ({error}); run: pip install 'gaflow[{extra}]'") from error
    finally:
        random.setstate(random_state)
