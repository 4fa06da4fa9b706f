"""The page Explain: a text, its prediction and the words that count."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

import gaflow
from tests.support.browser import browser  # noqa: F401
from tests.support.explorer_page import TEXT, link, linked, move, opened, read_number, requests_of, settled
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def address():
    with running() as address:
        yield address


@pytest.fixture(scope="module")
def explainer():
    return gaflow.Explainer()


@pytest.fixture(scope="module")
def att(explainer):
    return explainer(TEXT)


@pytest.fixture(scope="module")
def page(browser, address):  # noqa: F811
    """A tab in which a text was explained; tests that change more than details open one of their own."""
    with opened(browser, address) as page:
        page.fill("#explain [name=text]", TEXT)
        page.click("#explain button.primary")
        page.wait_for_selector("#explain .spark")
        settled(page)
        yield page


def test_a_text_is_explained_with_its_words_and_its_certificate(page, att):
    assert page.inner_text("#explain .headline") == f"positive {att.probability:.1%}"
    assert page.inner_text("#explain .passage") == TEXT
    rows = page.locator(".top-words tbody tr").all()
    words = sorted(att.words(), key=lambda word: -abs(word.score))
    total = sum(abs(word.score) for word in words)
    assert len(rows) == 8
    for row, word in zip(rows, words, strict=False):
        assert row.locator("th").inner_text() == word.text
        assert read_number(row.locator("td").nth(1).inner_text()) == pytest.approx(word.score, abs=6e-4)
        assert read_number(row.locator("td").nth(2).inner_text()) == pytest.approx(
            100 * abs(word.score) / total, abs=0.06
        )
    certificate = att.certificate
    error = max(certificate.conservation, certificate.dual, certificate.centrality)
    assert float(page.inner_text(".seal").rpartition(" ")[2]) == pytest.approx(error, rel=0.6)  # one digit


def test_words_are_shaded_by_their_score(page, att):
    classes = page.locator("#explain .passage span").evaluate_all("spans => spans.map(span => span.className)")
    largest = max(abs(word.score) for word in att.words())
    levels = [round(16 * word.score / largest) for word in att.words()]
    assert classes == [f"{'n' if level < 0 else 'p'}{abs(level)}" if level else "" for level in levels]


def test_the_masking_curve_is_that_of_python(page, explainer, att):
    page.wait_for_selector(".masked")
    count = len(att.tokens) - 2
    evaluation = gaflow.evaluate(
        explainer, [TEXT], methods=[], scores={"a": [att]}, order="top", levels=[25], eraser=False
    )
    assert page.get_attribute(".masked", "max") == str(count)
    move(page, ".masked", 3)
    expected = np.exp(evaluation.masked[evaluation.methods.index("a"), 0, 0])
    assert page.inner_text(".readout b") == f"positive {expected:.1%}"
    strongest = {att.tokens[i] for i in np.argsort(-att.scores)[:3]}
    assert set(page.locator(".masked-token").all_inner_texts()) == strongest
    assert linked(page)["masked"] == "3"


def test_the_link_restores_text_target_methods_and_masks(browser, address, explainer):  # noqa: F811
    fragment = link("explain", text=TEXT, target="negative", also="agf,attcat", masked="2")
    with opened(browser, address, fragment) as page:
        page.wait_for_selector(".masked")
        negative = explainer(TEXT, target="negative")
        assert page.inner_text("#explain .headline") == f"negative {negative.probability:.1%}"
        assert "positive" in page.inner_text("#explain .facts")
        assert page.locator(".also-row h3").all_inner_texts() == ["agf", "attcat"]
        assert page.locator(".also-list input:checked").count() == 2
        assert page.input_value(".masked") == "2"
        page.click(".chip:not([aria-pressed=true])")
        page.wait_for_function("() => document.querySelector('.headline').textContent.startsWith('positive')")
        assert linked(page)["target"] == "positive"


def test_a_text_is_edited_in_place_and_the_difference_is_drawn(browser, address, explainer, att):  # noqa: F811
    after = "although this cat is not cute, it is smart indeed."
    with opened(browser, address, link("explain", text=TEXT)) as page:
        page.click(".edit")
        page.fill(".in-place", after)
        page.keyboard.press("Enter")
        page.wait_for_selector(".change ins")
        assert page.locator(".change ins").all_inner_texts() == ["cat", "indeed"]
        assert page.locator(".change del").all_inner_texts() == ["dog", "very"]
        changed = explainer(after, target="positive")

        def share(explained, text):
            words = explained.words()
            return next(word.score for word in words if word.text == text) / sum(abs(word.score) for word in words)

        title = page.locator(".change span", has_text="smart").get_attribute("title")
        before, _, now = title.replace("−", "-").partition(" → ")
        assert float(before.rstrip("%")) == pytest.approx(100 * share(att, "smart"), abs=0.06)
        assert float(now.partition("%")[0]) == pytest.approx(100 * share(changed, "smart"), abs=0.06)
        page.click("text=Back to the text before")
        settled(page)
        assert page.inner_text("#explain .passage") == TEXT
        assert page.locator(".change ins").count() == 0


def test_python_and_command_that_are_copied_give_the_same_result(browser, address, explainer, tmp_path):  # noqa: F811
    text = "it isn't “cute” \\ $HOME `a` 🙂 but smart."
    att = explainer(text, "agf", "negative")
    with opened(browser, address, link("explain", text=text, method="agf", target="negative")) as page:
        page.click(".copies >> text=Python")
        page.wait_for_selector(".copied:visible")
        source = page.inner_text(".copied")
        variables = {}
        exec(source.replace("print(", "("), variables)
        assert variables["att"].label == "negative"
        assert variables["att"].scores.tolist() == att.scores.tolist()
        page.click(".copies >> text=Command line")
        page.wait_for_function("() => document.querySelector('.copied').textContent.startsWith('gaflow')")
        command = shlex.split(page.inner_text(".copied"))
    assert command[0] == "gaflow"
    run = [sys.executable, "-m", "gaflow", *command[1:], "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    values = json.loads(done.stdout)
    assert values["text"] == text
    assert values["label"] == "negative"
    assert values["method"] == att.method


@pytest.mark.parametrize("kind", ["html", "flow", "svg", "json", "graph", "safetensors"])
def test_a_result_is_saved_as_a_file(page, att, tmp_path, kind):
    with page.expect_download() as download:
        page.click(f"#explain .files [data-kind={kind}]")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    if kind == "safetensors":
        loaded = gaflow.load(path)
        assert loaded.scores == pytest.approx(att.scores)
        assert loaded.edit(cut_nodes=[(4, 11)]).scores == pytest.approx(att.edit(cut_nodes=[(4, 11)]).scores)
    elif kind in ("json", "graph"):
        values = json.loads(path.read_text("utf-8"))
        assert (values["tokens"] if kind == "json" else values["metadata"]["prompt_tokens"]) == list(att.tokens)
    else:
        assert path.read_text("utf-8").lstrip().startswith("<?xml" if kind == "svg" else "<!doctype html>")


def test_results_are_pinned_to_the_shelf_and_come_back(browser, address):  # noqa: F811
    with opened(browser, address, link("explain", text="a gripping film.")) as page:
        page.click("#explain .pin")
        page.click("nav [data-page=about]")
        page.wait_for_selector("#about .methods")
        page.click(".shelf-button")
        page.click("#shelf a")
        page.wait_for_selector("#explain .headline")
        assert page.inner_text("#explain .passage") == "a gripping film."
        page.reload()
        page.wait_for_selector("body[data-ready]")
        page.click(".shelf-button")
        page.click("#shelf button")
        assert page.locator("#shelf a").count() == 0


def test_an_answer_is_asked_for_once(browser, address):  # noqa: F811
    with opened(browser, address, link("explain", text="a quiet film.")) as page:
        settled(page)
        paths = requests_of(page)
        page.click(".to-flow")
        page.wait_for_selector("#flow .drawing .edges path", state="attached")
        assert "explain" not in paths
        page.click("nav [data-page=explain]")
        page.wait_for_selector("#explain .headline:visible")
        settled(page)
        assert "explain" not in paths


def test_an_example_is_explained_when_it_is_clicked(browser, address):  # noqa: F811
    with opened(browser, address) as page:
        example = page.locator("#explain .example").last
        text = example.inner_text()
        example.click()
        page.wait_for_selector("#explain .headline")
        assert page.inner_text("#explain .passage") == text
        assert linked(page)["text"] == text
        assert page.locator("#explain .example").count() == 0
