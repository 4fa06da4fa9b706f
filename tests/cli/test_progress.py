import os
import re
import signal
import sys

import pytest

from gaflow.cli import progress as watching
from gaflow.cli.progress import stoppable, watched


def test_lines_tell_rate_and_remaining_time_of_this_run_alone(capfd, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    with watched("explaining") as tell:
        assert callable(tell)
        for second, done in ((0, 500), (4, 520), (10, 600), (12, 620), (25, 1000)):
            clock[0] = second
            tell(done, 2000)
    assert capfd.readouterr().err.splitlines() == [
        "explaining: 600 of 2,000 texts, 10 texts/s, 0:02:20 left",
        "explaining: 1,000 of 2,000 texts, 20 texts/s, 0:00:50 left",
    ]


def test_a_terminal_shows_a_bar(monkeypatch, capfd):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watched("explaining") as tell:
        assert callable(tell)
        tell(3, 10)
        tell(7, 10)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    assert "explaining" in shown
    assert "7/10" in shown
    assert "texts/s" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_ends(number, capfd):
    before = signal.getsignal(number)
    with stoppable() as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert capfd.readouterr().err == "ending after this batch; once more to end at once\n"
