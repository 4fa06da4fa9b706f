import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported: no test waits for a network

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)  # the models here are tiny, and test processes share the cores

# `pytest tests/hostile --hypothesis-profile=thorough` looks for what the few examples of every run do not find
ALL_CHECKS = list(HealthCheck)
settings.register_profile("default", max_examples=30, derandomize=True, deadline=None, suppress_health_check=ALL_CHECKS)
settings.register_profile("thorough", max_examples=10_000, deadline=None, suppress_health_check=ALL_CHECKS)
settings.load_profile("default")


SLOW_FOLDERS = ("docs", "laws", "scripts")  # whole pages, all methods on all families, scripts of benchmarks/


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Where a tiny BERT is saved."""
    from tests.support.commands import saved
    from tests.support.models import bert

    return saved(bert(), tmp_path_factory.mktemp("models"))


@pytest.fixture
def plain(monkeypatch):
    """A terminal of 100 columns, about which the environment says nothing else."""
    for name in ("NO_COLOR", "FORCE_COLOR", "GAFLOW_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(scope="session")
def explainer():
    """A tiny BERT, for the tests of the evaluation."""
    from gaflow import Explainer
    from tests.support.models import bert

    return Explainer(*bert())


@pytest.fixture(scope="session")
def evaluated(explainer):
    """The five texts of tests/evaluated.py, evaluated."""
    from gaflow.evaluation.faithfulness import evaluate
    from tests.support.evaluated import LABELS, METHODS, TEXTS

    return evaluate(explainer, TEXTS, LABELS, METHODS)
