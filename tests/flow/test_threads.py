"""One core for small work, in the thread that asks for it and nowhere else."""

import ctypes
import threading

import pytest
import torch

from gaflow.flow.threads import one_core

LIBRARY = ctypes.CDLL(torch._C.__file__)


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def counts():
    """Threads of OpenMP and MKL, as far as torch was built with them."""
    names = ("omp_get_max_threads", "MKL_Get_Max_Threads")
    return [getattr(LIBRARY, name)() for name in names if hasattr(LIBRARY, name)]


def test_one_core_is_used_inside_and_all_afterwards():
    before = counts()
    assert set(before) == {2}
    with one_core():
        assert set(counts()) == {1}
        with one_core():
            assert set(counts()) == {1}
        assert set(counts()) == {1}
    assert counts() == before


def test_an_error_gives_the_cores_back():
    before = counts()
    with pytest.raises(ZeroDivisionError), one_core():
        raise ZeroDivisionError
    assert counts() == before


def test_other_threads_keep_their_cores():
    others = []

    def count():
        torch.set_num_threads(2)
        others.append(torch.get_num_threads())

    with one_core():
        thread = threading.Thread(target=count)
        thread.start()
        thread.join()
        assert set(counts()) == {1}
    assert others == [2]


def test_a_torch_without_these_libraries_is_left_alone(monkeypatch):
    monkeypatch.setattr("gaflow.flow.threads._torch_library", object)
    with one_core():
        assert set(counts()) == {2}
    assert set(counts()) == {2}


class Library:
    """A library that notes what it is told, and had as many threads for MKL as torch's own would say."""

    def __init__(self, *names):
        self.calls = []
        for name in names:
            setattr(self, name, lambda count, name=name: self.calls.append((name, count)) or 7)


OPENMP = "omp_set_num_threads"
MKL = "MKL_Set_Num_Threads_Local"


@pytest.mark.parametrize(
    ("names", "inside", "after"),
    [
        ([OPENMP, MKL], [(OPENMP, 1), (MKL, 1)], [(OPENMP, 2), (MKL, 7)]),
        ([OPENMP], [(OPENMP, 1)], [(OPENMP, 2)]),
        ([MKL], [(MKL, 1)], [(MKL, 7)]),
    ],
)
def test_each_library_gets_one_thread_and_then_as_many_as_it_had(monkeypatch, names, inside, after):
    library = Library(*names)
    monkeypatch.setattr("gaflow.flow.threads._torch_library", lambda: library)
    with one_core():
        assert library.calls == inside
    assert library.calls == inside + after
