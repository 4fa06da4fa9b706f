"""Every way that the linear system of a Newton step can be solved, whatever its size."""

import pytest

from gaflow.flow.barrier.linear import block_tridiagonal as blocktri
from gaflow.flow.barrier.linear import dispatch as laplacian
from gaflow.flow.barrier.linear import whole_matrix as small

WAYS = ("blocks", "sparing", "together", "dense", "halved", "banded")


def force(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every system be solved this way."""
    assert small.lapack(), "without SciPy banded would be another way"
    monkeypatch.setattr(laplacian, "BANDED", 1000 if way == "banded" else 0)
    monkeypatch.setattr(laplacian, "SMALL", 1e12 if way == "dense" else 0)
    monkeypatch.setattr(laplacian, "MEDIUM", 1e12 if way == "halved" else 0)
    monkeypatch.setattr(blocktri, "LONG", 0 if way == "sparing" else 4096)
    monkeypatch.setattr(blocktri, "_together", lambda system: way == "together")
