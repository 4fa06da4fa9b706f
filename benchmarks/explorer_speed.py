"""How fast the explorer answers a person: networks solved again after an edit, and pointing at a large drawing.

    python -m benchmarks.explorer_speed
    python -m benchmarks.explorer_speed --edits 5 --points 20 --no-write

**Edits.** The server runs in a process of its own with the built-in model, and Chromium shows its page Flow. A seed
draws nodes; each is cut by the page's own button, timed from the click until the page has drawn the new flow and its
scores (two networks for a signed method), and taken back. A long text begins with sentences: before each edit one more
is opened, until all tokens are drawn. `solved` is the part of it between the request and the answer. Networks are not
cached: an edit that is made again is solved again.

**Pointing.** The static page of a random BERT with 12 layers, drawn by all of its 128 tokens, which is the same ES
module as in the explorer and more than it draws at first: from 64 tokens on it begins with words or sentences. A seed
draws nodes that are on the screen, and the pointer moves from one to the next. `script` is what the module does for one
of them; `frame` is all of the browser's work until the frame that shows it is handed over: script, style, layout and
painting. The pointer's events arrive with the display's frames, so work of less than 16.7 ms is seen in the next one.

The seconds of the first edit and the first pointing are left out. Writes results/explorer_speed.md.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch
from playwright.sync_api import Browser, Page, sync_playwright
from transformers import BertConfig, BertForSequenceClassification

import gaflow
import gaflow.html
from benchmarks.long_texts import review
from benchmarks.report import provenance, write
from benchmarks.server_load import wait_until_up

BARS = {32: 100.0, 128: 400.0}  # milliseconds for an edit, by tokens
FRAME = 1000 / 60
METHODS = ("agf", "peeled_flow")  # one network, and the default with two
POINTED_TOKENS = 128
POINTED_LAYERS = 12
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
SCREEN: Any = {"width": 1600, "height": 1000}
BELOW_TEXT = 150  # pixels; what is said of a node stays above the drawing
LIMIT = 300_000  # milliseconds

# The page cuts the node that is chosen; the promise holds milliseconds until the frame with its new scores is
# handed over.
CUT = """async () => {
    const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
    performance.clearResourceTimings();
    const start = performance.now();
    document.querySelector(".cut-node").click();
    while (!document.querySelector("#flow.solving")) await frame();
    while (document.querySelector("#flow.solving")) await frame();
    const channel = new MessageChannel();
    await new Promise(resolve => { channel.port1.onmessage = resolve; channel.port2.postMessage(null); });
    const all = performance.now() - start;
    const answers = performance.getEntriesByType("resource").filter(({name}) => name.endsWith("/solve"));
    return [all, answers.at(-1).duration];
}"""
# The tokens that have a row of their own.
TOKENS = """() => [...document.querySelectorAll(".names > g")].filter(row => !row.querySelector(".opener"))
    .map(row => Number(row.dataset.token))"""
# Notes, for each node that is pointed at, milliseconds of its script and until its frame is handed over.
WATCH = """() => {
    window.pointed = [];
    let start = 0;
    addEventListener("pointerover", () => { start = performance.now(); }, true);
    addEventListener("pointerover", () => {
        const script = performance.now() - start;
        const channel = new MessageChannel();
        channel.port1.onmessage = () => window.pointed.push([script, performance.now() - start]);
        requestAnimationFrame(() => channel.port2.postMessage(null));
    });
}"""


def serve(port: int) -> None:
    """The server's process."""
    import uvicorn

    from gaflow.web import ServerSettings, create_app

    uvicorn.run(create_app(ServerSettings(port=port)), host="127.0.0.1", port=port, log_level="warning")


@contextmanager
def served() -> Iterator[str]:
    """The address of a server with the built-in model."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port,), daemon=True)
    process.start()
    try:
        wait_until_up(f"http://127.0.0.1:{port}/api/v1/")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()


def settled(page: Page) -> None:
    """Wait until nothing is explained or solved any more."""
    page.wait_for_function("() => !document.querySelector('.busy:not([hidden]), .waiting, .loading, .solving')")


def measure_edits(browser: Browser, address: str, text: str, method: str, count: int, seed: int) -> np.ndarray:
    """Milliseconds of each edit on the page and in the server, (count, 2)."""
    drawn = random.Random(seed)
    page = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page.set_default_timeout(LIMIT)
    page.goto(f"{address}#{urlencode({'page': 'flow', 'text': text, 'method': method})}")
    page.wait_for_selector("body[data-ready]")
    page.wait_for_selector(".ranking .line")
    settled(page)
    times = []
    while len(times) <= count:
        layer, token = drawn.choice(drawn_nodes(page, drawn))
        page.locator(f".nodes .spot[data-layer='{layer}'][data-token='{token}']").dispatch_event("click")
        times.append(page.evaluate(CUT))
        page.click(".undo")
        page.wait_for_selector(".reset:disabled")
        settled(page)
    page.close()
    return np.array(times[1:])


def drawn_nodes(page: Page, drawn: random.Random) -> list[tuple[int, int]]:
    """Layer and token of the nodes between input and output that can be cut; a row of a long text is opened first."""
    openers = page.locator(".opener")
    if openers.count():
        rows = page.locator(".names > g").count()
        openers.nth(drawn.randrange(openers.count())).dispatch_event("click")
        page.wait_for_function("rows => document.querySelectorAll('.names > g').length > rows", arg=rows)
        settled(page)
    tokens = page.evaluate(TOKENS)
    layers = range(1, page.locator(".heads text").count() - 1)
    return [(layer, token) for layer in layers for token in tokens]


def random_model() -> BertForSequenceClassification:
    """An untrained BERT of 12 layers for the built-in tokenizer."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(gaflow.Explainer().tokenizer),
        hidden_size=96,
        num_hidden_layers=POINTED_LAYERS,
        num_attention_heads=4,
        intermediate_size=192,
    )
    return BertForSequenceClassification(config).eval()


