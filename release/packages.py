"""The sdist and the wheel: how they are built, and what must be true of them.

The wheel is built from the sdist alone, as a distribution of packages does. Each check returns the problems that it
found, as sentences.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from packaging.metadata import ExceptionGroup, Metadata
from packaging.utils import parse_sdist_filename, parse_wheel_filename
from trove_classifiers import classifiers, deprecated_classifiers

import gaflow

ROOT = Path(__file__).parent.parent
LARGEST_PACKAGE = 15_000_000  # bytes; the embedded model has 11.6 million
_PACKAGE_FOLDER = "src/"
_ADDED_TO_SDIST = {"PKG-INFO"}
_RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)[^)]*\)")


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist from the repository, then the wheel from what the sdist holds. Return both paths."""
    _hatchling("sdist", ROOT, folder)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    _hatchling("wheel", source, folder)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def _hatchling(target: str, source: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


def problems(sdist: Path, wheel: Path) -> list[str]:
    """All that is wrong with the two packages."""
    return [
        *sdist_problems(sdist, tracked_files()),
        *wheel_problems(wheel, tracked_files()),
        *metadata_problems(sdist, wheel),
    ]


def tracked_files() -> set[str]:
    """The files that git knows: what anybody gets who clones the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}


def sdist_problems(sdist: Path, tracked: set[str]) -> list[str]:
    """The sdist holds what git knows, and nothing else."""
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    found = [f"the sdist holds {name}, which is not committed" for name in sorted(packed - tracked - _ADDED_TO_SDIST)]
    found += [f"the sdist lacks {name}" for name in sorted(tracked - packed)]
    return found + _size_problems(sdist)


def wheel_problems(wheel: Path, tracked: set[str]) -> list[str]:
    """The wheel holds the package and its licence, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.endswith("/")}
        about = {name for name in packed if PurePosixPath(name).parts[0].endswith(".dist-info")}
        licences = [archive.read(name) for name in about if name.endswith("/licenses/LICENSE")]
    package = {name.removeprefix(_PACKAGE_FOLDER) for name in tracked if name.startswith(_PACKAGE_FOLDER)}
    found = [f"the wheel holds {name}, which is not committed" for name in sorted(packed - package - about)]
    found += [f"the wheel lacks {name}" for name in sorted(package - packed)]
    if licences != [(ROOT / "LICENSE").read_bytes()]:
        found.append("the wheel lacks the licence of the repository")
    return found + _size_problems(wheel)


def _size_problems(package: Path) -> list[str]:
    size = package.stat().st_size
    if size > LARGEST_PACKAGE:
        return [f"{package.name} has {size:,} bytes, more than {LARGEST_PACKAGE:,}"]
    return []


def metadata_of(wheel: Path) -> bytes:
    """The core metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name)


def metadata_problems(sdist: Path, wheel: Path) -> list[str]:
    """The metadata are valid, the same in both packages, and say what the repository says."""
    content = metadata_of(wheel)
    try:
        metadata = Metadata.from_email(content, validate=True)
    except ExceptionGroup as group:
        return [f"the metadata are invalid: {error}" for error in group.exceptions]
    with tarfile.open(sdist) as archive:
        (name,) = (name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
        information = archive.extractfile(name)
        assert information is not None
        same = information.read() == content
    named = {parse_sdist_filename(sdist.name), parse_wheel_filename(wheel.name)[:2]}
    facts = {
        "sdist and wheel have the same metadata": same,
        "the version is that of gaflow.__version__": str(metadata.version) == gaflow.__version__,
        "the names of both files have this version": named == {("gaflow", metadata.version)},
        "the licence is Apache-2.0": metadata.license_expression == "Apache-2.0",
        "the licence file is named": metadata.license_files == ["LICENSE"],
        "the classifiers exist": set(metadata.classifiers or []) <= set(classifiers) - set(deprecated_classifiers),
        "the README is Markdown": metadata.description_content_type == "text/markdown",
        "no link of the README depends on a place": not _RELATIVE_LINK.search(metadata.description or ""),
    }
    return [f"not true: {fact}" for fact, holds in facts.items() if not holds]
