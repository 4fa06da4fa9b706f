"""Every notebook is what its source gives: the same cells, and the same text below them when it is run again."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
MAKE = runpy.run_path(str(FOLDER / "make.py"))
SOURCES = MAKE["SOURCES"]
NAMES = [path.stem for path in SOURCES]


def committed(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def texts(notebook):
    """What is written below the cells of code: printed, or shown as plain text; for a figure, that it is one."""
    outputs = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", output
            if output.output_type == "stream":
                text = output.text
            else:
                text = "a figure" if "image/png" in output.data else output.data["text/plain"]
            outputs.extend(text.splitlines())  # how many pieces a stream comes in depends on the speed of the machine
    return outputs


def test_every_main_use_has_its_notebook_and_every_notebook_its_source():
    uses = {"classification", "compare", "tasks", "long_texts", "data_set", "own_method", "benchmark"}
    uses |= {"layers_and_flow"}
    assert set(NAMES) == uses
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_the_cells_of_its_source(name):
    built = MAKE["build"]((FOLDER / f"{name}.py").read_text(encoding="utf-8"), MAKE["colab_badge"](name))
    stored = committed(name)
    assert [(c.id, c.cell_type, c.source) for c in stored.cells] == [(c.id, c.cell_type, c.source) for c in built.cells]
    assert stored.metadata == built.metadata
    nbformat.validate(stored)


def run_apart(source, target):
    """The notebook made and run in a process of its own: the kernel's client leaves its sockets open."""
    code = (
        "import nbformat, pathlib, runpy, sys\n"
        "make, source, target = runpy.run_path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]\n"
        "nbformat.write(make['run'](make['build'](source.read_text(encoding='utf-8'))), target)\n"
    )
    arguments = [FOLDER / "make.py", source, target]
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_run_again_says_what_it_said(name, tmp_path):
    target = tmp_path / "again.ipynb"
    done = run_apart(FOLDER / f"{name}.py", target)
    assert done.returncode == 0, done.stderr
    again = nbformat.read(target, as_version=4)
    assert texts(again) == texts(committed(name))
    assert texts(again)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_was_run_in_order_and_tells_no_time_and_no_place(name):
    notebook = committed(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert [cell.metadata for cell in notebook.cells if cell.metadata] == [{"tags": ["remove-cell"]}]
    kinds = {output.get("name") for cell in code for output in cell.outputs}
    assert kinds <= {None, "stdout"}  # no warning either
    for cell in code:
        for output in cell.outputs:
            output.get("data", {}).pop("image/png", None)  # in which any letters may follow another
    assert (
        re.findall(r"(?:/(?:home|tmp|root|Users|usr|opt|var)/|site-packages|\b0x[0-9a-f]{6,})", json.dumps(notebook))
        == []
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_of_moderate_size(name):
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 500_000


@pytest.mark.parametrize("name", NAMES)
def test_the_first_code_of_a_notebook_installs_gaflow_on_colab_alone(name):
    first = next(cell for cell in committed(name).cells if cell.cell_type == "code")
    python = "\n".join(line for line in first.source.splitlines() if line.lstrip()[:1] not in "%!")
    assert first.outputs == []  # nothing happened here
    commands = [line.split()[0] for line in first.source.splitlines() if line.startswith("    ")]
    assert commands[0] == "%pip"
    assert 'if "google.colab" in sys.modules:' in python
    reads_data = "../data/" in (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert ("!tar" in commands) == reads_data


def test_the_badge_needs_an_address_on_github(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text('[project.urls]\nSource = "https://github.com/owner/name"\n', encoding="utf-8")
    badge = MAKE["colab_badge"]("compare", project)
    assert "/github/owner/name/blob/main/examples/notebooks/compare.ipynb" in badge
    built = MAKE["build"]("# %% [markdown]\n# # Title\n\n# %%\n1\n", badge)
    assert built.cells[0].source == f"# Title\n\n{badge}"
    project.write_text('[project.urls]\nSource = "https://example.org/name"\n', encoding="utf-8")
    assert MAKE["colab_badge"]("compare", project) == ""


def test_what_stands_before_the_first_cell_is_refused():
    with pytest.raises(ValueError, match="begins with '# %%'"):
        MAKE["build"]("import gaflow\n# %%\ngaflow\n")


def test_an_error_in_a_cell_is_raised(tmp_path):
    source = tmp_path / "wrong.py"
    source.write_text("# %%\n1 / 0\n", encoding="utf-8")
    done = run_apart(source, tmp_path / "wrong.ipynb")
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
    assert not (tmp_path / "wrong.ipynb").exists()
