"""One core for small work: waking others takes longer than the arithmetic, above all on a busy machine.

OpenMP's threads wait for each other in a loop. Where other processes hold the cores, that loop takes most of the time:
a text of 14 tokens took ten times the CPU time of one core, and seven times as long. `torch.set_num_threads` is no way
to ask for one core: it changes the count of the whole process, and threads that call it at the same time leave the
wrong count behind. OpenMP and MKL also keep a count for each thread, which torch does not offer; this file sets that
one. A build of torch without these libraries keeps its threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def one_core() -> Iterator[None]:
    """Let OpenMP and MKL use one core for this thread; other threads and torch's own count are left alone."""
    library = _torch_library()
    openmp_threads = torch.get_num_threads()  # of this thread, which torch counts by OpenMP
    mkl_threads = 0
    try:
        if hasattr(library, "omp_set_num_threads"):
            library.omp_set_num_threads(1)
        if hasattr(library, "MKL_Set_Num_Threads_Local"):
            mkl_threads = library.MKL_Set_Num_Threads_Local(1)
        yield
    finally:
        if hasattr(library, "omp_set_num_threads"):
            library.omp_set_num_threads(openmp_threads)
        if hasattr(library, "MKL_Set_Num_Threads_Local"):
            library.MKL_Set_Num_Threads_Local(mkl_threads)


@cache
def _torch_library() -> ctypes.CDLL:
    """Torch's own library, through which the OpenMP and MKL that it was linked with are found."""
    return ctypes.CDLL(torch._C.__file__)
