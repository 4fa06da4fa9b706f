import ast
import importlib
import subprocess
import sys
from inspect import getdoc, ismodule
from pathlib import Path

import pytest

import gaflow
from tests.support.rooms import imports

SOURCE = Path(gaflow.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))


def test_all_names_are_what_can_be_imported():
    public = {name for name, value in vars(gaflow).items() if name[0] != "_" and not ismodule(value)}
    assert public == {name for name in gaflow.__all__ if not ismodule(getattr(gaflow, name))}
    assert len(set(gaflow.__all__)) == len(gaflow.__all__)
    assert ismodule(gaflow.information)


def test_completion_lists_the_public_names_alone():
    assert dir(gaflow) == sorted([*gaflow.__all__, "__version__"])


@pytest.mark.parametrize("room", ["benchmark", "data", "evaluation", "html", "jobs", "methods", "plots"])
def test_rooms_that_users_import_are_there_all_the_same(room):
    module = importlib.import_module(f"gaflow.{room}")
    assert getattr(gaflow, room) is module


def test_the_names_of_the_contract_are_there():
    contract = {"Explainer", "Attribution", "explain", "load", "solve", "METHODS", "information", "Flow"}
    assert contract | {"GaflowError", "SolveError", "UnsupportedModelError"} <= set(gaflow.__all__)
    for name in ("af", "gf", "agf"):
        assert callable(getattr(gaflow.information, name))
        assert name in gaflow.METHODS


def test_every_public_name_is_documented():
    bare = [name for name in gaflow.__all__ if name != "METHODS" and not getdoc(getattr(gaflow, name))]
    assert bare == []


def test_only_one_room_imports_transformers_and_none_pickle():
    allowed = {SOURCE / "models" / name for name in ("loading.py", "attention_interface.py")}
    own_processes = SOURCE / "jobs" / "local_engine.py"  # what it unpickles comes from processes that it started
    for path in FILES:
        roots = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
        assert "transformers" not in roots or path in allowed
        assert path == own_processes or not roots & {"pickle", "dill", "joblib", "shelve"}


def test_importing_gaflow_stays_light():
    code = "import sys, gaflow; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "torch" in loaded
    heavy = {
        "transformers",
        "tokenizers",
        "pandas",
        "pyarrow",
        "datasets",
        "matplotlib",
        "ortools",
        "cvxpy",
        "captum",
        "shap",
        "rich",
    }
    assert not loaded & heavy
    assert done.stderr == ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_can_be_read_in_one_sitting(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    assert ast.get_docstring(ast.parse(text))
