"""The built wheel, installed away from the repository, explains a text with the embedded model and no network.

`make release-check` does the same in an environment that holds nothing else.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
SHOWCASE = "although this dog is not cute, it is very smart."


def run(*command: str, **settings) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", str(ROOT), *options, "--wheel-dir", str(folder))
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_model_the_types_and_the_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"}
    assert {f"gaflow/assets/{name}" for name in needed} <= names
    assert "gaflow/py.typed" in names
    assert {"gaflow/html/templates/document.html", "gaflow/html/static/flow.js"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    assert wheel.stat().st_size < 13e6


def test_the_installed_wheel_explains_a_text_offline(wheel, tmp_path):
    site = tmp_path / "site"
    options = ("--no-deps", "--quiet", "--disable-pip-version-check", "--target", str(site))
    run(sys.executable, "-m", "pip", "install", str(wheel), *options)
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
