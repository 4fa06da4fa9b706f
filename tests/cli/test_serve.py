"""`gaflow serve`, as a process of its own."""

import json
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from gaflow.cli import main


@contextmanager
def serving(*args):
    """A server on a free port, and its address."""
    command = [sys.executable, "-m", "gaflow", "serve", "--port", "0", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_server_answers_until_it_is_interrupted():
    with serving() as (address, process):
        body = json.dumps({"text": "a good film"}).encode()
        request = urllib.request.Request(f"{address}api/v1/explain", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            assert json.load(response)["attribution"]["label"] == "positive"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest == errors == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--host", "0.0.0.0"],
        ["--token", "short"],
        ["--port", "70000"],
        ["--port", "x"],
        ["--open", "nothing-here"],
        ["--host", "999.999.999.999", "--token", "x" * 20],
    ],
)
def test_what_cannot_be_served_is_one_line_and_exit_code_2(args, capsys):
    assert main(["serve", *args]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert args[0] in output.err


def test_a_port_that_is_taken_is_named(capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert str(port) in capsys.readouterr().err
