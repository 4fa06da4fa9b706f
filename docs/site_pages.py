"""Pages of the site that are made from other files of the repository, none of them committed twice.

tutorials/*.ipynb   the notebooks of examples/notebooks with their stored outputs
results/*.md        the tables of benchmarks/results
project/*.md        CONTRIBUTING, CHANGELOG and SECURITY
api/commands.md     the commands of `gaflow` and their options
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import typer.main

from gaflow.cli.commands import app

DOCS = Path(__file__).parent
ROOT = DOCS.parent
_RESULTS = ROOT / "benchmarks" / "results"
_FAITHFULNESS = _RESULTS / "faithfulness" / "tables.md"
_PROJECT_FILES = ("CONTRIBUTING", "CHANGELOG", "SECURITY")
_LINK = re.compile(r"(?<!!)\[(?P<text>[^]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")

_RESULTS_INDEX = """\
# Measurements

The scripts in the folder `benchmarks` of the repository wrote these tables. Each names the machine, the version and
the seed. Times depend on the machine; compare the ratios.

```{toctree}
:glob:

*
```
"""

_INTRODUCTION = """\
# Command line

Every command prints its result to standard output. An error is one line on standard error. The exit code says what
happened:

| exit code | meaning |
|---|---|
| 0 | done |
| 2 | bad input: an unknown option, model, target, file ... |
| 1 | anything else |
| 130 | interrupted |

Set `GAFLOW_DEBUG=1` to see the traceback of an error. `gaflow COMMAND --help` prints what you find below.
"""


def write_pages() -> None:
    """Write the generated pages. What is up to date is left alone: Sphinx reads again what is newer than its page."""
    for name, content in _pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _pages() -> dict[str, bytes]:
    pages = {"api/commands.md": command_reference().encode()}
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        pages[f"tutorials/{notebook.name}"] = notebook.read_bytes()
    for table in [*sorted(_RESULTS.glob("*.md")), _FAITHFULNESS]:
        pages[f"results/{_result_name(table)}.md"] = _moved(table, "results")
    pages["results/index.md"] = _RESULTS_INDEX.encode()
    for name in _PROJECT_FILES:
        pages[f"project/{name.lower()}.md"] = _moved(ROOT / f"{name}.md", "project")
    return pages


def _moved(path: Path, folder: str) -> bytes:
    """A page for a folder of the site, with its links made good for the new place."""
    text = path.read_text(encoding="utf-8")
    return site_links(text, path.parent, DOCS / folder).encode()


def site_links(text: str, old: Path, new: Path) -> str:
    """Turn links relative to the folder `old` into links from the folder `new` of the site.

    Files that have a page on the site are linked there. Other files of the repository become plain text: the site has
    no address for them.
    """

    def rewrite(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target:
            return match[0]
        page = _page_of((old / target).resolve())
        if page is None:
            return match["text"]
        address = Path(os.path.relpath(page, new)).as_posix()
        return f"[{match['text']}]({address}{match['anchor'] or ''})"

    return _LINK.sub(rewrite, text)


def list_of_pages() -> str:
    """The repository's llms.txt with links to the pages of the site."""
    text = site_links((ROOT / "llms.txt").read_text(encoding="utf-8"), ROOT, DOCS)
    return re.sub(r"\.(?:md|ipynb)(?=[)#])", ".html", text)


def _page_of(file: Path) -> Path | None:
    """Where the site shows a file of the repository."""
    if file.is_relative_to(DOCS) and file.suffix in (".md", ".ipynb"):
        return file
    if file.parent == ROOT and file.stem in _PROJECT_FILES:
        return DOCS / "project" / f"{file.stem.lower()}.md"
    if file == ROOT / "README.md":
        return DOCS / "index.md"
    if file == _FAITHFULNESS or (file.parent == _RESULTS and file.suffix == ".md"):
        return DOCS / "results" / f"{_result_name(file)}.md"
    if file.parent == ROOT / "examples" / "notebooks" and file.suffix == ".ipynb":
        return DOCS / "tutorials" / file.name
    return None


def _result_name(table: Path) -> str:
    return "faithfulness" if table == _FAITHFULNESS else table.stem


def command_reference() -> str:
    """One section for each command: what it does, its example, and a table of its arguments and options."""
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = group.commands
    sections = [_INTRODUCTION]
    for name, command in sorted(commands.items()):
        sections.append(_section(name, command))
    return "\n".join(sections)


def _section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    rows = [_row(parameter, context) for parameter in command.params if parameter.name != "help"]
    usage = " ".join(["gaflow", name, *command.collect_usage_pieces(context)])
    table = "\n".join(["| argument or option | meaning | default |", "|---|---|---|", *rows])
    return f"## `gaflow {name}`\n\n{_help_text(command)}\n\n```\n{usage}\n```\n\n{table}\n"


def _help_text(command: Any) -> str:
    """The help of a command; lines that are indented, such as examples, become code."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", command.help.replace("\b", "").strip()):
        prose = [line for line in paragraph.splitlines() if not line.startswith("  ")]
        code = [line.strip() for line in paragraph.splitlines() if line.startswith("  ")]
        if prose:
            paragraphs.append("\n".join(prose))
        if code:
            paragraphs.append("\n".join(["```", *code, "```"]))
    return "\n\n".join(paragraphs)


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or parameter.name.upper()}`".replace("|", "\\|")
        default = ""
    else:
        name = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
        default = _default(parameter, context)
    return f"| {name} | {_cell(parameter.help or '')} | {default} |"


def _default(option: Any, context: Any) -> str:
    value = option.get_default(context)
    if value is None or value is False or callable(value):
        return ""
    return f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
