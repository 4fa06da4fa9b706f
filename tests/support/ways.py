"""Every way that the linear system of a Newton step can be solved, whatever its size."""

from torch import Tensor

from gaflow.flow.barrier.linear.dispatch import Way
from gaflow.flow.barrier.solve import Barrier, LogBarrier
from gaflow.flow.network import LayeredNetwork
from gaflow.flow.result import Flow

WAYS: tuple[Way, ...] = (
    "blocks",
    "blocks_low_memory",
    "blocks_two_ended",
    "dense",
    "odd_even",
    "odd_even_blocks",
    "banded",
)


def solve_by(
    way: Way,
    information: Tensor,
    *,
    barrier: Barrier = "uniform",
    epsilon: float = 1e-6,
    sources: list[int] | None = None,
    targets: list[int] | None = None,
) -> Flow:
    """As `solve`, with every linear system solved this way; all items have to converge."""
    terminal = "adjacent" if barrier == "capacity" else None
    network = LayeredNetwork.build(information, terminal, None, sources, targets)
    flow = LogBarrier(epsilon=epsilon, barrier=barrier, way=way)(network)
    assert flow.converged.all()
    return flow
