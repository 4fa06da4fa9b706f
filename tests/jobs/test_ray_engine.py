import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gaflow
from gaflow.errors import JobError, MissingExtraError
from gaflow.jobs import ENGINES, Ray, attribute, ray_engine
from tests.support.clustered import FEW, METHODS, OUTCOMES, TEXTS, deadly
from tests.support.foreign import with_code
from tests.support.models import bert
from tests.support.runs import files

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Runs on a local cluster: scenario -> outcome, and their folder."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.clustered", str(folder)],
        capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    outcomes = json.loads((folder / OUTCOMES).read_text())
    return SimpleNamespace(outcomes=outcomes, folder=folder)


def go_on(folder, method: Any = "rawatt"):
    """Finish a run of the cluster in this process."""
    return attribute(gaflow.Explainer(*bert()), FEW, folder, [method], batch_size=2, shard_size=3)


def test_a_run_that_loses_a_worker_half_way_ends_with_the_bytes_of_a_local_run(cluster, tmp_path):
    outcome = cluster.outcomes["lose_a_worker_half_way"]
    folder = cluster.folder / "lose_a_worker_half_way"
    assert (outcome["finished"], outcome["computed"]) == (True, 60)
    attribute(gaflow.Explainer(*bert()), TEXTS, tmp_path / "local", METHODS, batch_size=2, shard_size=3)
    assert files(folder) == files(tmp_path / "local")
    timings = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    assert sorted(entry["shard"] for entry in timings) == list(range(20))
    workers = {int(entry["worker"].rpartition(":")[2]) for entry in timings}
    assert set(outcome["killed"]) < workers


def test_progress_never_goes_back(cluster):
    progress = cluster.outcomes["lose_a_worker_half_way"]["progress"]
    assert progress == sorted(progress)
    assert progress[-1] == 60


def test_a_shard_that_kills_every_worker_ends_the_run_and_keeps_the_others(cluster):
    outcome = cluster.outcomes["lose_every_worker_at_one_shard"]
    assert re.match(r"shard 3 .*\b2 times", outcome["error"])
    assert "batch_size" in outcome["error"]
    folder = cluster.folder / "lose_every_worker_at_one_shard"
    finished = go_on(folder, deadly(folder))
    assert finished.finished
    assert 0 < finished.computed < 20


def test_workers_that_never_start_end_the_run(cluster):
    assert cluster.outcomes["never_start_a_worker"]["error"].startswith("JobError: no worker")


def test_an_error_that_all_texts_have_is_raised_as_it_is(cluster):
    assert cluster.outcomes["fail_at_every_text"]["error"] == "UnsupportedModelError: no attention"


def test_no_more_workers_are_started_than_there_are_shards(cluster):
    assert cluster.outcomes["fail_at_every_text"]["workers"] == 1


def test_stopping_keeps_what_is_finished(cluster, tmp_path):
    outcome = cluster.outcomes["stop_after_two_shards"]
    folder = cluster.folder / "stop_after_two_shards"
    assert not outcome["finished"]
    assert 0 < outcome["texts"] < 20
    assert go_on(folder).computed == 20 - outcome["texts"]
    go_on(tmp_path / "local")
    assert files(folder) == files(tmp_path / "local")


@pytest.mark.parametrize(
    ("nodes", "device", "threads", "workers"),
    [
        ([{"CPU": 5.0}, {"CPU": 3.0}, {"CPU": 1.0}], "cpu", 2, 3),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 4.0}], "cuda", 7, 3),
        ([{"CPU": 8.0, "GPU": 2.0}], "cpu", 1, 8),
    ],
)
def test_workers_take_what_the_nodes_have(nodes, device, threads, workers):
    alive = [{"Alive": True, "Resources": node} for node in nodes]
    dead = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 99.0}}
    assert ray_engine.room([*alive, dead], ray_engine.worker_resources(device, threads)) == workers


def test_gpus_are_used_where_there_are_any():
    assert ray_engine.best_device({"CPU": 9.0, "GPU": 1.0}) == "cuda"
    assert ray_engine.best_device({"CPU": 9.0}) == "cpu"


def test_a_cluster_without_room_for_a_worker_is_refused():
    nodes = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": True, "Resources": {"CPU": 3.0}}]
    with pytest.raises(JobError, match=r"4 CPU.*OMP_NUM_THREADS"):
        ray_engine.room(nodes, ray_engine.worker_resources("cpu", 4))


def test_a_worker_with_other_libraries_is_refused_naming_them():
    driver = {"python": "3.11.7", "torch": "2.13.0+cpu", "transformers": "5.22.2"}
    ray_engine.check_versions(driver, driver | {"python": "3.11.8", "torch": "2.13.0+cu128"})
    with pytest.raises(JobError, match=r"transformers 5\.21\.0"):
        ray_engine.check_versions(driver, driver | {"transformers": "5.21.0"})


def test_a_model_elsewhere_is_sent_from_a_copy():
    model, tokenizer = bert()
    explainer = gaflow.Explainer(model, tokenizer, attention="eager")
    sent = ray_engine._portable(explainer)
    assert sent.model is model
    assert (sent.task, sent.attention) == ("text-classification", "eager")
    with torch.device("meta"):
        away = type(model)(model.config)
    away.cpu = lambda: "copied"  # a copy keeps it
    elsewhere = SimpleNamespace(model=away, tokenizer=None, task="t", runner=explainer.runner)
    assert ray_engine._portable(elsewhere).model == "copied"  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_trusted_model_travels_with_its_code(tmp_path):
    folder = with_code(tmp_path, tmp_path / "ran")
    explainer = gaflow.Explainer(folder, device="cpu", trust_remote_code=True)
    ray_engine.send_foreign_code()
    sent = ray_engine.ray_module().cloudpickle.dumps(explainer.model)
    received = subprocess.run(
        [sys.executable, "-c", "import sys, pickle; print(type(pickle.load(sys.stdin.buffer)).__name__)"],
        input=sent, capture_output=True, check=False,
    )  # fmt: skip
    assert received.stdout.decode().strip() == "ForeignForSequenceClassification"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers.* 0"),
        ({"threads": True}, "threads.*True"),
        ({"device": "mps"}, "device.*'cpu'.*'cuda'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ray(**settings)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    engine = ENGINES["ray"]
    with pytest.raises(MissingExtraError, match=r"pip install 'gaflow\[ray\]'"), engine(gaflow.Explainer(*bert())):
        pass


class Slow:
    """A Ray that starts at the given attempt, if at all."""

    def __init__(self, attempt, error="The current node timed out during startup."):
        self.attempt = attempt
        self.error = error
        self.tried = 0
        self.closed = 0

    def init(self, **_):
        self.tried += 1
        if self.tried < self.attempt:
            raise Exception(self.error)  # as Ray does

    def shutdown(self):
        self.closed += 1


def test_a_busy_machine_gets_more_time_to_start_ray(monkeypatch):
    ray = Slow(3)
    monkeypatch.setitem(sys.modules, "ray", ray)
    ray_engine.start_ray(num_cpus=2)
    assert (ray.tried, ray.closed) == (3, 2)


def test_a_ray_that_does_not_start_is_reported_and_other_errors_are_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", Slow(99))
    with pytest.raises(JobError, match=r"4 attempts.*ray start --head"):
        ray_engine.start_ray()
    monkeypatch.setitem(sys.modules, "ray", Slow(99, "no such address"))
    with pytest.raises(Exception, match="no such address"):
        ray_engine.start_ray()
