"""The documentation site builds without a warning, holds every public name, and has no link that leads nowhere."""

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import gaflow

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
ROOMS = ("attribution", "benchmark", "data", "evaluation", "explainer", "flow", "html", "inputs", "jobs", "methods")
ROOMS += ("models", "plots", "schemas", "tasks", "terminal", "view", "web")


class Page(HTMLParser):
    """The links, pictures, scripts and anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value for name, value in attrs if value}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") == "stylesheet":
            self.loaded.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    options = ("-b", "html", "-W", "--keep-going", "-q", "-E", "-d", str(folder / "doctrees"))
    command = (sys.executable, "-m", "sphinx", *options, str(DOCS), str(folder / "html"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_public_name_is_in_the_reference(site):
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    documented = set()
    for kind, names in inventory.data.items():
        if kind.startswith("py:"):
            documented |= {name.rpartition(".")[2] for name in names}
    public = set(gaflow.__all__)
    for room in ROOMS:
        public |= set(importlib.import_module(f"gaflow.{room}").__all__)
    assert public - documented == set()


def test_every_link_within_the_site_leads_somewhere(pages):
    assert len(pages) > 30
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or link == "#":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {unquote(parts.fragment)}
            wrong_anchor = parts.fragment and unquote(parts.fragment) not in anchors
            if not target.is_file() or wrong_anchor:
                broken.append(f"{path.name}: {link}")
    assert broken == []


def test_every_link_between_pages_of_the_documentation_is_a_link_on_the_site(site, pages):
    lost = []
    for source in sorted(DOCS.rglob("*.md")):
        page = pages[(site / source.relative_to(DOCS)).with_suffix(".html").resolve()]
        listed_names = {
            (site / source.relative_to(DOCS).parent / unquote(urlsplit(link).path)).resolve() for link in page.links
        }
        for target in re.findall(r"(?<!!)\[[^]]+\]\(([^):#]+\.(?:md|ipynb))", source.read_text(encoding="utf-8")):
            file = (source.parent / target).resolve()
            if not file.is_relative_to(DOCS):
                continue
            expected = (site / file.relative_to(DOCS)).with_suffix(".html").resolve()
            if expected not in listed_names:
                lost.append(f"{source.name}: {target}")
    assert lost == []


def test_the_list_for_language_models_leads_to_pages_of_the_site(site):
    text = (site / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    repository = (DOCS.parent / "llms.txt").read_text(encoding="utf-8")
    assert len(links) == repository.count("](") > 20
    assert [link for link in links if not (site / link).is_file()] == []


def test_no_page_loads_anything_from_elsewhere(pages):
    outside = [source for page in pages.values() for source in page.loaded if urlsplit(source).netloc]
    assert outside == []


def test_every_page_can_be_reached_from_the_first(site, pages):
    first = (site / "index.html").resolve()
    reached, waiting = {first}, [first]
    while waiting:
        path = waiting.pop()
        for link in pages[path].links:
            target = (path.parent / unquote(urlsplit(link).path)).resolve()
            if not urlsplit(link).scheme and target in pages and target not in reached:
                reached.add(target)
                waiting.append(target)
    made_by_sphinx = {"search.html", "genindex.html", "py-modindex.html"}
    assert {path.name for path in set(pages) - reached} <= made_by_sphinx
