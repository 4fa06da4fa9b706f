"""The page Compare: two texts, targets, methods or layers."""

import pytest

import gaflow
from tests.support.browser import browser  # noqa: F401
from tests.support.explorer_page import TEXT, link, linked, opened, read_number, settled
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OTHER = "although this cat is not cute, it is smart."


@pytest.fixture(scope="module")
def address():
    with running() as address:
        yield address


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


def shares_of(att, scores=None):
    """(text, share of the absolute scores) of every word."""
    scores = att.scores if scores is None else scores
    words = [(word.text, float(sum(scores[list(word.tokens)]))) for word in att.words()]
    total = sum(abs(score) for _, score in words)
    return [(text, score / total) for text, score in words]


def page_state(page):
    """The rows of the table: word, share in A, share in B, difference; None where a word is not there."""
    rows = []
    for row in page.locator(".aligned tbody tr").all():
        first, second, difference = (row.locator("td").nth(k).text_content() for k in (1, 3, 4))
        numbers = [None if "not there" in cell else read_number(cell.replace("+", "")) for cell in (first, second)]
        rows.append((row.locator("th").text_content(), *numbers, read_number(difference.replace("+", ""))))
    return rows


def test_two_texts_are_aligned_and_their_difference_drawn(browser, address, explainer):  # noqa: F811
    with opened(browser, address, link("compare")) as page:
        page.fill(".side-a [name=text]", TEXT)
        page.fill(".side-b [name=text]", OTHER)
        page.click(".compare")
        page.wait_for_selector(".difference-drawing path", state="attached")
        first = shares_of(explainer(TEXT))
        second = shares_of(explainer(OTHER))
        rows = page_state(page)
        assert [row[0] for row in rows if row[2] is None] == ["dog", "very"]
        assert [row[0] for row in rows if row[1] is None] == ["cat"]
        assert [row[1] for row in rows if row[1] is not None] == pytest.approx([100 * s for _, s in first], abs=0.06)
        assert [row[2] for row in rows if row[2] is not None] == pytest.approx([100 * s for _, s in second], abs=0.06)
        for _, a, b, difference in rows:
            assert difference == pytest.approx((b or 0) - (a or 0), abs=0.11)
        assert page.locator(".difference del").all_inner_texts() == ["dog", "very"]
        assert linked(page)["a.text"] == TEXT
        page.click("text=Swap")
        page.click(".compare")
        settled(page)
        assert page.locator(".difference del").all_inner_texts() == ["cat"]


def test_methods_targets_and_layers_are_compared_from_a_link(browser, address, explainer):  # noqa: F811
    values = {"a.text": TEXT, "a.method": "agf", "a.layer": "2", "b.text": TEXT, "b.target": "negative"}
    fragment = link("compare", **{name.replace(".", "__"): value for name, value in values.items()})
    with opened(browser, address, fragment) as page:
        page.wait_for_selector(".aligned")
        agf = explainer(TEXT, "agf")
        negative = explainer(TEXT, target="negative")
        rows = page_state(page)
        layer = [100 * share for _, share in shares_of(agf, agf.layers[2])]
        assert [row[1] for row in rows] == pytest.approx(layer, abs=0.06)
        assert [row[2] for row in rows] == pytest.approx([100 * share for _, share in shares_of(negative)], abs=0.06)
        assert page.input_value(".side-a .layer-choice") == "2"
        assert page.locator(".caution").count() == 1
        page.click(".same-target")
        page.wait_for_selector(".caution", state="detached")
        assert linked(page)["b.target"] == "positive"


def test_a_method_without_flow_is_compared_by_words_alone(browser, address, explainer):  # noqa: F811
    with opened(browser, address, link("compare", a__text=TEXT, b__text=TEXT, b__method="attcat")) as page:
        page.wait_for_selector(".flow-difference .note")
        assert page.locator(".difference-drawing").count() == 0
        assert page.locator(".aligned tbody tr").count() == len(explainer(TEXT).words())
