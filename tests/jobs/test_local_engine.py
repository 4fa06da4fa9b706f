import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import gaflow
from gaflow.errors import JobError, UnsupportedModelError
from gaflow.jobs import Local, attribute, local_engine
from gaflow.methods import FlowMethod
from tests.support.clustered import FEW, TEXTS, Deadly, Unsupported
from tests.support.foreign import with_code
from tests.support.models import bert
from tests.support.runs import files
from tests.support.worker_processes import Warns

ROOT = Path(__file__).parents[2]
METHODS = ("agf", "attcat", "random")
MIXED = [*FEW, "smart " * 80, "", "a film is " * 40, *TEXTS[20:40]]
slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


def run(folder, texts=TEXTS, methods=METHODS, workers: int | None = 2, **options):
    settings: Any = {"batch_size": 4, "shard_size": 25} | options
    return attribute(gaflow.Explainer(*bert()), texts, folder, list(methods), engine=Local(workers=workers), **settings)


@slow
@pytest.mark.parametrize("windows", [False, True])
def test_workers_leave_the_bytes_of_a_run_without_them(tmp_path, windows):
    progress = []
    outcome = run(tmp_path / "workers", MIXED, windows=windows, progress=lambda done, total: progress.append(done))
    run(tmp_path / "alone", MIXED, workers=None, windows=windows)
    assert files(tmp_path / "workers") == files(tmp_path / "alone")
    assert (outcome.finished, outcome.texts, outcome.errors) == (True, 42, 0 if windows else 6)
    assert progress == sorted(progress)
    assert progress[-1] == 42
    assert any(done not in (0, 25, 42) for done in progress), "texts of unfinished shards count"


@slow
def test_workers_share_a_single_shard_and_what_is_stopped_goes_on_with_or_without_them(tmp_path):
    run(tmp_path / "alone", workers=None, shard_size=1000)
    stored = []
    for workers in (2, None, 2):
        reports = []
        outcome = run(
            tmp_path / "job",
            workers=workers,
            shard_size=1000,
            progress=lambda done, total, reports=reports: reports.append(done),
            stop=lambda reports=reports: bool(reports) and reports[-1] >= reports[0] + 12,
        )
        assert not outcome.finished
        assert outcome.computed == outcome.texts - sum(stored) > 0
        stored.append(outcome.computed)
    outcome = run(tmp_path / "job", shard_size=1000)
    assert outcome.finished
    assert outcome.computed == 60 - sum(stored)
    assert files(tmp_path / "job") == files(tmp_path / "alone")


class Unpicklable(UserWarning):
    """A warning that pickles, but cannot be made again from what was pickled."""

    def __init__(self, text: str, number: int):
        super().__init__(f"{text} {number}")


def test_a_warning_that_cannot_be_pickled_arrives_as_one_that_says_the_same():
    sent = local_engine._sendable_warning(Unpicklable("short of", 3))
    assert type(sent) is UserWarning
    assert str(sent) == "short of 3"
    plain = RuntimeWarning("overflow")
    assert local_engine._sendable_warning(plain) is plain


def test_nothing_starts_if_nothing_is_left_to_do(tmp_path, monkeypatch):
    run(tmp_path, workers=None)
    monkeypatch.setattr(local_engine, "_Worker", None)
    assert run(tmp_path).finished
    assert run(tmp_path / "stopped", stop=lambda: True).texts == 0


@slow
def test_a_worker_that_is_killed_is_replaced_and_the_bytes_stay_the_same(tmp_path):
    killed = []

    def kill_one(done, total):
        if not killed and done >= total / 3:
            worker = multiprocessing.active_children()[0]
            killed.append(worker)
            os.kill(worker.pid or 0, signal.SIGKILL)

    outcome = run(tmp_path / "workers", progress=kill_one)
    assert (len(killed), outcome.finished, outcome.computed) == (1, True, 60)
    run(tmp_path / "alone", workers=None)
    assert files(tmp_path / "workers") == files(tmp_path / "alone")


