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
    assert capfd.readouterr().err.splitlines() == [
        "explaining: 600 of 2,000 texts, 10 texts/s, 0:02:20 left",
        "explaining: 1,000 of 2,000 texts, 20 texts/s, 0:00:50 left",
    ]


def test_a_terminal_shows_a_bar(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("explaining") as report:
        assert callable(report)
        report(3, 10)
        report(7, 10)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert "explaining" in shown
    assert "7/10" in shown
    assert "texts/s" in shown


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
    assert capfd.readouterr().err == "ending after this batch; once more to end at once\n"


def test_a_watcher_sees_that_work_is_going_on(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(module, "make_console", lambda stderr: SimpleNamespace(status=watch(seen)))
    with spinner("explaining") as progress:
        assert seen == ["explaining"]
        assert callable(progress)
        progress(0.75, 3)
    assert seen == ["explaining", "explaining, 25%", "done"]


def watch(seen):
    @contextmanager
    def status(doing):
        seen.append(doing)
        yield SimpleNamespace(update=seen.append)
        seen.append("done")

    return status
