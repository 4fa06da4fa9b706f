"""Does an installed gaflow work? Run by the Python of an environment that holds the wheel and some extras.

    python smoke.py              the core, and that each missing extra is named with the command to install it
    python smoke.py EXTRA ...    what these extras add

It needs nothing but gaflow and what its extras bring. It must not be run from the repository: Python would import the
sources instead of the wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

import gaflow

TEXT = "although this dog is not cute, it is very smart."
REPOSITORY = Path(__file__).resolve().parent.parent


def core() -> None:
    """The first lines of the README, and the command."""
    explanation = gaflow.explain(TEXT)
    assert explanation.label == "positive"
    assert explanation.certificate is not None
    assert explanation.certificate.converged
    assert explanation.top(1)[0].text == "smart"
    assert "<html" in explanation.to_html()
    output = subprocess.run(["gaflow", "explain", TEXT], check=True, capture_output=True, text=True).stdout
    assert "smart" in output


def baselines() -> None:
    """Methods of Captum and scikit-learn."""
    explainer = gaflow.Explainer()
    explanations = explainer.compare("a gripping film.", methods=["lime", "kernel_shap", "ig"])
    assert len(explanations) == 3


def data() -> None:
    """Tables and Parquet files."""
    from gaflow.jobs import attribute

    explainer = gaflow.Explainer()
    assert list(explainer(TEXT).to_pandas()["token"])
    attribute(explainer, [{"text": TEXT}], Path("attributions"), ["agf"])
    assert list(Path("attributions").rglob("*.parquet"))


def hub() -> None:
    """Data sets of the library datasets; without network, one that is in memory."""
    from gaflow.data import open_data

    offline = 'import gaflow.data; next(iter(gaflow.data.open_data("no/such-data-set").read()))'
    done = subprocess.run([sys.executable, "-c", offline], check=False, capture_output=True, text=True)
    if "MissingExtraError" in done.stderr:
        raise gaflow.MissingExtraError(done.stderr.splitlines()[-1])
    import datasets

    rows = open_data(datasets.Dataset.from_dict({"text": [TEXT]})).read()
    assert next(iter(rows))[0] == TEXT


def image() -> None:
    """A picture file, by a model in a folder."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=32, patch_size=16
    )
    ViTForImageClassification(config).save_pretrained("classifier")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    Path("classifier/preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    explainer = gaflow.Explainer("classifier")
    picture = Path("picture.ppm")
    picture.write_bytes(b"P6 32 32 255\n" + bytes(range(256)) * 12)
    assert len(explainer(picture, method="agf").scores) == 5  # [CLS] and four patches


def maxflow() -> None:
    """An exact maximum flow, checked by hand."""
    flow = gaflow.max_flow([[[1.0, 0.0], [0.5, 0.5]]])
    assert abs(float(flow.value[0]) - 2) < 1e-6


def notebook() -> None:
    """A widget, whose network Python solves again."""
    widget = gaflow.explain(TEXT).widget()
    widget.edits = {"cut_nodes": [(1, 1)]}
    assert (widget.att.scores != widget.original.scores).any()


def plot() -> None:
    """A figure as SVG."""
    gaflow.explain(TEXT).plot().savefig("why.svg")
    assert "</svg>" in Path("why.svg").read_text(encoding="utf-8")


def ray() -> None:
    """A data-set run on a cluster of one machine."""
    from gaflow.jobs import Ray, attribute

    attribute(gaflow.Explainer(), [{"text": TEXT}], Path("by-ray"), ["agf"], engine=Ray(workers=1))
    assert list(Path("by-ray").rglob("*.parquet"))


def web() -> None:
    """The server: a page, and an explanation by its API."""
    server = subprocess.Popen(
        ["gaflow", "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stderr is not None
    try:
        address = server.stdout.readline().strip()
        if not address:
            raise gaflow.MissingExtraError(server.stderr.read())
        body = json.dumps({"text": TEXT}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}api/v1/explain", body, headers)
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["attribution"]["label"] == "positive"
        with urllib.request.urlopen(address) as page:
            assert b"<html" in page.read()
    finally:
        server.terminate()
        server.communicate()


def docs() -> None:
    """The whole site, from the sources in the repository and the installed package."""
    command = [
        "sphinx",
        "-b",
        "html",
        "-W",
        "--keep-going",
        "-q",
        "-E",
        "-d",
        "doctrees",
        str(REPOSITORY / "docs"),
        "site",
    ]
    subprocess.run([sys.executable, "-m", *command], check=True)
    assert Path("site/index.html").exists()


FEATURES: dict[str, Callable[[], None]] = {
    "baselines": baselines,
    "data": data,
    "hub": hub,
    "image": image,
    "maxflow": maxflow,
    "notebook": notebook,
    "plot": plot,
    "ray": ray,
    "web": web,
}


def refuse_without_extras() -> None:
    """Without its extra, each feature says what to install."""
    for extra, use in FEATURES.items():
        try:
            use()
        except gaflow.MissingExtraError as error:
            message = str(error)
        else:
            raise AssertionError(f"extra {extra!r} is not installed, but what needs it works")
        assert f"pip install 'gaflow[{extra}]'" in message, message


def main(extras: list[str]) -> None:
    """Use the core, then what the extras add."""
    assert not Path(gaflow.__file__).is_relative_to(REPOSITORY / "src"), "gaflow was imported from the sources"
    core()
    for extra in extras:
        if extra == "docs":
            docs()
        elif extra in FEATURES:
            FEATURES[extra]()
    if not extras:
        refuse_without_extras()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main(sys.argv[1:])
