import os
import re
import signal
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from gaflow.cli import progress as module
from gaflow.cli.progress import progress_bar, spinner, until_interrupted


def test_lines_tell_rate_and_remaining_time_of_this_run_alone(capfd, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress_bar("explaining") as report:
        assert callable(report)
        for second, done in ((0, 500), (4, 520), (10, 600), (12, 620), (25, 1000)):
            clock[0] = second
            report(done, 2000)
    lines = capfd.readouterr().err.splitlines()
    numbers = [re.findall(r"[\d,:]*\d", line) for line in lines]
    assert numbers == [["600", "2,000", "10", "0:02:20"], ["1,000", "2,000", "20", "0:00:50"]]


def test_a_terminal_shows_a_bar(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("explaining") as report:
        assert callable(report)
        report(3, 10)
        report(7, 10)
    output = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert "explaining" in output
    assert "7/10" in output
    assert "texts/s" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number, capfd):
    before = signal.getsignal(number)
    with until_interrupted() as stop:
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
    seconds = iter([100.0, 104.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(seconds))
    with spinner("explaining") as progress:
        assert statuses == ["explaining"]
        assert callable(progress)
        progress(0.75, 3)
    assert statuses == ["explaining", "explaining, 25%, about 12 s left", "done"]


def watch(statuses):
    @contextmanager
    def status(doing):
        statuses.append(doing)
        yield SimpleNamespace(update=statuses.append)
        statuses.append("done")

    return status
