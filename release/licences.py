"""The licences of all that an installed gaflow needs: each must allow any use, as Apache-2.0 does.

python licences.py EXTRA ...     run by the Python of an environment in which gaflow is installed with these extras
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageMetadata, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PERMISSIVE = re.compile(
    r"\b(0BSD|Apache|BSD|BSL|CC0|CNRI|HPND|ISC|MIT|MPL|PSF|Python Software Foundation|Public Domain|Unlicense|Zlib)\b",
    re.IGNORECASE,
)
_FULL_TEXT = 80  # characters; a longer field `License` holds the licence itself, and the classifiers name it
_OTHER_TERMS = ("nvidia-", "cuda-")  # what torch's builds for CUDA bring; CPU builds do not


def main(extras: list[str]) -> int:
    """Print the licence of each package; return how many of them are not permissive or not stated."""
    refused = 0
    for name, package in sorted(needed_packages("gaflow", extras).items()):
        stated = licences(package)
        allowed = name.startswith(_OTHER_TERMS) or any(is_permissive(choice) for choice in stated)
        refused += not allowed
        print(f"{'' if allowed else 'NOT ALLOWED: '}{name} {package.version}: {' or '.join(stated) or 'not stated'}")
    return refused


def needed_packages(name: str, extras: list[str]) -> dict[str, Distribution]:
    """A package and all that it needs in turn, as far as they are installed."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra) for extra in ["", *extras]]
    while waiting:
        package_name, extra = waiting.pop()
        if (package_name, extra) in asked:
            continue
        asked.add((package_name, extra))
        try:
            package = distribution(package_name)
        except PackageNotFoundError:
            continue  # for another platform, or an optional part of something else
        found[package_name] = package
        for line in package.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(requirement.name), part) for part in ["", *requirement.extras]]
    return found


def licences(package: Distribution) -> list[str]:
    """The licences that a user may choose from, as the package's metadata state them."""
    metadata = package.metadata
    expression = _first(metadata, "License-Expression")
    if expression:
        return expression.split(" OR ")
    classifiers = metadata.get_all("Classifier") or []
    stated = [line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License :: ")]
    field = _first(metadata, "License")
    if not stated and field and len(field) < _FULL_TEXT:
        stated = field.split(" OR ")
    return stated


def _first(metadata: PackageMetadata, field: str) -> str:
    """The first value of a field; empty if it is missing."""
    return next(iter(metadata.get_all(field) or []), "")


def is_permissive(choice: str) -> bool:
    """Is every part of a licence permissive?"""
    return all(_PERMISSIVE.search(part) for part in re.split(r" AND |, ", choice))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
