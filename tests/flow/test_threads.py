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