@slow
def test_a_batch_that_kills_every_worker_ends_the_run_and_keeps_what_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(local_engine, "_LOSSES", 2)
    method = Deadly("0", str(tmp_path / "deadly"))  # in the last batch
    Path(method.file).touch()
    with pytest.raises(JobError, match=r"shard \d .*\b2 times: exit code 1\..*batch_size"):
        run(tmp_path / "job", FEW, [method], workers=1)
    Path(method.file).unlink()
    assert 0 < run(tmp_path / "job", FEW, [method], workers=None).computed < 20


@slow
def test_an_error_that_all_texts_have_is_raised_as_it_is(tmp_path):
    with pytest.raises(UnsupportedModelError, match=r"^no attention$"):
        run(tmp_path, FEW, [Unsupported()], workers=1)


@slow
def test_warnings_of_workers_arrive(tmp_path):
    with pytest.warns(gaflow.GaflowWarning, match="mind the gap"):
        run(tmp_path, FEW[:2], [Warns()], workers=1)


def test_what_cannot_be_sent_is_refused_before_a_process_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(local_engine, "_Worker", None)
    with pytest.raises(JobError, match=r"cannot be sent.*lambda.*without workers"):
        run(tmp_path, FEW, [FlowMethod(lambda attention, gradient: attention)])


@slow
def test_settings_of_torch_that_workers_lack_are_refused(tmp_path):
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(JobError, match="bfloat16 in this process"):
        run(tmp_path, FEW, ["rawatt"], workers=1)


@slow
def test_a_trusted_model_works_in_a_worker(tmp_path, monkeypatch):
    without_other_caches = [entry for entry in sys.path if not Path(entry, "transformers_modules").exists()]
    monkeypatch.setattr(sys, "path", without_other_caches)  # tests may have had caches of their own
    folder = with_code(tmp_path, tmp_path / "ran")
    explainer = gaflow.Explainer(folder, device="cpu", trust_remote_code=True)
    attribute(explainer, FEW, tmp_path / "workers", ["agf"], engine=Local(workers=1))
    attribute(explainer, FEW, tmp_path / "alone", ["agf"])
    assert files(tmp_path / "workers") == files(tmp_path / "alone")


@slow
def test_a_script_that_is_not_guarded_says_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import gaflow\n"
        "from gaflow.jobs import Local, attribute\n"
        f"attribute(gaflow.Explainer(device='cpu'), ['a dog'], {str(tmp_path / 'out')!r}, engine=Local(workers=1))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    last_line = done.stderr.splitlines()[-1]
    assert last_line.startswith("gaflow.errors.JobError: a worker process ended")
    assert '__name__ == "__main__"' in last_line


class Command:
    """A run of its own, whose workers are at work."""

    def __init__(self, out):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker_processes", str(out)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        self.workers = self.hear()

    def hear(self):
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # whose new parent has not looked yet


@slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_workers_end_when_the_run_is_killed(tmp_path):
    command = Command(tmp_path / "job")
    assert len(command.workers) > 0
    assert all(map(is_running, command.workers))
    command.process.kill()
    command.process.communicate()
    for _ in range(600):  # far longer than needed, for machines that are busy
        if not any(map(is_running, command.workers)):
            return
        time.sleep(0.1)
    raise AssertionError("workers are left")


@slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="sends a signal to all processes, as a terminal does")
def test_ctrl_c_keeps_what_the_workers_have_done(tmp_path):
    command = Command(tmp_path / "job")
    os.killpg(command.process.pid, signal.SIGINT)
    finished, texts = command.hear()
    command.process.communicate()
    assert command.process.returncode == 0
    assert not finished
    assert 0 < texts < 600
    assert [path.name for path in (tmp_path / "job").glob(".*.unfinished")] == [".part-00000.unfinished"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers.* 0"),
        ({"workers": 2, "threads": True}, "threads.*True"),
        ({"threads": 2}, "threads=2.*pass workers"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Local(**settings)
