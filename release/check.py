"""`make release-check`: may this be published?

Builds the sdist, and from it the wheel; checks what they hold and say; installs the wheel without extras and with each
extra alone, in environments that hold nothing else; uses each of them; and lists the licences of all that comes along.

The environments are layered, so that torch is installed once: each extra has an environment of its own on top of one
with torch and the wheel. Everything is in build/release, the two packages in build/release/dist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from release import packages, recipe

ROOT = packages.ROOT
FOLDER = ROOT / "build" / "release"
_NOT_ALONE = {"cli", "dev"}  # empty; and what `make install` installs


def main() -> None:
    """All checks, one after the other. The first that fails ends them, with exit code 1."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)

    _say("build the sdist, and the wheel from it")
    sdist, wheel = packages.build(FOLDER / "dist")
    found = packages.problems(sdist, wheel)
    if found:
        sys.exit("\n".join(found))
    (FOLDER / "recipe.yaml").write_text(recipe.filled_in(sdist), encoding="utf-8")

    _say("check how an index shows the packages")
    tools = _new_environment("tools")
    _install(tools, "twine")
    _run(tools, "-m", "twine", "check", "--strict", str(sdist), str(wheel))

    _say("install and use the core")
    core = _new_environment("core")
    _install(core, "torch")
    _install(core, str(wheel))
    _smoke(core)

    for extra in extras():
        _say(f"install and use gaflow[{extra}]")
        environment = _new_environment(extra, below=core)
        _install(environment, "--no-deps", "--ignore-installed", str(wheel))  # with a command of its own
        _install(environment, f"{wheel}[{extra}]")
        _smoke(environment, *_parts(extra))
        _run(environment, str(ROOT / "release" / "licences.py"), extra, quiet=True)
    _say(f"everything is in order: {sdist.name} and {wheel.name} are in {sdist.parent.relative_to(ROOT)}")


def extras() -> list[str]:
    """The extras that users install, from pyproject.toml."""
    return [name for name in _optional_dependencies() if name not in _NOT_ALONE]


def _optional_dependencies() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"]


def _parts(extra: str) -> list[str]:
    """The extras that an extra consists of: `all` names others, the rest are parts of their own."""
    if extra != "all":
        return [extra]
    (requirement,) = _optional_dependencies()["all"]
    return requirement.removeprefix("gaflow[").removesuffix("]").split(",")


def _say(step: str) -> None:
    print(f"== {step}", flush=True)


def _new_environment(name: str, below: Path | None = None) -> Path:
    """The folder of a new virtual environment; what the one below holds can be imported, too."""
    folder = FOLDER / "environments" / name
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if below is not None:
        (packages_below,) = below.glob("lib/python*/site-packages")
        (packages_here,) = folder.glob("lib/python*/site-packages")
        (packages_here / "below.pth").write_text(f"{packages_below}\n", encoding="utf-8")
    return folder


def _install(environment: Path, *requirements: str) -> None:
    """Install with the versions of constraints.txt, which decide which build of torch comes."""
    options = ["-qq", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
    _run(environment, "-m", "pip", "install", *options, *requirements)


def _smoke(environment: Path, *parts: str) -> None:
    _run(environment, str(ROOT / "release" / "smoke.py"), *parts)


def _run(environment: Path, *arguments: str, quiet: bool = False) -> None:
    """Run the environment's Python away from the repository, with nothing of ours on the way and without the hub."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables['PATH']}"
    variables["HF_HUB_OFFLINE"] = "1"
    command = [str(environment / "bin" / "python"), *arguments]
    done = subprocess.run(command, cwd=FOLDER, env=variables, check=False, capture_output=quiet, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout or ''}failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
