"""Mutants: what is changed, and that tests notice it in a copy of the package."""

import ast
import json
import subprocess
import sys

import pytest

from benchmarks.mutants import EXPLAINED, MODULES, ROOT, explanation, report
from benchmarks.mutations import Mutant, mutants_of

SOURCE = '''"""Not 1 but 2."""

LIMIT = 10


def count(values: "1", strict=True) -> "0":
    total = 0
    for value in values:
        if value < LIMIT and value:
            total += value
    if not total:
        raise ValueError(f"{total + 1}")
    values.sort()
    return max(values) - total
'''


def changes(source):
    return {(mutant.before, mutant.after) for mutant in mutants_of("some/module", source)}


def test_every_small_thing_is_changed_but_no_text_and_no_setting():
    assert changes(SOURCE) == {
        ('def count(values: "1", strict=True) -> "0":', 'def count(values: "1", strict=False) -> "0":'),
        ("total = 0", "total = 1"),
        ("if value < LIMIT and value:", "if (value < LIMIT or value):"),
        ("if value < LIMIT and value:", "if (value <= LIMIT) and value:"),
        ("total += value", "total -= value"),
        ("total += value", "pass"),
        ("if not total:", "if (total):"),
        ("values.sort()", "pass"),
        ("return max(values) - total", "return None"),
        ("return max(values) - total", "return (max(values) + total)"),
        ("return max(values) - total", "return min(values) - total"),
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("2 * a / b", {"(2 * a * b)", "(2 / a) / b", "3 * a / b"}),
        ("(α > β).all(-1)", {"(α > β).any(-1)", "((α >= β)).all(-1)", "(α > β).all(-0)", "(α > β).all(-2)"}),
        ("a if b else 0.5", {"a if (not b) else 0.5", "a if b else 1.0"}),
        ("f'{1}' in names", {"(f'{1}' not in names)"}),
    ],
)
def test_what_is_changed_stays_one_expression(expression, expected):
    line = f"y = f({expression}, y)"
    assert changes(f"if x:\n    {line}") - {("if x:", "if (not x):")} == {
        (line, f"y = f({after}, y)") for after in expected
    }


@pytest.mark.parametrize("module", MODULES)
def test_mutants_of_the_package_are_python_and_all_different(module):
    source = (ROOT / "src" / "gaflow" / f"{module}.py").read_text()
    mutants = mutants_of(module, source)
    for mutant in mutants:
        ast.parse(mutant.source)
        assert mutant.source != source
    assert len({mutant.source for mutant in mutants}) == len(mutants) > 5


def test_the_tests_of_a_module_exist():
    for tests in MODULES.values():
        for name in tests:
            assert (ROOT / "tests" / f"{name}.py").exists()


RUN = """
import json
from benchmarks.mutants import ROOT, Job, judge, run_all
from benchmarks.mutations import Mutant

source = (ROOT / "src/gaflow/evaluation/metrics.py").read_text()
sources = {
    "same": source,
    "wrong": source.replace("np.exp(base)[:, None] - np.exp(masked)", "np.exp(base)[:, None] + np.exp(masked)"),
    "broken": "1 / 0",
    "dying": "import os; os.abort()",
    "endless": "while True: pass",
}
jobs = {}
for name, text in sources.items():
    seconds = 5.0 if name == "endless" else 300.0
    jobs[name] = Job("evaluation/metrics", text, ["-x", "tests/evaluation/test_metrics.py"], seconds)
outcomes = {}

def done(name, child, late):
    mutant = judge(Mutant("evaluation/metrics", 1, "", "", name), child, late)
    outcomes[name] = [mutant.status, mutant.test]

run_all(jobs, 2, float("inf"), done)
print(json.dumps(outcomes))
"""


def test_a_mutant_is_killed_by_the_test_that_fails():
    # in another process, since this one has imported the package
    script = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=True)
    test_file = "tests/evaluation/test_metrics.py"
    test = f"{test_file}::test_losses_are_differences_of_probabilities_and_of_their_logarithms"
    assert json.loads(script.stdout) == {
        "same": ["survived", ""],
        "wrong": ["killed", test],
        "broken": ["killed", test_file],
        "dying": ["crashed", ""],
        "endless": ["timeout", ""],
    }


def test_explained_mutants_are_left_out_of_the_report(monkeypatch):
    def of(line, status, after="y = 2"):
        return Mutant("a/b", line, "y = 1", after, f"diff {line}", status=status)

    mutants = [of(1, "killed"), of(2, "survived"), of(3, "survived", "y = 0"), of(4, "timeout")]
    explained = {"a/b": [{"line": "y = 1", "mutant": "y = 0", "reason": "nobody reads y"}]}
    monkeypatch.setattr("benchmarks.mutants._explanations", lambda: explained)
    assert [explanation(mutant) for mutant in mutants] == [None, None, "nobody reads y", None]
    lines = report(mutants).splitlines()
    assert lines[2:4] == ["| a/b | 3 | 1 | 0 | 1 | 1 |", "| all | 3 | 1 | 0 | 1 | 1 |"]
    assert lines[5:] == ["diff 2"]


def test_every_explanation_is_of_a_mutant_that_exists():
    for module, entries in json.loads(EXPLAINED.read_text()).items():
        source = (ROOT / "src" / "gaflow" / f"{module}.py").read_text()
        lines = {mutant.before: set() for mutant in mutants_of(module, source)}
        for mutant in mutants_of(module, source):
            lines[mutant.before].add(mutant.after)
        for entry in entries:
            assert entry["reason"]
            assert entry.get("mutant") is None or entry["mutant"] in lines[entry["line"]]
            assert entry["line"] in lines
