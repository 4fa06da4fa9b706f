"""The explorer's page in a browser: it explains, and it solves changed networks as Python does."""

import json
import threading
import urllib.request
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

import gaflow
from gaflow.errors import visible
from tests.support.browser import browser  # noqa: F401
from tests.support.hostile import INJECTIONS
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TEXT = "although this dog is not cute, it is very smart."
LAYER = 4
TOKEN = 11  # "smart"


@pytest.fixture(scope="module")
def address():
    with running() as address:
        yield address


@pytest.fixture(scope="module")
def att():
    return gaflow.explain(TEXT)


@contextmanager
def opened(browser, address, fragment="", **settings):  # noqa: F811
    """A tab with the page; what it logs, or asks of other servers, fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **settings)
    context.set_default_timeout(120_000)  # milliseconds; a busy machine is slow
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith(address) or wrong.append(request.url))
    page.goto(address + fragment)
    page.wait_for_selector("select[name=method] option:nth-child(3)", state="attached")
    yield page
    context.close()
    assert wrong == []


def explain(page, text=TEXT):
    page.fill("[name=text]", text)
    page.click("button.primary")
    page.wait_for_selector(".routes li", timeout=120_000)


def solved(page, action):
    """Do what changes the network, and wait for the answer."""
    with page.expect_response(lambda response: response.url.endswith("/solve")) as response:
        action()
    page.wait_for_selector(".changes table, .edits li:nth-child(1)")
    return response.value.json()["attribution"]


def scores_of(page):
    """The scores that the drawing shows."""
    titles = page.locator(".bars rect title").all_text_contents()
    return [float(title.rpartition(": ")[2]) for title in titles]


def assert_scores(page, att):
    page.wait_for_function("count => document.querySelectorAll('.bars rect').length === count", arg=len(att.tokens))
    assert scores_of(page) == pytest.approx(att.scores.tolist(), rel=2e-3, abs=1e-6)


def choose_node(page):
    page.click(f".nodes .spot[data-layer='{LAYER}'][data-token='{TOKEN}']", force=True)


def test_a_text_is_explained(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        assert page.inner_text(".headline") == f"positive {att.probability:.1%}"
        assert page.inner_text(".view .text") == TEXT
        assert_scores(page, att)
        shares = [route.share for route in gaflow.routes(att.flow, k=5)]
        assert page.locator(".routes b").all_text_contents() == [f"{share:.1%}" for share in shares]


def test_a_node_is_cut_and_put_back(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        assert page.is_disabled(".cut-node")
        choose_node(page)
        solved(page, lambda: page.click(".cut-node"))
        assert_scores(page, att.edit(cut_nodes=[(LAYER, TOKEN)]))
        assert page.locator(".edits li").count() == 1
        assert page.locator(".changes tbody tr").count() > 5
        page.click(".undo")
        assert_scores(page, att)
        assert page.inner_text(".verdict") == "Nothing yet."


def test_edges_are_cut_where_they_are_clicked(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        page.check(".cut-edges")
        edge = page.locator(f".edges [data-edge='{LAYER},0,{TOKEN}']")
        solved(page, lambda: edge.dispatch_event("click"))
        assert_scores(page, att.edit(cut_edges=[(LAYER, 0, TOKEN)]))


def test_layers_targets_and_epsilon_change_the_network(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        choose_node(page)
        solved(page, lambda: page.click(".skip-layer"))
        assert_scores(page, att.edit(skip_layers=[LAYER]))
        solved(page, lambda: page.click(".only-target"))
        assert_scores(page, att.edit(skip_layers=[LAYER], targets=[TOKEN]))
        page.click(".reset")
        assert_scores(page, att)
        page.locator(".epsilon").fill("-1")
        solved(page, lambda: page.locator(".epsilon").dispatch_event("change"))
        assert_scores(page, att.edit(epsilon=0.1))


def test_tokens_are_joined_into_sentences(browser, address):  # noqa: F811
    text = "It was long. I liked the end!"
    with opened(browser, address) as page:
        explain(page, text)
        answer = solved(page, lambda: page.select_option(".groups", "sentence"))
        assert answer["tokens"] == ["[CLS]", "It was long.", "I liked the end!", "[SEP]"]
        assert_scores(page, gaflow.explain(text).edit(groups="sentence"))
        assert page.inner_text(".view .text") == text


def test_the_bottleneck_and_masking_are_shown(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        page.click(".show-cut")
        page.wait_for_selector(".edges .cut", state="attached")
        cut = gaflow.min_cut(att.flow)
        wide = [edge for edge in cut.edges if edge.capacity >= 0.01 * cut.value]
        assert page.locator(".edges .cut").count() == len(wide)
        page.click(".show-mask")
        page.wait_for_selector(".curve tbody tr:nth-child(10)", timeout=120_000)


def test_a_link_holds_the_text_and_its_edits(browser, address, att):  # noqa: F811
    with opened(browser, address) as page:
        explain(page)
        choose_node(page)
        solved(page, lambda: page.click(".cut-node"))
        page.wait_for_function("location.hash.includes('edits')")
        fragment = page.evaluate("location.hash")
    with opened(browser, address, fragment) as page:
        page.wait_for_selector(".edits li", timeout=120_000)
        page.wait_for_selector(".changes table")
        assert page.input_value("[name=text]") == TEXT
        assert_scores(page, att.edit(cut_nodes=[(LAYER, TOKEN)]))


def test_keys_alone_explain_and_choose_a_token(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        page.focus("[name=text]")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".routes li", timeout=120_000)
        page.focus(".names g")
        page.keyboard.press("ArrowDown")
        assert page.inner_text(".says").startswith("“although” in input (layer 0)")


def test_a_hostile_text_is_only_a_text(browser, address):  # noqa: F811
    text = "<img src=x onerror=alert(1)> good </script><script>alert(2)</script> 🇪🇺 fine"
    with opened(browser, address) as page:
        explain(page, text)
        assert page.inner_text(".view .text") == text
        assert page.locator(".view img, .view script").count() == 0


def test_what_hides_in_a_text_is_written_out(browser, address):  # noqa: F811
    text = "a \u202egood\u200e \x07film \U000e0041 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    with opened(browser, address) as page:
        explain(page, text)
        assert page.inner_text(".view .text") == visible(text)
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
        page.fill("[name=target]", "happy")
        page.click("button.primary")
        page.wait_for_selector(".problem:visible", timeout=120_000)
        assert "happy" in page.inner_text(".problem")
        assert page.get_attribute("[name=target]", "aria-invalid") == "true"


@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, {"forced_colors": "active"}, {"reduced_motion": "reduce"}]
)
def test_the_page_fits_a_phone(browser, address, settings):  # noqa: F811
    with opened(browser, address, **settings) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        explain(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_about_lists_models_and_methods(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        page.click("nav a[data-page=about]")
        assert page.locator(".methods tbody tr").count() == len(gaflow.METHODS)
        assert "built-in" in page.inner_text(".models")


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
