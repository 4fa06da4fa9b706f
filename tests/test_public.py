import ast
import subprocess
import sys
from inspect import getdoc, ismodule
from pathlib import Path

import pytest

import gaflow

SOURCE = Path(gaflow.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# A room may import from the rooms before it, never from those after it.
ROOMS = [
    "errors",
    "layers",
    "borrowing",
    "adapters",
    "information",
    "network",
    "dense",
    "graph",
    "solvers",
    "estimate",
    "memory",
    "spans",
    "media",
    "storage",
    "targets",
    "parts",
    "units",
    "text",
    "tasks",
    "residual",
    "tracing",
    "lrp",
    "methods",
    "default",
    "loading",
    "shading",
    "depiction",
    "markup",
    "html",
    "plots",
    "attribution",
    "shapley",
    "progress",
    "results",
    "windows",
    "explainer",
    "one_call",
    "several",
    "data",
    "jobs",
    "evaluation",
    "__init__",
    "terminal",
    "side_by_side",
    "commands",
    "cli",
    "__main__",
]


def room(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imports(tree):
    """Modules imported anywhere in a file, but for what only the type checker sees."""
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out in full"
            assert node.module is not None
            if node.module == "gaflow":
                yield from (f"gaflow.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_all_names_are_what_can_be_imported():
    public = {name for name, value in vars(gaflow).items() if name[0] != "_" and not ismodule(value)}
    assert public == {name for name in gaflow.__all__ if not ismodule(getattr(gaflow, name))}
    assert len(set(gaflow.__all__)) == len(gaflow.__all__)
    assert ismodule(gaflow.information)


def test_the_names_of_the_contract_are_there():
    contract = {"Explainer", "Attribution", "explain", "load", "solve", "METHODS", "information", "Flow"}
    assert contract | {"GaflowError", "SolveError", "UnsupportedModelError"} <= set(gaflow.__all__)
    for name in ("af", "gf", "agf"):
        assert callable(getattr(gaflow.information, name))
        assert name in gaflow.METHODS


def test_every_public_name_is_documented():
    bare = [name for name in gaflow.__all__ if name != "METHODS" and not getdoc(getattr(gaflow, name))]
    assert bare == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    here = room(path)
    assert here in ROOMS, f"give {here} its place in ROOMS"
    for name in imports(ast.parse(path.read_text())):
        if name.split(".")[0] != "gaflow":
            continue
        there = [*name.split("."), "__init__"][1]
        assert there in ROOMS, f"{here} imports {name}"
        assert ROOMS.index(there) < ROOMS.index(here) or there == here, f"{here} must not import {name}"


def test_the_numerical_core_never_sees_a_string_or_a_model():
    core = [p for p in FILES if room(p) in ("information", "network", "solvers", "dense")]
    allowed = {"errors", "information", "network", "solvers", "dense"}
    for path in core:
        inside = {n.split(".")[1] for n in imports(ast.parse(path.read_text())) if n.startswith("gaflow.")}
        assert inside <= allowed


def test_only_one_room_imports_transformers_and_none_pickle():
    for path in FILES:
        roots = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
        assert "transformers" not in roots or room(path) == "loading"
        assert not roots & {"pickle", "dill", "joblib", "shelve"}


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
    assert len(text.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(text))
