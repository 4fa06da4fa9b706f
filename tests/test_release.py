"""Packages, metadata, workflows and recipe: what a release consists of.

`make release-check` installs the packages in environments that hold nothing else, and uses every extra.
"""

import copy
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import gaflow
from hatch_build import rewrite_links
from release import check, licences, packages, recipe, smoke, steps

ROOT = Path(__file__).parent.parent
SHOWCASE = "although this dog is not cute, it is very smart."
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def run(*command: str, **settings) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel made from it."""
    return packages.build(tmp_path_factory.mktemp("packages"))


def altered_sdist(sdist: Path, folder: Path, added: str = "", without: str = "") -> Path:
    """A copy of an sdist with one file more or less."""
    target = folder / sdist.name
    with tarfile.open(sdist) as old, tarfile.open(target, "w:gz") as new:
        for member in old.getmembers():
            if member.name.partition("/")[2] != without:
                new.addfile(member, old.extractfile(member))
        if added:
            new.addfile(tarfile.TarInfo(f"gaflow-0/{added}"), io.BytesIO())
    return target


def altered_wheel(wheel: Path, folder: Path, added: str = "", without: str = "") -> Path:
    """A copy of a wheel with one file more or less."""
    target = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if name != without:
                new.writestr(name, old.read(name))
        if added:
            new.writestr(added, "")
    return target


@pytest.mark.slow
def test_the_wheel_holds_the_model_the_types_and_the_licence(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    needed = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert {f"gaflow/assets/{name}" for name in needed} <= names
    assert "gaflow/py.typed" in names
    assert {"gaflow/html/templates/document.html", "gaflow/html/static/flow.js"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


@pytest.mark.slow
def test_nothing_is_wrong_with_the_packages(built):
    sdist, wheel = built
    tracked = packages.tracked_files()
    new = set(run("git", "ls-files", "--others", "--exclude-standard", cwd=ROOT).splitlines())  # not committed yet
    assert packages.sdist_problems(sdist, tracked | new) == []
    assert packages.wheel_problems(wheel, tracked | new) == []
    assert packages.metadata_problems(sdist, wheel) == []


@pytest.mark.slow
def test_the_sdist_is_built_the_same_every_time(built, tmp_path):
    again = packages.build(tmp_path)
    assert [package.read_bytes() for package in again] == [package.read_bytes() for package in built]


@pytest.mark.slow
def test_files_too_many_and_too_few_are_noticed(built, tmp_path, monkeypatch):
    sdist, wheel = built
    tracked = packages.tracked_files()

    def new_problems(package, alter, find, **change):
        altered = alter(package, tmp_path, **change)
        return [problem for problem in find(altered, tracked) if problem not in find(package, tracked)]

    def in_sdist(**change):
        return new_problems(sdist, altered_sdist, packages.sdist_problems, **change)

    def in_wheel(**change):
        return new_problems(wheel, altered_wheel, packages.wheel_problems, **change)

    assert in_sdist(added="secrets.env") == ["the sdist holds secrets.env, which is not committed"]
    assert in_sdist(without="LICENSE") == ["the sdist lacks LICENSE"]
    assert in_wheel(added="tests/test_x.py") == ["the wheel holds tests/test_x.py, which is not committed"]
    assert in_wheel(without="gaflow/py.typed") == ["the wheel lacks gaflow/py.typed"]
    licence = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("licenses/LICENSE"))
    assert in_wheel(without=licence) == ["the wheel lacks the licence of the repository"]
    monkeypatch.setattr(packages, "LARGEST_PACKAGE", wheel.stat().st_size - 1)
    assert len([problem for problem in packages.wheel_problems(wheel, tracked) if "bytes, more than" in problem]) == 1


@pytest.mark.slow
def test_wrong_metadata_are_noticed(built, monkeypatch):
    sdist, wheel = built
    content = packages.metadata_of(wheel)

    def problems_with(old: bytes, new: bytes) -> list[str]:
        assert old in content
        monkeypatch.setattr(packages, "metadata_of", lambda _: content.replace(old, new, 1))
        return packages.metadata_problems(sdist, wheel)

    assert any("classifiers" in problem for problem in problems_with(b":: 3 :: Only", b":: 3 :: Lonely"))
    assert any("version" in problem for problem in problems_with(b"Version: 0.1.0", b"Version: 0.1.1"))
    assert any("licence" in problem for problem in problems_with(b"Apache-2.0", b"MIT"))
    assert any("link" in problem for problem in problems_with(b"\n\n# gaflow", b"\n\n[here](docs/x.md)"))
    assert any("invalid" in problem for problem in problems_with(b"Requires-Python: >=3.11", b"Requires-Python: new"))


@pytest.mark.slow
def test_the_installed_wheel_explains_a_text_offline(built, tmp_path):
    site = tmp_path / "site"
    options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--target", str(site))
    run(sys.executable, "-m", "pip", "install", str(built[1]), *options)
    environment = os.environ | {
        "PYTHONPATH": str(site),  # before the editable install
        "HF_HOME": str(tmp_path / "empty"),
        "HF_HUB_OFFLINE": "0",  # nobody need say so
        "HTTPS_PROXY": "http://127.0.0.1:9",  # whoever asks the network fails
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    where = run(sys.executable, "-c", "import gaflow; print(gaflow.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(site)
    output = run(sys.executable, "-m", "gaflow", "explain", SHOWCASE, cwd=tmp_path, env=environment)
    assert "positive" in output
    assert "smart" in output


@pytest.mark.slow
def test_the_notebooks_find_their_data_in_the_sdist(built, tmp_path):
    # the last command of the first cell on Colab, in a folder that holds the sdist
    stored = (ROOT / "examples" / "notebooks" / "own_method.ipynb").read_text(encoding="utf-8")
    command = re.search(r"!(tar -xzf gaflow[^\"\\]*)", stored)
    assert command is not None
    (tmp_path / "content").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "content" / built[0].name).write_bytes(built[0].read_bytes())
    run("sh", "-c", command[1], cwd=tmp_path / "content")
    original = ROOT / "examples" / "data" / "reviews.csv"
    assert (tmp_path / "data" / "reviews.csv").read_bytes() == original.read_bytes()


def test_the_recipe_asks_for_what_the_project_asks_for():
    document = yaml.safe_load(recipe.TEMPLATE.read_text(encoding="utf-8"))
    other_names = {"torch": "pytorch"}
    expected = ["python >=${{ python_min }}"]
    for line in PROJECT["dependencies"]:
        requirement = Requirement(line)
        expected.append(f"{other_names.get(requirement.name, requirement.name)} {requirement.specifier}")
    assert sorted(document["requirements"]["run"]) == sorted(expected)
    assert PROJECT["requires-python"] == f">={document['context']['python_min']}"
    assert document["about"]["license"] == PROJECT["license"]
    assert document["about"]["summary"] == PROJECT["description"]
    assert document["build"]["python"]["entry_points"] == [f"gaflow = {PROJECT['scripts']['gaflow']}"]


def test_the_recipe_is_filled_in_with_version_and_checksum(tmp_path):
    sdist = tmp_path / "gaflow-1.2.3.tar.gz"
    sdist.write_bytes(b"abc")
    document = yaml.safe_load(recipe.filled_in(sdist))
    assert document["context"]["version"] == "1.2.3"
    # of "abc", from FIPS 180-2
    assert document["source"]["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_version_is_written_in_one_file():
    written = []
    for name in packages.tracked_files():
        path = ROOT / name
        places = ("src/", "release/", "recipe/", ".github/")
        if name.startswith(places) or ("/" not in name and name != "CHANGELOG.md"):
            content = path.read_bytes()
            if re.search(rb"version\w*\W{1,5}" + re.escape(gaflow.__version__.encode()) + rb"\b", content, re.I):
                written.append(name)
    assert written == ["src/gaflow/__init__.py"]


def test_extras_are_all_checked():
    parts = set(check.extras()) - {"all"}
    assert parts == {*smoke.FEATURES, "docs"}
    assert set(check._parts("all")) == set(smoke.FEATURES) - {"ray"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_pinned_actions_with_few_rights(path):
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    commands = [step["run"] for job in document["jobs"].values() for step in job["steps"] if "run" in step]
    assert not any("${{ github." in command for command in commands)  # could hold code of strangers


def test_the_tests_run_in_ci_and_on_the_declared_versions_of_python():
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    assert [step["run"] for step in document["jobs"]["test"]["steps"] if "run" in step] == [".ci/run"]
    matrix = document["jobs"]["ranges"]["strategy"]["matrix"]["include"]
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert [entry["python"] for entry in matrix] == declared
    assert {entry["versions"] for entry in matrix} == {"lowest", "newest"}


def test_only_the_last_job_may_publish_and_it_builds_nothing():
    document = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8"))
    build, publish = document["jobs"]["build"], document["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in publish["steps"])
    uploaded = publish["steps"][-1]
    assert uploaded["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert uploaded["with"] == {"attestations": True}
    attested = [step["with"]["subject-path"] for step in build["steps"] if "attest" in step.get("uses", "")]
    stored = [step["with"]["path"] for step in build["steps"] if "upload-artifact" in step.get("uses", "")]
    assert attested == stored


def test_links_of_the_readme_lead_to_the_source_or_nowhere():
    text = "![a](docs/a.svg) [b](docs/b.md#c) [d](https://example.org/) [e](#f)"
    assert rewrite_links(text, None) == " b [d](https://example.org/) [e](#f)"
    source = "https://github.com/owner/name"
    expected = (
        f"![a]({source}/raw/main/docs/a.svg) [b]({source}/blob/main/docs/b.md#c) [d](https://example.org/) [e](#f)"
    )
    assert rewrite_links(text, source) == expected


@pytest.mark.parametrize(
    ("stated", "permissive"),
    [
        ("MIT", True),
        ("Apache-2.0 AND CNRI-Python", True),
        ("BSD License", True),
        ("MPL-2.0 AND MIT", True),
        ("GPL-3.0-only", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("MIT AND GPL-2.0-or-later", False),
        ("Other/Proprietary License", False),
    ],
)
def test_licences_that_forbid_something_are_noticed(stated, permissive):
    assert licences.is_permissive(stated) == permissive


def test_licences_come_from_the_expression_then_the_classifiers_then_the_field():
    class Package(importlib.metadata.Distribution):
        def __init__(self, metadata: str):
            self.content = metadata

        def read_text(self, filename):
            return self.content if filename == "METADATA" else None

        def locate_file(self, path):
            raise NotImplementedError

    def stated(*lines: str) -> list[str]:
        return licences.licences(Package("\n".join(["Metadata-Version: 2.4", "Name: x", "Version: 1", *lines])))

    assert stated("License-Expression: MIT OR GPL-2.0-only", "License: other") == ["MIT", "GPL-2.0-only"]
    assert stated("License: long text", "Classifier: License :: OSI Approved :: BSD License") == ["BSD License"]
    assert stated("License: ISC") == ["ISC"]
    assert stated(f"License: {'all rights reserved ' * 9}") == []
    assert stated() == []


def test_packages_that_come_along_are_found_through_their_extras():
    package_names = licences.needed_packages("gaflow", ["plot"])
    assert {"gaflow", "torch", "transformers", "tokenizers", "matplotlib", "pillow"} <= set(package_names)
    assert not {"ray", "captum", "pytest"} & set(package_names)


def test_the_steps_name_what_is_missing(monkeypatch, capsys):
    steps.main()
    printed = capsys.readouterr().out
    assert f"v{gaflow.__version__}" in printed
    complete = copy.deepcopy(PROJECT)
    complete["urls"] |= dict.fromkeys(steps.ADDRESSES, "https://example.org/")
    before = list(steps.missing_parts())
    monkeypatch.setattr(steps.tomllib, "loads", lambda _: {"project": complete})
    after = list(steps.missing_parts())
    absent = [name for name in steps.ADDRESSES if name not in PROJECT["urls"]]
    assert len(before) - len(after) == len(absent)


def test_the_list_for_language_models_leads_to_files_that_exist():
    for name in ("llms.txt", "AGENTS.md"):
        targets = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
        assert targets
        assert [target for target in targets if not (ROOT / target).is_file()] == []


def test_the_container_runs_the_server_as_nobody_in_particular():
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    instructions = [line.split(maxsplit=1) for line in lines if re.match(r"[A-Z]+ ", line)]
    names = [name for name, _ in instructions]
    assert names[-2:] == ["ENTRYPOINT", "CMD"]
    assert instructions[-1][1].startswith('["serve"')
    last_user = [value for name, value in instructions if name == "USER"][-1]
    assert last_user not in ("root", "0")
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv"} <= set(ignored)
    assert (ROOT / ".dockerignore").read_text(encoding="utf-8").split() == ignored  # Docker reads this one
