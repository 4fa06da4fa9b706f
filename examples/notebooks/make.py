"""The notebooks, made and run from the plain Python files beside this one: `make notebooks`.

A line `# %%` begins a cell of code, `# %% [markdown]` one of text. What is written depends on the sources and on what
they print alone: no times, no paths, no names of machines. They run in a folder that goes away, with ../data beside it.

After the title comes a cell that makes the notebook work on Google Colab. The site does not show it. The badge that
opens a notebook there needs the address of the repository: it is written once `project.urls` in pyproject.toml has a
`Source` on GitHub.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
SOURCES = sorted(path for path in HERE.glob("*.py") if path.name != "make.py")
_MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
_GITHUB = "https://github.com/"
_COLAB = """\
# On Google Colab, install gaflow first.
import sys

if "google.colab" in sys.modules:
    %pip install --quiet 'gaflow[all]'"""
_COLAB_DATA = """
    !pip download --quiet --no-deps --no-binary gaflow gaflow  # the sources, which hold the reviews
    !mkdir -p ../data
    !tar -xzf gaflow-*.tar.gz -C ../data --strip-components=3 --wildcards '*/examples/data/*'"""
_ABOUT = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",
    "TQDM_DISABLE": "1",  # bars show times
    "OMP_NUM_THREADS": "1",  # several would add in an order of their own
    "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm's, which misses widgets that nothing here shows
}


def build(source: str, badge: str = "") -> NotebookNode:
    """The notebook of a source, not run yet. The badge goes below the title."""
    before, *parts = _MARK.split(source)
    if before:
        raise ValueError(f"a source begins with '# %%', not with {before[:40]!r}")
    cells = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if kind:
            cell = new_markdown_cell(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            cell = new_code_cell(body.strip())
        cells.append(cell)
    if cells and cells[0].cell_type == "markdown":
        cells[0].source = "\n\n".join(filter(None, [cells[0].source, badge]))
        cells.insert(1, colab_cell(source))
    for index, cell in enumerate(cells):
        cell.id = f"cell-{index}"  # a random one would be another one each time
    return new_notebook(cells=cells, metadata=_ABOUT)


def colab_cell(source: str) -> NotebookNode:
    """The cell that installs gaflow on Colab, and elsewhere does nothing; with the data, if the source reads them."""
    code = _COLAB + (_COLAB_DATA if "../data/" in source else "")
    return new_code_cell(code, metadata={"tags": ["remove-cell"]})


def colab_badge(name: str, project: Path = HERE.parent.parent / "pyproject.toml") -> str:
    """A link that opens a notebook on Colab; empty while the repository has no known address on GitHub."""
    addresses = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["urls"]
    source = addresses.get("Source", "")
    if not source.startswith(_GITHUB):
        return ""
    place = f"{source.removeprefix(_GITHUB).strip('/')}/blob/main/examples/notebooks/{name}.ipynb"
    picture = "https://colab.research.google.com/assets/colab-badge.svg"
    return f"[![Open in Colab]({picture})](https://colab.research.google.com/github/{place})"


def run(notebook: NotebookNode) -> NotebookNode:
    """Run all cells in a fresh kernel, in a folder that goes away afterwards; an error in a cell is raised."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(HERE.parent / "data", f"{folder}/data")
        (Path(folder) / HERE.name).mkdir()
        asyncio.run(_run(notebook, folder))
    notebook.metadata = nbformat.from_dict(_ABOUT)  # the kernel adds the version that it runs on
    return notebook


def _place(folder: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"path": f"{folder}/{HERE.name}"}}


async def _run(notebook: NotebookNode, folder: str) -> None:
    kernel = AsyncKernelManager(connection_file=f"{folder}/kernel.json", transport="ipc", ip=f"{folder}/socket")
    client = NotebookClient(notebook, km=kernel, record_timing=False, resources=_place(folder))
    try:
        await client.async_execute(env=os.environ | _SETTINGS | {"IPYTHONDIR": folder})
    finally:
        await kernel.shutdown_kernel(now=True)


def main(sources: list[Path]) -> None:
    """Write the notebook of each source beside it."""
    for source in sources:
        notebook = run(build(source.read_text(encoding="utf-8"), colab_badge(source.stem)))
        nbformat.write(notebook, source.with_suffix(".ipynb"))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or SOURCES)
