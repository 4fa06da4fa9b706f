"""The explorer's page in a browser: its shell, hostile texts, small screens, keys alone and other sites."""

import json
import threading
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import gaflow
from gaflow.errors import visible
from tests.support.browser import browser  # noqa: F401
from tests.support.explorer_page import TEXT, link, linked, opened, settled
from tests.support.hostile import INJECTIONS
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGES = {
    "explain": {"text": TEXT, "before": "although this dog is cute, it is smart.", "also": "agf,attcat", "masked": "2"},
    "flow": {"text": TEXT, "edits": [{"kind": "cut_nodes", "value": [4, 11]}], "ranges": "1", "tool": "routes"},
    "compare": {"a__text": TEXT, "b__text": "this dog is not smart, although it is cute."},
    "data": {},
    "about": {},
}


@pytest.fixture(scope="module")
def address():
    with running() as address:
        yield address


def test_each_page_has_a_link_a_title_and_a_heading(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        for name in PAGES:
            page.click(f"nav [data-page={name}]")
            page.wait_for_selector(f"#{name}:visible h1")
            assert linked(page).get("page", "explain") == name
            assert page.locator("nav [aria-current=page]").get_attribute("data-page") == name
            assert page.locator(".room:visible").count() == 1


def test_a_link_to_no_page_shows_the_first(browser, address):  # noqa: F811
    with opened(browser, address, "#page=nothing&text=%ff&edits={") as page:
        assert page.locator("#explain:visible").count() == 1


def test_back_shows_the_page_before(browser, address):  # noqa: F811
    with opened(browser, address, link("explain", text="a gripping film.")) as page:
        page.click("nav [data-page=compare]")
        page.wait_for_selector("#compare:visible")
        page.go_back()
        page.wait_for_selector("#explain .headline")
        assert page.inner_text("#explain .passage") == "a gripping film."


def test_keys_alone_explain_a_text_and_reach_every_page(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.name") == "text"
        page.keyboard.press("Control+A")
        page.keyboard.type("a dull film.")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#explain .headline")
        assert page.inner_text("#explain .passage") == "a dull film."
        page.focus("nav [data-page=about]")
        page.keyboard.press("Enter")
        page.wait_for_selector("#about .methods")


INSIDE = "<img src=x onerror=alert(1)> good </script><script>alert(2)</script> 🇪🇺 fine"


@pytest.mark.parametrize("name", ["explain", "flow", "compare"])
def test_a_hostile_text_is_only_a_text(browser, address, name):  # noqa: F811
    values: dict[str, Any] = {"a__text": INSIDE, "b__text": INSIDE + " more"} if name == "compare" else {"text": INSIDE}
    group = [{"kind": "groups", "value": [{"tokens": [1, 2], "name": "<img src=x onerror=alert(3)>"}]}]
    if name == "flow":
        values["edits"] = group
    if name == "explain":
        values["before"] = "<svg onload=alert(4)> bad"
    with opened(browser, address, link(name, **values)) as page:
        page.wait_for_selector(f"#{name} .text")
        assert page.locator(f"#{name} .text").first.inner_text() == INSIDE
        assert page.locator("main img, main script, main [onerror], main [onload]").count() == 0
        page.click("nav [data-page=explain]")
        if name == "explain":
            page.click("#explain .pin")
            page.click(".shelf-button")
            assert INSIDE[:20] in page.inner_text("#shelf a")
            assert page.locator("#shelf img").count() == 0


def test_what_hides_in_a_text_is_written_out(browser, address):  # noqa: F811
    text = "a \u202egood\u200e \x07film \U000e0041 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    with opened(browser, address, link("explain", text=text)) as page:
        page.wait_for_selector("#explain .headline")
        assert page.inner_text("#explain .passage") == visible(text)
        assert visible(page.inner_text("main")) == page.inner_text("main")


def test_the_page_writes_characters_as_python_does(browser, address):  # noqa: F811
    texts = ["\r\n a\rb\tc", *[chr(code) for code in range(0x3000)], *INJECTIONS]
    texts += [chr(code) for code in (*range(0xFDC0, 0x10000), *range(0x1F3F0, 0x1F400), *range(0xE0000, 0xE1001))]
    texts = [text for text in texts if not any("\ud800" <= character <= "\udfff" for character in text)]
    write = """async texts => {
        const {visible} = await import("/static/elements.js");
        return texts.map(visible);
    }"""
    with opened(browser, address) as page:
        assert page.evaluate(write, texts) == [visible(text) for text in texts]


def test_an_error_says_what_to_do_and_marks_its_field(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        page.fill("#explain [name=target]", "happy")
        page.click("#explain button.primary")
        page.wait_for_selector(".problem:visible")
        assert "happy" in page.inner_text(".problem")
        assert page.get_attribute("#explain [name=target]", "aria-invalid") == "true"
        page.fill("#explain [name=target]", "")
        page.click("#explain button.primary")
        page.wait_for_selector("#explain .headline")
        assert page.locator(".problem:visible").count() == 0


def test_work_can_be_stopped(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        page.fill("#explain [name=text]", "a long story about nothing in particular " * 8)
        page.select_option("#explain [name=method]", "kernel_shap")
        page.click("#explain button.primary")
        page.wait_for_selector(".busy:visible")
        page.click(".stop")
        page.wait_for_selector(".problem:visible")
        assert page.locator(".busy:visible").count() == 0
        assert page.locator("#explain .headline").count() == 0


@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, {"forced_colors": "active"}, {"reduced_motion": "no-preference"}]
)
def test_every_page_fits_a_phone(browser, address, settings):  # noqa: F811
    size = {"width": 390, "height": 844}
    with opened(browser, address, viewport=size, is_mobile=True, has_touch=True, **settings) as page:
        for name, values in PAGES.items():
            page.evaluate("fragment => { location.hash = fragment; }", link(name, **values))
            page.wait_for_selector(f"#{name}:visible h1")
            settled(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 390, name


def test_reduced_motion_stops_every_transition(browser, address):  # noqa: F811
    moving = """() => [...document.querySelectorAll("main *")].filter(node => {
        return getComputedStyle(node).transitionDuration.split(",").some(duration => parseFloat(duration) > 0);
    }).length"""
    counts = []
    for motion in ("reduce", "no-preference"):
        with opened(browser, address, link("flow", text=TEXT), reduced_motion=motion) as page:
            page.wait_for_selector(".ranking .line")
            counts.append(page.evaluate(moving))
    assert counts[0] == 0
    assert counts[1] > 0


def test_what_can_be_pressed_has_a_name(browser, address):  # noqa: F811
    nameless = """() => [...document.querySelectorAll("main button, main a, main select, main input, main textarea")]
        .filter(node => node.checkVisibility() && !(node.textContent.trim() || node.ariaLabel || node.labels?.length))
        .map(node => node.outerHTML)"""
    with opened(browser, address) as page:
        for name, values in PAGES.items():
            page.evaluate("fragment => { location.hash = fragment; }", link(name, **values))
            page.wait_for_selector(f"#{name}:visible h1")
            settled(page)
            assert page.evaluate(nameless) == []


def test_about_lists_models_methods_and_limits(browser, address):  # noqa: F811
    with opened(browser, address, link("about")) as page:
        assert page.locator(".methods tbody tr").count() == len(gaflow.METHODS)
        assert "built-in" in page.inner_text(".models")
        assert "512" in page.inner_text(".limits")
        assert page.locator("#about a").get_attribute("href") == "/api/v1/openapi.json"


def test_a_token_in_the_link_is_taken_out_of_it_and_sent(browser):  # noqa: F811
    token = "a-token-of-many-characters"
    with running(token=token) as address, opened(browser, address, link("about", token=token)) as page:
        page.wait_for_selector(".methods")
        assert token not in page.url


@pytest.fixture
def other_site(tmp_path):
    """A site on another port of this machine, which browsers let talk to the server."""
    (tmp_path / "index.html").write_text("<!doctype html><title>other</title>", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.mark.parametrize("mode", ["no-cors", "cors"])
def test_a_page_of_another_site_learns_nothing_and_starts_no_work(browser, other_site, mode):  # noqa: F811
    with running() as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(other_site)
        send = """([address, mode]) => fetch(address + "api/v1/explain", {method: "POST", mode, body: '{"text": "a"}',
            headers: {"Content-Type": mode === "cors" ? "application/json" : "text/plain"}})
            .then(response => response.text(), () => "refused")"""
        assert page.evaluate(send, [address, mode]) in ("refused", "")
        context.close()
        with urllib.request.urlopen(f"{address}api/v1/models") as response:
            (model,) = json.load(response)["models"]
        assert not model["loaded"]
        assert model["waiting"] == 0
