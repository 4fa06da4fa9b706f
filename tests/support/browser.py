"""A headless browser for tests of pages, by Playwright; what a page logs, asks for or does wrong fails the test."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser():
    """Chromium as it is installed; where there is none the test is skipped, but not where CI=1."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        reason = f"NO BROWSER: pages were not tried out; install one of {', '.join(NAMES)}"
        if os.environ.get("CI", "") not in ("", "0"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@contextmanager
def opened(browser, path, **settings):
    """A tab with the page at `path`."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, **settings)
    page = context.new_page()
    wrong, requests = [], []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    yield page
    assert wrong == []
    assert requests == [path.as_uri()]
    context.close()
