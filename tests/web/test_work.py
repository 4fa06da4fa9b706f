"""Work: its states, its progress and its end."""

import json

import pytest

from gaflow.web.problems import HttpProblem
from gaflow.web.work import Work, WorkList


def status_of(work):
    return json.loads(work.status())


def test_progress_grows_from_nothing_to_all():
    fractions = []

    def task(progress):
        for done in (0, 0.5, 1, 4):
            progress(done, 4)
            fractions.append(work.fraction)
        return {"answer": 42}

    work = Work(task, 60)
    assert status_of(work) == {"id": work.key, "state": "waiting", "progress": 0.0}
    work.run()
    assert fractions == [0, 0.125, 0.25, 1]
    assert status_of(work) == {"id": work.key, "state": "done", "progress": 1.0, "answer": {"answer": 42}}


def test_an_unexpected_error_shows_nothing_of_the_inside():
    def task(progress):
        raise RuntimeError("/secret/path.py")

    work = Work(task, 60)
    work.run()
    assert work.state == "failed"
    problem = status_of(work)["problem"]
    assert problem["status"] == 500
    assert "secret" not in str(problem)


def test_work_that_takes_too_long_ends_at_its_next_report():
    steps = []

    def task(progress):
        for done in range(10):
            steps.append(done)
            progress(done, 10)
        return {}

    work = Work(task, -1)
    work.run()
    assert steps == []
    assert work.problem is not None
    assert work.problem.status_code == 422


def test_stopped_work_ends_at_its_next_report():
    steps = []

    def task(progress):
        progress(1, 3)
        work.stop()
        steps.append("before")
        progress(2, 3)
        steps.append("after")
        return {}

    work = Work(task, 60)
    work.run()
    assert steps == ["before"]
    assert work.state == "stopped"


def test_work_that_waits_is_stopped_at_once():
    work = Work(lambda progress: {}, 60)
    work.stop()
    assert work.state == "stopped"
    work.run()
    assert work.state == "stopped"


def test_finished_work_is_forgotten_when_there_is_much_of_it():
    work_list = WorkList()
    waiting = Work(lambda progress: {}, 60)
    work_list.add(waiting)
    done = []
    for _ in range(100):
        work = Work(lambda progress: {}, 60)
        work.run()
        work_list.add(work)
        done.append(work)
    assert work_list.get(waiting.key) is waiting
    assert work_list.get(done[-1].key) is done[-1]
    with pytest.raises(HttpProblem):
        work_list.get(done[0].key)
