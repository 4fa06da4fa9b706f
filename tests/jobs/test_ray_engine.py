import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gaflow
from gaflow.data import Row
from gaflow.errors import JobError, MissingExtraError
from gaflow.jobs import ENGINES, Ray, attribute
from gaflow.jobs import ray_engine as cluster
from gaflow.jobs.engine import ShardSettings
from tests.support.clustered import METHODS, TEXTS
from tests.support.models import bert
from tests.support.runs import files


def test_a_run_that_loses_a_worker_half_way_ends_with_the_bytes_of_a_local_run(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.clustered", str(tmp_path / "ray")],
        capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["finished"], told["computed"]) == (True, 60)
    attribute(gaflow.Explainer(*bert()), TEXTS, tmp_path / "local", METHODS, batch_size=2, shard_size=3)
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    times = [json.loads(line) for line in (tmp_path / "ray" / "timings.jsonl").read_text().splitlines()]
    assert sorted(entry["shard"] for entry in times) == list(range(20))
    workers = {int(entry["worker"].rpartition(":")[2]) for entry in times}
    assert set(told["killed"]) < workers


class Ref:
    """A promise of the pretended Ray below."""

    def __init__(self, make):
        self.make = make


class PretendedRay:
    """As much of Ray as the driver uses, in one process, where actors die when the test says so."""

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError):
            def __init__(self, cause):
                self.cause = cause

        class RayActorError(RayError): ...

    def __init__(self, dies=lambda worker, name, given: False, nodes=({"CPU": 4.0},)):
        self.dies, self.created, self.killed = dies, 0, []
        self.nodes = lambda: [{"Alive": True, "Resources": node} for node in nodes]
        self.cluster_resources = lambda: {k: sum(n.get(k, 0) for n in nodes) for k in ("CPU", "GPU")}

    def put(self, value):
        return value

    def remote(self, **settings):
        self.settings = settings
        return lambda cls: SimpleNamespace(remote=lambda *given: self.actor(cls, *given))

    def actor(self, cls, *given):
        self.created += 1
        number, inner = self.created, cls(*given)

        def method(name):
            def call(*given):
                def make():
                    if self.dies(number, name, given):
                        raise self.exceptions.RayActorError("The actor died.\nmore")
                    try:
                        return getattr(inner, name)(*given)
                    except Exception as error:
                        raise self.exceptions.RayTaskError(error) from error

                return Ref(make)

            remote = SimpleNamespace(remote=call)
            return SimpleNamespace(options=lambda concurrency_group: remote)

        return SimpleNamespace(load=method("load"), make=method("make"), tell=method("tell"), number=number)

    def wait(self, refs, num_returns, timeout):
        return refs[:num_returns], refs[num_returns:]

    def get(self, ref):
        return ref.make()

    def kill(self, worker):
        self.killed.append(worker.number)


class Worker(cluster._Worker):
    """Takes the model from where the pretended `put` has left it."""

    def load(self, sent):
        model, tokenizer, task = sent[0]
        self._explainer = gaflow.Explainer(model, tokenizer, task=task)


@pytest.fixture
def pretend(monkeypatch):
    def use(**settings):
        ray = PretendedRay(**settings)
        monkeypatch.setattr(cluster, "_connect", lambda: (ray, False))
        monkeypatch.setattr(cluster, "_Worker", Worker)
        return ray

    return use


def run(out, stop=lambda: False, texts=TEXTS[:20], **given):
    settings: Any = {"threads": 1} | given
    engine = Ray(**settings)
    return attribute(gaflow.Explainer(*bert()), texts, out, ["rawatt"], shard_size=3, engine=engine, stop=stop)


def test_all_shards_are_computed_whoever_is_lost(pretend, tmp_path):
    lost = []

    def dies(worker, name, given):
        if name == "make" and worker in (1, 3) and given[1][0] in (2, 4):
            lost.append(worker)
            return True
        return name == "load" and worker == 4

    ray = pretend(dies=dies)
    outcome = run(tmp_path / "job", workers=2)
    assert outcome.finished
    assert 1 in lost
    assert set(lost) <= set(ray.killed)
    assert ray.created >= 3
    assert len(ray.killed) == len(set(ray.killed)) == ray.created  # every worker is ended, and once
    attribute(gaflow.Explainer(*bert()), TEXTS[:20], tmp_path / "local", ["rawatt"], shard_size=3)
    assert files(tmp_path / "job") == files(tmp_path / "local")


def test_a_shard_that_kills_every_worker_ends_the_run_and_keeps_the_others(pretend, tmp_path):
    pretend(dies=lambda worker, name, given: name == "make" and given[1][0] == 3)
    with pytest.raises(JobError, match=r"shard 3 has lost its worker, 4 times: The actor died\..*smaller batch_size"):
        run(tmp_path / "job", workers=1)
    pretend()
    outcome = run(tmp_path / "job", workers=1)
    assert outcome.finished
    assert outcome.computed < 20


def test_workers_that_never_start_end_the_run(pretend, tmp_path):
    ray = pretend(dies=lambda worker, name, given: name == "load")
    with pytest.raises(JobError, match="no worker could be started, 4 times"):
        run(tmp_path / "job")
    assert len(ray.killed) == ray.created


