"""Data-set runs in processes of their own: killed, without room, two at once, with another model."""

import json
import os
import random
import signal
import subprocess
import sys
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

    def start(self, out, heads=HEADS, most_bytes=None, stop_at=None, die_after=None):
        """Number of the process, and its log."""
        self.runs += 1
        log = out.parent / f"{self.runs}.log"
        limits = {"most_bytes": most_bytes, "stop_at": stop_at, "die_after": die_after}
        return self.order(out=str(out), heads=heads, log=str(log), **limits), log

    def finish(self, out, **options):
        """Run to the end; the last line of its log."""
        pid, log = self.start(out, **options)
        assert self.order(wait=pid) == 0
        return log.read_text().splitlines()[-1]

    def stop(self, out, lines):
        """Run until the log has so many lines; the number of the process, which stands still then."""
        pid, log = self.start(out, stop_at=lines)
        assert os.WIFSTOPPED(self.order(wait_until_still=pid)), log.read_text()
        return pid

    def kill(self, out, lines):
        """Run until the log has so many lines, and kill it."""
        pid = self.stop(out, lines)
        os.kill(pid, signal.SIGKILL)
        assert self.order(wait=pid) == signal.SIGKILL

    def let_die(self, out, lines, seconds):
        """Run until it has computed for so many seconds after a line of the log, or to the end."""
        pid, _ = self.start(out, die_after=(lines, seconds))
        assert self.order(wait=pid) in (0, signal.SIGPROF)


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
    for lines in (1, 2, 1):
        writers.kill(tmp_path / "run", lines)
        writers.let_die(tmp_path / "run", lines=1, seconds=generator.uniform(1e-4, 1e-2))
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
    first = writers.stop(tmp_path / "run", lines=1)
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
