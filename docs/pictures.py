"""The pictures of the documentation, made by the code they show: `python docs/pictures.py`."""

import io
import re
import shutil
from pathlib import Path

from rich.console import Console

import gaflow
import gaflow.html
from gaflow.terminal.attribution import render

HERE = Path(__file__).parent
TEXT = "although this dog is not cute, it is very smart."


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
