"""What every committed result names: machine, versions, commit, date."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

RESULTS = Path(__file__).parent / "results"


def provenance(**settings: object) -> str:
    """A few Markdown lines that say where a table comes from."""
    names = ", ".join(f"{name} {value}" for name, value in settings.items())
    if torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    else:
        machine = f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return (
        f"- machine: {machine}\n- software: Python {platform.python_version()}, torch {torch.__version__}\n"
        f"- commit: {commit()}, {datetime.date.today().isoformat()}\n- settings: {names}\n"
    )


def commit() -> str:
    """The commit that runs; `COMMIT` names it where the history is not at hand."""
    return os.environ.get("COMMIT") or _run("git", "describe", "--always", "--dirty", "--abbrev=10")


def standard_error(values: np.ndarray) -> Any:
    """Of the mean over the last axis, on which there are at least two independent values."""
    return values.std(-1, ddof=1) / values.shape[-1] ** 0.5


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def write(name: str, text: str) -> Path:
    """Store a result beside the scripts."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / name
    path.write_text(text)
    return path