def test_no_more_workers_are_started_than_there_are_shards(pretend, tmp_path):
    ray = pretend(nodes=[{"CPU": 40.0}])
    assert run(tmp_path / "job", texts=TEXTS[:5]).finished
    assert ray.created == 2


@pytest.mark.parametrize(
    ("nodes", "settings", "workers", "needs"),
    [
        ([{"CPU": 5.0}, {"CPU": 3.0}, {"CPU": 1.0}], {"threads": 2}, 3, {"num_cpus": 2}),
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 1.0, "GPU": 4.0}], {"device": None}, 3, {"num_gpus": 1, "num_cpus": 1}),
        ([{"CPU": 8.0, "GPU": 2.0}], {"device": "cpu"}, 8, {"num_cpus": 1}),
        ([{"CPU": 1.0}], {"workers": 7}, 7, {"num_cpus": 1}),
    ],
)
def test_workers_take_what_the_nodes_have(pretend, nodes, settings, workers, needs):
    ray = pretend(nodes=nodes)
    with Ray(**({"threads": 1} | settings))(gaflow.Explainer(*bert())) as ready:
        assert ready.place == ("cuda" if "num_gpus" in needs else "cpu")
        assert ready.compute.args[0].most == workers  # type: ignore[attr-defined]
    assert needs.items() <= ray.settings.items()


def test_a_cluster_without_room_for_a_worker_is_refused(pretend, tmp_path):
    pretend(nodes=[{"CPU": 2.0}, {"CPU": 3.0}])
    with pytest.raises(JobError, match=r"no node of the Ray cluster has 4 CPUs.*OMP_NUM_THREADS"):
        run(tmp_path / "job", threads=4)


def test_an_error_that_all_texts_have_is_raised_as_it_is(pretend, tmp_path, monkeypatch):
    pretend()
    error = gaflow.UnsupportedModelError("no attention")

    def refuse(*given):
        raise error

    monkeypatch.setattr(cluster, "make_shard", refuse)
    with pytest.raises(gaflow.UnsupportedModelError, match="no attention") as found:
        run(tmp_path / "job")
    assert found.value is error


def test_stopping_keeps_what_is_finished(pretend, tmp_path):
    pretend()
    asked = []

    def stop():
        asked.append(1)
        return len(asked) > 4

    outcome = run(tmp_path / "job", stop, workers=1)
    assert not outcome.finished
    assert 0 < outcome.texts < 20
    assert run(tmp_path / "job", workers=1).texts == 20


def test_progress_never_goes_back(pretend, tmp_path):
    losses = []

    def dies(worker, name, given):
        if name == "make" and len(losses) < 2 and given[1][0] == 1:
            losses.append(worker)
        return name == "make" and worker in losses

    ray = pretend(dies=dies)
    pool = cluster._Pool(ray, {"num_cpus": 1}, 1, (cluster._portable(gaflow.Explainer(*bert())), "cpu", 1))
    rows = [(k, [Row(k, f"a dog {k}")]) for k in range(4)]
    told: list[float] = []
    plan = ShardSettings((gaflow.METHODS["rawatt"],))
    assert sorted(m.number for m in cluster._compute(pool, plan, iter(rows), told.append, lambda: False)) == [
        0,
        1,
        2,
        3,
    ]
    assert told == sorted(told)
    assert told[-1] == 4
    assert losses


def test_a_model_elsewhere_is_sent_from_a_copy():
    model, tokenizer = bert()
    sent, _, task = cluster._portable(gaflow.Explainer(model, tokenizer))
    assert sent is model
    assert task == "text-classification"
    with torch.device("meta"):
        away = type(model)(model.config)
    away.cpu = lambda: "copied"  # a copy keeps it
    assert cluster._portable(SimpleNamespace(model=away, tokenizer=None, task="t"))[0] == "copied"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers must be a whole number >= 1, not 0"),
        ({"threads": True}, "threads must be a whole number >= 1, not True"),
        ({"device": "mps"}, "device must be 'cpu' or 'cuda' with Ray"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ray(**settings)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gaflow\[ray\]'"):
        cluster._connect()
    assert isinstance(ENGINES["ray"], Ray)


class Slow:
    """A Ray that starts at the given attempt, if at all."""

    def __init__(self, attempt, error="The current node timed out during startup."):
        self.attempt, self.error, self.tried, self.closed = attempt, error, 0, 0

    def init(self, **_):
        self.tried += 1
        if self.tried < self.attempt:
            raise Exception(self.error)  # as Ray does

    def shutdown(self):
        self.closed += 1


def test_a_busy_machine_gets_more_time_to_start_ray():
    ray = Slow(3)
    cluster.start_ray(ray, num_cpus=2)
    assert (ray.tried, ray.closed) == (3, 2)


def test_a_ray_that_does_not_start_is_said_so_and_other_errors_are_its_own():
    with pytest.raises(JobError, match=r"did not start in 4 attempts.*ray start --head"):
        cluster.start_ray(Slow(99))
    with pytest.raises(Exception, match="no such address"):
        cluster.start_ray(Slow(99, "no such address"))
