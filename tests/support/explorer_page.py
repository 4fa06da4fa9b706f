"""The explorer's page in a browser, for tests: a tab that fails the test if the page does anything wrong."""

import json
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

TEXT = "although this dog is not cute, it is very smart."
LIMIT = 120_000  # milliseconds; a busy machine is slow
_REFUSED = "Failed to load resource: the server responded with a status of 4"
_IDLE = "() => !document.querySelector('.busy:not([hidden]), .waiting, .loading, .solving')"


@contextmanager
def opened(browser, address, fragment="", *, refused=False, **settings):
    """A tab with the page at `fragment`; what it logs, or asks of other servers, fails the test.

    `refused` allows requests that the server refuses, which browsers log.
    """
    settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **settings}
    context = browser.new_context(**settings)
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: (refused and _REFUSED in message.text) or wrong.append(message.text))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: request.url.startswith((address, "blob:")) or wrong.append(request.url))
    page.goto(address + fragment)
    page.wait_for_selector("body[data-ready]")
    settled(page)
    yield page
    context.close()
    assert wrong == []


def link(page, **values):
    """The fragment of a page of the explorer; values that are no strings are JSON."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return "#" + urlencode({"page": page, **{name.replace("__", "."): text for name, text in texts.items()}})


def settled(page):
    """Wait until nothing is explained, solved or loaded any more."""
    page.wait_for_function(_IDLE)


def linked(page):
    """The values in the address."""
    return page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def edits_of(page):
    """The changes in the address, as (kind, value)."""
    return [(edit["kind"], edit["value"]) for edit in json.loads(linked(page).get("edits", "[]"))]


def requests_of(page):
    """A list that grows by the path of every request of the API."""
    paths = []
    page.on("request", lambda request: paths.append(request.url.partition("/api/v1/")[2].partition("?")[0]))
    return paths


def solved(page, action):
    """Do what changes the network, and wait for its answer."""
    with page.expect_response(lambda response: response.url.endswith("/solve")) as response:
        action()
    answer = response.value.json()
    settled(page)
    return answer


def move(page, selector, value):
    """Drag a slider to a value."""
    page.locator(selector).evaluate(
        """(slider, value) => {
            slider.value = value;
            slider.dispatchEvent(new Event("input", {bubbles: true}));
            slider.dispatchEvent(new Event("change", {bubbles: true}));
        }""",
        str(value),
    )


def scores_of(page):
    """The scores that the drawing shows, by token."""
    titles = page.locator(".bars rect title").all_text_contents()
    return [float(title.rpartition(": ")[2]) for title in titles]


def assert_scores(page, att):
    """The drawing shows the scores of this attribution."""
    page.wait_for_function("count => document.querySelectorAll('.bars rect').length === count", arg=len(att.tokens))
    assert scores_of(page) == pytest.approx(att.scores.tolist(), rel=2e-3, abs=1e-6)


def read_number(text):
    """A number as the page writes it."""
    return float(text.replace("−", "-").rstrip("%"))
