import os
import re
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gaflow.cli import progress as module
from gaflow.cli.progress import advising, progress_bar, spinner, until_interrupted


def test_lines_tell_rate_and_remaining_time_of_this_run_alone(capfd, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress_bar("explaining") as report:
        assert callable(report)
        for second, done in ((0, 500), (7, 540), (10, 600), (12, 620), (25, 900)):  # the first 40 took longer
            clock[0] = second
            report(done, 2000)
    lines = capfd.readouterr().err.splitlines()
    numbers = [re.findall(r"[\d,:]*\d", line) for line in lines]
    assert numbers == [["600", "2,000", "20", "0:01:10"], ["900", "2,000", "20", "0:00:55"]]


def test_a_terminal_shows_a_bar(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("explaining") as report:
        assert callable(report)
        report(3, 10)
        report(5, 10)
        report(7, 10)
    output = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert "explaining" in output
    assert "7/10" in output
    assert "texts/s" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number, capfd):
    before = signal.getsignal(number)
    with until_interrupted("texts are stored") as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_a_watcher_sees_that_work_is_going_on(monkeypatch):
    statuses = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(module, "make_console", lambda stderr: SimpleNamespace(status=watch(statuses)))
    seconds = iter([100.0, 104.0])  # from the first piece on
    monkeypatch.setattr(module.time, "monotonic", lambda: next(seconds))
    with spinner("explaining") as progress:
        assert statuses == ["explaining"]
        assert callable(progress)
        progress(0.75, 3)
        progress(1.5, 3)
    numbers = [re.findall(r"\d+", status) for status in statuses]
    assert numbers == [[], ["25"], ["50", "8"], []]


def watch(statuses):
    @contextmanager
    def status(doing):
        statuses.append(doing)
        yield SimpleNamespace(update=statuses.append)
        statuses.append("done")

    return status


def test_somebody_who_waits_is_told_once_what_would_take_less_time(capfd, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    reports = []
    progress = advising(lambda *report: reports.append(report), lambda seconds: f"{seconds:.0f} s")
    assert callable(progress)
    for second, done in ((0, 0), (30, 1), (32, 2), (34, 3)):
        clock[0] = second
        progress(done, 10)
    assert capfd.readouterr().err == "48 s\n"  # 32, and 8 texts of 2 seconds
    assert reports[-1] == (3, 10)
    assert advising(False, str) is False
    assert advising(print, None) is print
