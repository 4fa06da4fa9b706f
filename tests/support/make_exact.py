"""Reference networks with their solutions, computed once by `exact_flow` and kept in data/exact.safetensors.

Six kinds of network x two barriers x five epsilons, in sizes from 1 x 4 to 6 x 8. To write the file anew:
`python -m tests.support.make_exact`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.support.exact import Exact, exact_flow

FILE = Path(__file__).parents[1] / "data" / "exact.safetensors"
EPSILONS = (1e-9, 1e-6, 1e-3, 1e-1, 10.0)
SIZES = ((1, 4), (2, 6), (3, 5), (4, 7), (6, 8))


@dataclass(frozen=True)
class Case:
    """One network, how it is to be solved, and the solution."""

    name: str
    information: np.ndarray  # (l, t, t)
    epsilon: float
    barrier: str
    flow: Exact


def dense(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    return rng.random((layers, tokens, tokens))


def sparse(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    """Two entries in three are missing; one path is kept so that something can flow."""
    capacity = rng.random((layers, tokens, tokens)) * (rng.random((layers, tokens, tokens)) < 1 / 3)
    path = rng.integers(tokens, size=layers + 1)
    capacity[np.arange(layers), path[1:], path[:-1]] += 0.5
    return capacity


def graded(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    """Capacities over 30 orders of magnitude."""
    return 10.0 ** (-30 * rng.random((layers, tokens, tokens)))


def one_top(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    """What a [CLS]-pooled head leaves of gradient times attention: one output node, uneven capacities."""
    capacity = 1e-2 * rng.exponential(size=(layers, tokens, tokens)) ** 3
    capacity[-1, 1:] = 0
    return capacity


def attention(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    """Rows that sum to one."""
    weight = np.exp(2 * rng.standard_normal((layers, tokens, tokens)))
    return weight / weight.sum(-1, keepdims=True)


def symmetric(rng: np.random.Generator, layers: int, tokens: int) -> np.ndarray:
    """Tokens can be exchanged: one capacity from a token to itself and one to all others, in every layer."""
    same, other = rng.random((2, layers, 1, 1))
    return np.where(np.eye(tokens, dtype=bool), same, other)


KINDS = {f.__name__: f for f in (dense, sparse, graded, one_top, attention, symmetric)}


def networks() -> list[tuple[str, np.ndarray, float, str]]:
    """Name, capacities, epsilon and barrier of every reference network."""
    rng = np.random.default_rng(12)
    made_networks = []
    for shift, (kind, make) in enumerate(KINDS.items()):
        for offset, barrier in enumerate(("uniform", "capacity")):
            for k, epsilon in enumerate(EPSILONS):
                layers, tokens = SIZES[(k + shift + 2 * offset) % len(SIZES)]
                made_networks.append((f"{kind}-{barrier}-{epsilon:g}", make(rng, layers, tokens), epsilon, barrier))
    return made_networks


def load() -> list[Case]:
    """The committed reference networks."""
    with safe_open(FILE, "numpy") as file:
        settings = json.loads(file.metadata()["cases"])
        cases = []
        for name, case in settings.items():
            arrays = {part: file.get_tensor(f"{name}/{part}") for part in ("information", "edges", "source", "target")}
            information = arrays.pop("information")
            cases.append(
                Case(
                    name,
                    information,
                    case["epsilon"],
                    case["barrier"],
                    Exact(**arrays, **case["flow"]),
                )
            )
    return cases


def main() -> None:
    arrays, settings = {}, {}
    for name, information, epsilon, barrier in networks():
        flow = exact_flow(information, epsilon=epsilon, barrier=barrier)
        parts = {f.name: getattr(flow, f.name) for f in fields(flow)}
        for part, value in {"information": information, **parts}.items():
            if isinstance(value, np.ndarray):
                arrays[f"{name}/{part}"] = np.ascontiguousarray(value)
        numbers = {part: value for part, value in parts.items() if not isinstance(value, np.ndarray)}
        settings[name] = {"epsilon": epsilon, "barrier": barrier, "flow": numbers}
        print(f"{name}: value {flow.value:.17g}, imbalance {flow.residual:.1e}")
    FILE.parent.mkdir(exist_ok=True)
    save_file(arrays, FILE, {"cases": json.dumps(settings)})


if __name__ == "__main__":
    main()
