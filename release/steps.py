"""`make release`: what to do to publish the version that the repository has, and what is still missing."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator

import gaflow
from release.packages import ROOT

ADDRESSES = ("Source", "Documentation", "Issues", "Changelog")  # in project.urls, once they are known
_STEPS = """\
To publish gaflow {version}:

 1. Set `__version__` in src/gaflow/__init__.py. Everything else takes the version from there.
 2. In CHANGELOG.md, rename "Unreleased" to "{version}" with today's date, and begin a new "Unreleased".
 3. make test
 4. make release-check      builds build/release/dist, and uses it in clean environments
 5. git commit, and have it reviewed and merged
 6. git tag -a v{version} -m "gaflow {version}" && git push origin v{version}
    The workflow `publish` builds and checks the packages again and waits for somebody to approve the environment
    `pypi`. Then it publishes with Trusted Publishing and attestations. No token is stored anywhere.
 7. pip install gaflow=={version} in a new environment, and gaflow explain "it works."
 8. conda-forge: copy build/release/recipe.yaml to recipes/gaflow in a fork of conda-forge/staged-recipes (first
    release), or into the feedstock (later ones: its bot opens the pull request). The checksum must be that of the
    sdist on PyPI: compare `sha256sum` of both.
 9. The container: podman build -t gaflow:{version} . && podman run --rm gaflow:{version} --version
    Push it to your registry.
10. make docs, and publish build/site.

Once, before the first release:

 a. On PyPI, register the name: https://pypi.org/manage/account/publishing/ adds a pending publisher with the owner and
    name of the repository, the workflow publish.yml and the environment pypi.
 b. In the settings of the repository, make the environment `pypi` with a reviewer, and allow private vulnerability
    reports.
"""


def main() -> None:
    """Print the steps, then what is missing."""
    print(_STEPS.format(version=gaflow.__version__))
    missing = list(missing_parts())
    if missing:
        print("Still missing:\n")
        for part in missing:
            print(f" - {part}")


def missing_parts() -> Iterator[str]:
    """What the repository lacks before this version can be published."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ADDRESSES:
        if name not in project["urls"]:
            yield f'the address "{name}" in [project.urls] of pyproject.toml{_CONSEQUENCES.get(name, "")}'
    if f"\n## [{gaflow.__version__}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f'a section "[{gaflow.__version__}]" in CHANGELOG.md'
    if "recipe-maintainers: []" in (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"):
        yield "maintainers in recipe/recipe.yaml"
    if _git("status", "--porcelain"):
        yield "a commit of the changes in this folder"
    if not _git("tag", "--list", f"v{gaflow.__version__}"):
        yield f"the tag v{gaflow.__version__}"


_CONSEQUENCES = {
    "Source": "; with it, links of the README work on PyPI, and `make notebooks` writes badges that open them in Colab",
}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
