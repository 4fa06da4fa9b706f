"""Running commands of `gaflow` in tests, with helpers that assert how they end."""

import io
import os
import signal
import sys
from contextlib import contextmanager

from gaflow.cli import main

HOSTILE = "\x1b[31mred[/bold] \x1b]0;title\x07 [red]\u202eevil"


def saved(model_and_tokenizer, folder):
    """The folder in which a model and its tokenizer are saved."""
    model, tokenizer = model_and_tokenizer
    model.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    return folder / "tiny"


def gives(capfd, *args):
    """What `gaflow *args` prints, which must be well."""
    capfd.readouterr()  # transformers draws a bar while the test saves its model
    code = main([str(a) for a in args])
    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    return out


def refused(capfd, *args):
    """The one line on stderr by which `gaflow *args` is refused."""
    assert main([str(a) for a in args]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return err


def from_stdin(monkeypatch, data):
    """Let `data` be what stdin holds."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def interrupted_at(count, phase=""):
    """In place of `progress_bar`: Ctrl-C once `count` texts are done in a phase."""

    @contextmanager
    def progress_bar(activity):
        def report(done, total):
            if done >= count and phase in activity:
                os.kill(os.getpid(), signal.SIGINT)

        yield report

    return progress_bar
