"""The page Data: rows of a run with filters, words over the run, and rows that open."""

import pytest

import gaflow
from gaflow.data import open_data
from gaflow.jobs import attribute, read_attributions
from tests.support.browser import browser  # noqa: F401
from tests.support.explorer_page import link, linked, opened, read_number, settled
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FILMS = ["superb", "dull", "moving", "boring", "<i>gripping</i>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    rows = ["text,label"]
    for k in range(30):
        rows.append(f"the {FILMS[k % 5]} film number {k},{'positive' if k % 3 else 'negative'}")
    (folder / "texts.csv").write_text("\n".join(rows), encoding="utf-8")
    explainer = gaflow.Explainer()
    attribute(explainer, open_data(folder / "texts.csv", label_column="label"), folder / "films", ["agf", "attcat"])
    explainer("a gripping film.").save(folder / "one.safetensors")
    return folder


@pytest.fixture(scope="module")
def stored(folder):
    rows = read_attributions(folder / "films", methods=["agf"])
    return {row.row: row for row in rows}


@pytest.fixture(scope="module")
def address(folder):
    with running(folders=[folder / "films", folder / "one.safetensors"]) as address:
        yield address


def rows_shown(page):
    return [int(text) for text in page.locator(".rows-table tbody th").all_inner_texts()]


def test_rows_are_listed_filtered_and_restored_from_the_link(browser, address, stored):  # noqa: F811
    with opened(browser, address, link("data")) as page:
        page.wait_for_selector(".rows-table")
        assert rows_shown(page) == list(range(25))
        page.click("text=Later")
        page.wait_for_function("() => document.querySelector('.rows-table tbody th').textContent === '25'")
        assert rows_shown(page) == list(range(25, 30))
        page.check(".wrong")
        settled(page)
        wrong = [key for key, row in stored.items() if row.prediction != row.gold_label]
        assert rows_shown(page) == wrong[:25]
        page.fill(".contains", "MOVING")
        page.press(".contains", "Enter")
        settled(page)
        moving = [key for key in wrong if "moving" in stored[key].text]
        assert rows_shown(page) == moving
        fragment = page.evaluate("location.hash")
    with opened(browser, address, fragment) as page:
        page.wait_for_selector(".rows-table")
        assert rows_shown(page) == moving
        page.select_option(".special", "0.75")
        settled(page)
        special = []
        for key in moving:
            sizes = abs(stored[key].scores)
            if sizes[stored[key].special_mask].sum() >= 0.75 * sizes.sum():
                special.append(key)
        assert (rows_shown(page) if special else page.locator(".rows-table").count() or []) == special


def test_a_row_opens_with_its_stored_scores_and_can_be_explained_again(browser, address, stored):  # noqa: F811
    with opened(browser, address, link("data")) as page:
        page.click(".rows-table tbody tr:nth-child(5) td:nth-child(4)")
        page.wait_for_selector("#explain .headline")
        att = stored[4].attribution()
        assert page.inner_text("#explain .passage") == att.text
        assert {name: linked(page)[name] for name in ("run", "row", "method")} == {
            "run": "films",
            "row": "4",
            "method": "agf",
        }
        strongest = max(att.words(), key=lambda word: abs(word.score))
        assert page.locator(".top-words tbody th").first.inner_text() == strongest.text
        page.click("text=Explain it again here")
        page.wait_for_selector(".to-flow")
        assert linked(page)["text"] == att.text


def test_words_over_the_run_have_the_intervals_of_python(browser, address, folder):  # noqa: F811
    with opened(browser, address, link("data", view="words", minimum="5")) as page:
        page.wait_for_selector(".words-table")
        table = gaflow.corpus(folder / "films", method="agf", minimum=5)
        row_texts = {}
        for row in page.locator(".words-table tbody tr").all():
            cells = row.locator("td.number").all_inner_texts()
            row_texts.setdefault(row.locator("summary").inner_text(), []).append((cells[0], cells[1], cells[2]))
        assert len(row_texts) == table["words"].nunique()
        for row in table.to_dict("records"):
            ends = [
                (read_number(share), *map(read_number, interval.split(" to ")), int(texts))
                for share, interval, texts in row_texts[row["words"]]
            ]
            expected = (100 * row["share"], 100 * row["low"], 100 * row["high"], row["texts"])
            assert any(end == pytest.approx(expected, abs=0.06) for end in ends), row["words"]
        page.locator(".words-table summary").first.click()
        page.locator(".words-table .examples a").first.click()
        page.wait_for_selector("#explain .headline")


def test_a_saved_attribution_opens_and_its_network_can_be_changed(browser, address):  # noqa: F811
    with opened(browser, address, link("data")) as page:
        page.click("text=one.safetensors")
        page.wait_for_selector("#explain .headline")
        page.click(".to-flow")
        page.wait_for_selector("#flow .drawing .edges path", state="attached")
        assert page.locator(".ask-model").count() == 0


def test_a_server_without_data_says_how_to_name_it(browser):  # noqa: F811
    with running() as address, opened(browser, address, link("data")) as page:
        assert "--open" in page.inner_text("#data pre")
