"""Data-set runs in processes of their own: killed, without room, two at once, with another model."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.data_files import write
from tests.support.runs import ROWS, files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked"),
]
HEADS = 4  # of the tiny model


class Writers:
    """Starts runs in processes of their own; see tests/support/writers.py."""

    def __init__(self, model, data):
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.writers", str(model), str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        self.runs = 0

    def order(self, **order):
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def start(self, out, heads=HEADS, most_bytes=None):
        """Number of the process, and its log."""
        self.runs += 1
        log = out.parent / f"{self.runs}.log"
        log.touch()
        return self.order(out=str(out), heads=heads, most_bytes=most_bytes, log=str(log)), log

    def finish(self, out, **options):
        """Run to the end; the last line of its log."""
        pid, log = self.start(out, **options)
        assert self.order(wait=pid) == 0
        return log.read_text().splitlines()[-1]

    def kill(self, out, lines):
        """Run until the log has so many lines; the signal by which it ended, or 0 if it was faster."""
        pid, log = self.start(out)
        wait_for(log, lines)
        os.kill(pid, signal.SIGKILL)
        return self.order(wait=pid)


def wait_for(log, lines):
    end = time.monotonic() + 60
    while len(log.read_text().splitlines()) < lines:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.001)


@pytest.fixture(scope="module")
def writers(folder, tmp_path_factory):
    rows = [{"text": row["text"]} for row in ROWS]
    data = write(tmp_path_factory.mktemp("data") / "rows.jsonl", rows)
    started = Writers(folder, data)
    yield started
    started.process.kill()
    started.process.communicate()


@pytest.fixture(scope="module")
def undisturbed(writers, tmp_path_factory):
    """The files of a run that was left alone."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert writers.finish(out) == "finished"
    return files(out)


def test_killed_again_and_again_a_run_ends_with_the_same_bytes(writers, undisturbed, tmp_path):
    generator = random.Random(0)
    statuses = [writers.kill(tmp_path / "run", lines=generator.randint(1, 4)) for _ in range(6)]
    assert statuses.count(signal.SIGKILL) >= 3
    assert writers.finish(tmp_path / "run") == "finished"
    assert files(tmp_path / "run") == undisturbed


def test_without_room_a_run_names_the_file_and_leaves_no_half_of_one(writers, undisturbed, tmp_path):
    out = tmp_path / "run"
    assert writers.finish(out, most_bytes=500).startswith("DiskFullError: ")
    assert not out.exists()  # not even the manifest had room
    shard = "part-00000.parquet"
    assert shard in writers.finish(out, most_bytes=4000)
    assert sorted(files(out)) == ["manifest.json"]
    writers.kill(out, lines=7)
    before = files(out)
    assert shard in before
    assert writers.finish(out, most_bytes=4000).startswith("DiskFullError: ")
    assert {name: before[name] for name in files(out)} == files(out)
    assert writers.finish(out) == "finished"
    assert files(out) == undisturbed


def test_of_two_processes_in_one_folder_the_second_is_refused(writers, undisturbed, tmp_path):
    first, log = writers.start(tmp_path / "run")
    wait_for(log, 1)  # it is at work
    os.kill(first, signal.SIGSTOP)
    assert writers.finish(tmp_path / "run").startswith("JobError: ")
    os.kill(first, signal.SIGCONT)
    assert writers.order(wait=first) == 0
    assert files(tmp_path / "run") == undisturbed


def test_killed_and_continued_with_another_model_a_run_is_refused_and_stays_as_it_is(writers, undisturbed, tmp_path):
    writers.kill(tmp_path / "run", lines=5)
    before = files(tmp_path / "run")
    line = writers.finish(tmp_path / "run", heads=2)
    assert line.startswith("JobError: ")
    assert "num_attention_heads" in line
    after = files(tmp_path / "run")
    assert after == {name: before[name] for name in after}
    assert writers.finish(tmp_path / "run") == "finished"
    assert files(tmp_path / "run") == undisturbed
