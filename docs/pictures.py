"""The pictures of the documentation, made by the code they show: `python docs/pictures.py`, or `make pictures`."""

import io
import json
import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from rich.console import Console

import gaflow
import gaflow.html
from gaflow.terminal.attribution import render

HERE = Path(__file__).parent
TEXT = "although this dog is not cute, it is very smart."
OTHER_TEXT = "this dog is not smart, although it is very cute."
REVIEWS = (
    ("the cast is wonderful and the story moves from the first minute to the last.", "positive"),
    ("a dull film with flat characters and no ideas of its own.", "negative"),
    ("not the worst comedy of the year, but close.", "negative"),
    ("i did not expect to like it, yet it is smart, warm and funny.", "positive"),
    ("beautiful pictures cannot hide that nothing happens.", "negative"),
    ("a gripping thriller that never lets go.", "positive"),
    ("the jokes are old, the songs are worse.", "negative"),
    ("superb acting makes up for a thin plot.", "positive"),
    ("it is too long by an hour, and still i was sorry when it ended.", "positive"),
    ("a lazy sequel.", "negative"),
)
COLOURS = 256  # of a picture of the explorer


def explain() -> str:
    """What `gaflow explain` shows, as SVG without the web fonts that Rich refers to."""
    console = Console(record=True, width=84, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(render(gaflow.Explainer()(TEXT), console))
    svg = console.export_svg(title=f'gaflow explain "{TEXT}"', unique_id="gaflow")  # the id: the same in every run
    svg = re.sub(r"@font-face \{.*?\}|<!-- .*? -->", "", svg, flags=re.DOTALL)
    return (
        "\n".join(line.rstrip() for line in svg.replace("Fira Code", "monospace").splitlines() if line.strip()) + "\n"
    )


def flow_page() -> bytes:
    """What the page of `att.to_flow_html()` shows when "smart" is pointed at, as PNG."""
    from playwright.sync_api import sync_playwright

    attributions = gaflow.Explainer().compare(TEXT, ["peeled_flow", "agf", "attcat"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 960, "height": 680}, reduced_motion="reduce")
        page.set_content(gaflow.html.flow_page(attributions))
        page.hover(".names g:nth-child(12) rect", force=True)  # the letters lie above
        picture = page.screenshot()
        browser.close()
    return picture


def explorer() -> dict[str, bytes]:
    """The pages of `gaflow serve`, as PNG by file name."""
    from playwright.sync_api import sync_playwright

    cut = json.dumps([{"kind": "cut_nodes", "value": [4, 11]}])
    node = ".nodes .spot[data-layer='4'][data-token='{}']"
    shots: list[tuple[str, dict[str, str], dict[str, Any], str | None]] = [
        ("explorer.png", {"page": "flow", "text": TEXT, "edits": cut}, {"height": 1400}, node.format(10)),
        ("howto/explorer-explain.png", {"page": "explain", "text": TEXT, "masked": "2"}, {"height": 1500}, None),
        ("howto/explorer-routes.png", {"page": "flow", "text": TEXT, "tool": "routes"}, {"height": 940}, None),
        (
            "howto/explorer-compare.png",
            {"page": "compare", "a.text": TEXT, "b.text": OTHER_TEXT},
            {"height": 1560},
            None,
        ),
        ("howto/explorer-data.png", {"page": "data", "run": "reviews"}, {"height": 860}, None),
        (
            "howto/explorer-dark.png",
            {"page": "flow", "text": TEXT},
            {"height": 940, "color_scheme": "dark"},
            node.format(11),
        ),
        ("howto/explorer-phone.png", {"page": "flow", "text": TEXT}, {"width": 390, "height": 900}, None),
    ]
    pictures = {}
    with served_reviews() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, values, settings, pointed in shots:
            viewport = {"width": settings.pop("width", 1280), "height": settings.pop("height")}
            page = browser.new_page(viewport=viewport, reduced_motion="reduce", **settings)  # type: ignore[arg-type]
            page.goto(f"{address}#{urlencode(values)}")
            page.wait_for_selector("body[data-ready]")
            page.wait_for_function("() => !document.querySelector('.busy:not([hidden]), .waiting, .loading, .solving')")
            if pointed is not None:
                page.hover(pointed, force=True)
            pictures[name] = small_png(page.screenshot())
            page.close()
        browser.close()
    return pictures


@contextmanager
def served_reviews() -> Iterator[str]:
    """The address of an explorer with the built-in model and a run over a few film reviews."""
    import uvicorn

    from gaflow.data import open_data
    from gaflow.jobs import attribute
    from gaflow.web import ServerSettings, create_app

    with tempfile.TemporaryDirectory() as folder:
        rows = ["text,label", *(f'"{text}",{label}' for text, label in REVIEWS)]
        source = Path(folder) / "reviews.csv"
        source.write_text("\n".join(rows), encoding="utf-8")
        run = Path(folder) / "reviews"
        attribute(gaflow.Explainer(), open_data(source, label_column="label"), run, ["relevance_flow", "agf"])
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(ServerSettings(folders=(run,))), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join()
        listener.close()


def small_png(picture: bytes) -> bytes:
    """A screenshot with few colours, which takes half the space."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    packed = io.BytesIO()
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def matches() -> str:
    """Which words of two texts match, by the encoder of the built-in model, as SVG."""
    built_in = gaflow.Explainer()
    explainer = gaflow.Explainer(built_in.model.base_model, built_in.tokenizer, task="similarity")
    att = explainer(("a moving film with superb actors", "the cast is wonderful and the story touching"))
    drawing = io.StringIO()
    att.plot_matches().savefig(drawing, format="svg")
    return drawing.getvalue()


if __name__ == "__main__":
    (HERE / "howto" / "matches.svg").write_text(matches(), encoding="utf-8")
    (HERE / "explain.svg").write_text(explain(), encoding="utf-8")
    (HERE / "flow-page.png").write_bytes(flow_page())
    for name, picture in explorer().items():
        (HERE / name).write_bytes(picture)
