"""The notebooks, made and run from the plain Python files beside this one: `make notebooks`.

A line `# %%` begins a cell of code, `# %% [markdown]` one of text. What is written depends on the sources and on what
they print alone: no times, no paths, no names of machines. They run in a folder that goes away, with ../data beside it.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
SOURCES = sorted(path for path in HERE.glob("*.py") if path.name != "make.py")
_MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
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


def build(source: str) -> NotebookNode:
    """The notebook of a source, not run yet."""
    before, *parts = _MARK.split(source)
    if before:
        raise ValueError(f"a source begins with '# %%', not with {before[:40]!r}")
    cells = []
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if kind:
            cell = new_markdown_cell(re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE))
        else:
            cell = new_code_cell(body.strip())
        cell.id = f"cell-{len(cells)}"  # a random one would be another one each time
        cells.append(cell)
    return new_notebook(cells=cells, metadata=_ABOUT)


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
        notebook = run(build(source.read_text(encoding="utf-8")))
        nbformat.write(notebook, source.with_suffix(".ipynb"))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or SOURCES)
