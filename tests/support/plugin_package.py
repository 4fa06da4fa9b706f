"""Packages with entry points, installed in a folder without pip."""

import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "data" / "plugin"


def install(folder, name, groups):
    """Write the metadata of a package whose entry points are group -> {name: object}."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{point} = {value}" for point, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def install_example(folder):
    """Install the example package as its pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(folder, project["name"], project["entry-points"])
    package = folder / "gaflow_example"
    package.mkdir()
    (package / "__init__.py").write_text((EXAMPLE / "gaflow_example" / "__init__.py").read_text())