def measure_pointing(browser: Browser, folder: Path, count: int, seed: int) -> tuple[np.ndarray, dict[str, int]]:
    """Milliseconds of script and of the frame, (count, 2), and how large the drawing is."""
    tokenizer = gaflow.Explainer().tokenizer
    explainer = gaflow.Explainer(random_model(), tokenizer)
    att = explainer(review(tokenizer, POINTED_TOKENS), "agf")
    path = folder / "flow.html"
    gaflow.html.flow_page(att, path, unit="token")
    page = browser.new_page(viewport=SCREEN)
    page.goto(path.as_uri())
    page.wait_for_selector(".live")
    page.locator(".scroll").evaluate("box => box.scrollIntoView()")
    spots = page.locator(".nodes .spot")
    drawing = {"nodes": spots.count(), "edges": page.locator(".edges path").count()}
    boxes: list[Any] = spots.evaluate_all("all => all.map(each => each.getBoundingClientRect().toJSON())")
    boxes = [box for box in boxes if box["top"] > BELOW_TEXT and box["bottom"] < SCREEN["height"]]
    page.evaluate(WATCH)
    drawn = random.Random(seed)
    for done, box in enumerate(drawn.sample(boxes, count + 1)):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function("done => window.pointed.length > done", arg=done)
    times = np.array(page.evaluate("window.pointed"))[1 : count + 1]
    page.close()
    return times, drawing


def row(name: str, times: np.ndarray, bar: float) -> str:
    """A line of a table: quantiles of times, and whether the 95th percentile is within the bar."""
    p50, p95 = np.quantile(times, [0.5, 0.95])
    verdict = "yes" if p95 <= bar else "NO"
    return f"| {name} | {len(times)} | {p50:.1f} | {p95:.1f} | {times.max():.1f} | {bar:.1f} | {verdict} |"


def report(edits: dict[tuple[int, str], np.ndarray], pointing: np.ndarray, drawing: dict[str, int], args: Any) -> str:
    """The tables."""
    head = "| {} | N | p50 ms | p95 ms | largest ms | bar ms | p95 within |\n|---|---:|---:|---:|---:|---:|---|"
    lines = [
        "# The explorer, as fast as a person sees it",
        "",
        "See benchmarks/explorer_speed.py for what is measured.",
        "",
        provenance(edits=args.edits, points=args.points, seed=args.seed)
        + f"- programs that wanted a core, on average over the last five minutes: {os.getloadavg()[1]:.1f}\n"
        + (f"- {args.note}\n" if args.note else ""),
        "## A node is cut, and the network solved again",
        "",
        head.format("tokens, method, until"),
    ]
    for (tokens, method), times in edits.items():
        lines.append(row(f"{tokens}, {method}, drawn", times[:, 0], BARS[tokens]))
        lines.append(row(f"{tokens}, {method}, solved", times[:, 1], BARS[tokens]))
    lines += [
        "",
        f"## Pointing at {POINTED_TOKENS} tokens in {POINTED_LAYERS} layers",
        "",
        f"{drawing['nodes']:,} nodes and {drawing['edges']:,} edges.",
        "",
        head.format("work"),
        row("script", pointing[:, 0], FRAME),
        row("frame", pointing[:, 1], FRAME),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--edits", type=int, default=30)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="a line for the result, such as what else the machine did")
    parser.add_argument("--no-write", action="store_true", help="print the result only")
    args = parser.parse_args()
    tokenizer = gaflow.Explainer().tokenizer
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    edits = {}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        with served() as address:
            for tokens in BARS:
                for method in METHODS:
                    text = review(tokenizer, tokens)
                    edits[tokens, method] = measure_edits(browser, address, text, method, args.edits, args.seed)
        pointing, drawing = measure_pointing(browser, Path(folder), args.points, args.seed)
        browser.close()
    text = report(edits, pointing, drawing, args)
    print(text)
    if not args.no_write:
        print(write("explorer_speed.md", text))


if __name__ == "__main__":
    main()
