import ast
import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaflow
from gaflow.html import fragment, page
from gaflow.view.shades import contrast
from gaflow.view.summary import summarize
from gaflow.view.text import number_format, visible
from tests.support.attributions import make, scored
from tests.support.dom import parse
from tests.support.models import SENTENCE, TEXTS, byte_bpe
from tests.support.pages import KINDS

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</title></textarea>--><svg onload=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "&lt;b&gt; &#60;b&#62; &amp",
    "]]> <!-- <![CDATA[",
    "שלום \u202eעולם\u2066 مرحبا",
    "👩\u200d💻 👍🏽 🇩🇪 e\u0301\u0302\u0303",
    "\x00\x01\x1b[31m\x7f\x85\u2028\ufeff",
    "\ud83d \udc4d",
    "{{x}} ${x} {0} %s \\",
]
LAYOUT = {"html", "head", "meta", "title", "style", "body", "main", "div", "section", "h1", "h2", "h3", "p"}
TAGS = LAYOUT | {"b", "i", "bdi", "small", "span", "ul", "li", "details", "summary"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {
    "lang",
    "charset",
    "http-equiv",
    "content",
    "name",
    "class",
    "title",
    "dir",
    "scope",
    "style",
    "aria-hidden",
}
METHODS = {name: scored(SENTENCE, seed, method=name) for seed, name in enumerate(["af", "gf", "agf"])}


def cut(text, size):
    """An attribution of any text to pieces of `size` characters, whatever a tokenizer would say to it."""
    places = tuple((k, min(k + size, len(text))) for k in range(0, len(text), size))
    tokens, t = tuple(text[a:b] for a, b in places), len(places)
    scores = np.random.default_rng(0).normal(size=2 * t)
    parts = {"tokens": tokens * 2, "offsets": places * 2, "segments": (0,) * t + (1,) * t, "scores": scores}
    return replace(make("dog", flow=False), text=text, text_pair=text, **parts)


def check(document):
    """Nothing but our own tags and attributes, and nothing to fetch or run."""
    tree = parse(document)
    for node in tree.walk():
        assert node.tag in TAGS | {""}
        assert set(node.attributes) <= ATTRIBUTES
        if "style" in node.attributes:
            assert re.fullmatch(r"left:[\d.]+%;width:[\d.]+%", node.attributes["style"])
    (style,) = tree.all("style")
    assert not re.search(r"url\(|@import|expression|<", style.text)
    assert "://" not in document
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", document)
    document.encode()
    return tree


def test_a_page_is_one_whole_document_that_fetches_nothing():
    document = page(scored(SENTENCE))
    tree = check(document)
    assert document.startswith("<!doctype html>\n")
    assert '<meta charset="utf-8">' in document[:200]
    policy = [m.attributes["content"] for m in tree.all("meta") if "http-equiv" in m.attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert tree.one(".text").text == SENTENCE
    assert tree.one("h1").text == "positive 87.5%"


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("text", [*TEXTS, *HOSTILE], ids=ascii)
def test_any_text_is_shown_and_never_obeyed(text, size):
    att = cut(text, size)
    for document in (page(att), fragment(att), page([att, att])):
        tree = check(document)
        assert {block.text for block in tree.all(".text")} == {visible(text)}


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
@pytest.mark.parametrize("name", ["label", "prediction", "method", "tokens"])
def test_no_name_changes_the_structure_of_a_page(name, hostile):
    att = scored("the dog", prediction="negative")
    count = len(att.tokens) if name == "tokens" else 0
    att = replace(att, **{name: ("x",) * count if count else "x"})
    odd = replace(att, **{name: (hostile,) * count if count else hostile})
    for show in (page, fragment, lambda a: page({a.method: a, "other": a})):
        tree = check(show(odd))
        assert tree.skeleton() == parse(show(att)).skeleton()
        assert " ".join(visible(hostile).split()) in " ".join(tree.text.split())


def test_the_same_attribution_gives_the_same_bytes(tmp_path):
    att = scored(SENTENCE)
    att.save(tmp_path / "a")
    assert page(gaflow.load(tmp_path / "a")) == page(att)
    assert fragment(att) == fragment(att)
    assert att.certificate is not None
    slower = replace(att, certificate=replace(att.certificate, seconds=att.certificate.seconds + 1))
    assert page(slower) == page(att)


def test_another_process_gives_the_same_bytes_of_every_kind(tmp_path):
    att = scored("zebra 👍🏽 👩\u200d💻 e\u0301t\u00e9 ❤️!!", tokenizer=byte_bpe)
    att.save(tmp_path / "a")
    code = (
        "import hashlib, sys, gaflow; from tests.html.test_pages import KINDS; att = gaflow.load(sys.argv[1])\n"
        "for name, show in KINDS.items(): print(hashlib.sha256(show(att).encode()).hexdigest(), name)\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "a")]
    env, root = {**os.environ, "PYTHONHASHSEED": "7"}, Path(__file__).parents[2]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=env, cwd=root)
    expected = [f"{hashlib.sha256(show(att).encode()).hexdigest()} {name}" for name, show in KINDS.items()]
    assert done.stdout.splitlines() == expected
    assert len({line.split()[0] for line in expected}) == len(expected)


def test_to_html_returns_what_it_writes(tmp_path):
    att = make(TEXTS[4], tokenizer=byte_bpe())
    path = tmp_path / "a.html"
    document = att.to_html(path)
    assert path.read_bytes() == document.encode()
    assert att.to_html() == att.to_html(str(path)) == document == page(att) == page([att])
    assert att.to_html(words=True) == page(att, words=True) != document
    assert [p.name for p in tmp_path.iterdir()] == ["a.html"]


def test_a_page_that_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.html"
    make().to_html(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        make("other").to_html(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.*a\.html"):
        make().to_html(tmp_path / "nowhere" / "a.html")


def test_methods_on_a_short_text_are_rows_with_what_they_share_said_once():
    tree = check(page(METHODS))
    assert page(METHODS) == page(METHODS.values()) == page(list(METHODS.values()))
    assert [row.one("h2").text for row in tree.all(".row")] == list(METHODS)
    assert [row.one(".text").text for row in tree.all(".row")] == [SENTENCE] * 3
    assert [s.one("h2").text for s in tree.all("section")] == list(METHODS)
    assert len(tree.all("h1")) == len(tree.all(".headline")) == 1
    assert len(tree.all(".text")) == 3
    assert tree.one(".legend").one(".scale").text.split() == ["-100%", "100%"]
    strongest = [summarize(att).strongest() for att in METHODS.values()]
    assert [row.one(".largest").text for row in tree.all(".row")] == strongest
    shades = [[s.attributes.get("class") for s in row.one(".text").all("span")] for row in tree.all(".row")]
    assert shades[0] != shades[1] != shades[2]


def test_methods_on_a_long_text_are_columns():
    tree = check(page({name: scored(SENTENCE * 4, method=name) for name in METHODS}))
    assert tree.all(".row") == []
    assert [s.one(".text").text for s in tree.all("section")] == [SENTENCE * 4] * 3


LONG = "The dog is cute. It is not very smart! Is the dog good? " * 8


def test_of_a_long_text_the_sentences_are_listed_too():
    att = scored(LONG)
    assert len(att.tokens) > 80
    _, sentences = check(page(att)).all(".top")
    assert sentences.all("th")[0].text == "top sentences"
    best = sorted(att.sentences(), key=lambda w: -abs(w.score))[:5]
    form = number_format(abs(best[0].score))
    body = [[cell.text for cell in row.children if not isinstance(cell, str)] for row in sentences.all("tr")[1:]]
    starts = {text: [w.start for w in att.sentences() if w.text == text] for text in {w.text for w in best}}
    which = [f"{w.text} {starts[w.text].index(w.start) + 1} of 8" for w in best]  # the text says everything 8 times
    assert [(row[0], row[2]) for row in body] == [(name, form(w.score)) for name, w in zip(which, best, strict=True)]
    assert len(check(page(scored(SENTENCE))).all(".top")) == 1


def test_sentences_are_coloured_whole_when_asked_for():
    att = scored(LONG)
    for document in (att.to_html(sentences=True), fragment(att, sentences=True)):
        block = check(document).one(".text")
        assert [span.text for span in block.all("span")] == [w.text for w in att.sentences()]
        assert block.text == LONG
    with pytest.raises(ValueError, match=r"words.*sentences"):
        att.to_html(words=True, sentences=True)


def test_a_dict_names_its_columns():
    tree = parse(page({"before": METHODS["af"], "after <b>": METHODS["af"]}))
    assert [s.one("h2").text for s in tree.all("section")] == ["before", "after <b>"]
    assert [s.one("h2").text for s in tree.all(".row")] == ["before", "after <b>"]


@pytest.mark.parametrize(
    "other", [make("the cat"), make("the dog", label="negative"), make("the dog", probability=0.5)]
)
def test_explanations_of_different_things_each_say_what_of(other):
    tree = check(page([make("the dog"), other]))
    assert tree.one("h1").text == "2 explanations"
    chance = [f"positive {0.875:.1%}", f"{other.label} {other.probability:.1%}"]
    assert [s.one("h3").text for s in tree.all("section")] == chance
    assert [s.one(".text").text for s in tree.all("section")] == ["the dog", other.text]


def test_nothing_and_other_things_are_refused():
    with pytest.raises(ValueError, match="attributions is empty"):
        page([])
    with pytest.raises(ValueError, match="attributions is empty"):
        page({})
    for wrong in ("text", 7, [make(), None], {"a": "b"}):
        with pytest.raises(TypeError, match="attributions must be"):
            page(wrong)  # type: ignore[arg-type]


def test_pages_name_the_model_and_what_is_shown_in_a_notebook_does_not():
    att = scored("the dog", origin={"model": "org/name", "revision": None, "settings": {"epsilon": 1e-4, "mu": None}})
    for document in (page(att), page([att, att])):
        for block in parse(document).all(".provenance"):
            cells = [[cell.text for cell in (*row.all("th"), *row.all("td"))] for row in block.all("tr")]
            assert cells == [["model", "org/name"], ["settings", "epsilon 0.0001"]]
        assert parse(document).all(".provenance")
    assert "org/name" not in fragment(att)
    assert "provenance" not in page(scored("the dog"))


def test_a_notebook_shows_a_fragment_without_headings():
    att = scored(SENTENCE)
    assert att._repr_html_() == fragment(att)
    tree = check(fragment(att))
    (outer,) = [child for child in tree.children if not isinstance(child, str)]
    assert outer.tag == "div"
    assert not {n.tag for n in tree.walk()} & {"html", "head", "body", "main", "h1", "h2", "h3"}
    assert tree.one(".headline").text == parse(page(att)).one("h1").text


def rules(css):
    """Selector lists and declarations, those inside @media and @supports too."""
    flat = re.sub(r"@(?:media|supports)[^{]*\{((?:[^{}]*\{[^{}]*\})*)\s*\}", r"\1", css)
    assert "@" not in flat
    pairs = re.findall(r"([^{}]+)\{([^{}]*)\}", flat)
    assert "".join(f"{a}{{{b}}}" for a, b in pairs).split() == flat.split()
    return pairs


def test_every_style_of_a_fragment_stays_inside_it():
    tree = parse(fragment(make()) + fragment(make("other")))
    first, second = (n for n in tree.children if not isinstance(n, str))
    assert first.classes == second.classes
    (scope,) = first.classes
    css = first.one("style").text
    assert css == second.one("style").text
    for selectors, _ in rules(css):
        for selector in re.split(r",(?![^(]*\))", selectors):
            assert re.search(rf"\.{scope}(?![\w-])", selector), f"{selector} reaches outside"
    assert "gaflow " not in css
    assert re.fullmatch(r"gaflow-[0-9a-f]{8}", scope)


def test_every_shade_that_is_used_has_a_style():
    tree = parse(page(make("is not", scores=np.array([9.0, -4, 4, 9]))))
    (style,) = tree.all("style")
    (scope, _) = tree.one("body").classes
    styled = {s.strip() for selectors, _ in rules(style.text) for s in selectors.split(",")}
    used = {c for n in tree.one(".legend").all("i") + tree.one(".text").all("span") for c in n.classes}
    assert len(used) > 16
    assert {f".{scope} .{c}" for c in used} <= styled
    dashed = {s.strip() for s, body in rules(style.text) if "dashed" in body}
    assert dashed == {f".{scope} .{c}" for c in used if c.startswith("n")}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_words_of_a_page_are_readable(scheme):
    css = fragment(make())
    colours = {}
    for name, *both in re.findall(r"--([\w-]+):light-dark\((#\w{6}),(#\w{6})\)", css):
        value = both[scheme]
        colours[name] = (int(value[1:3], 16), int(value[3:5], 16), int(value[5:], 16))
    for ink, paper in [("ink", "paper"), ("soft", "paper"), ("warn", "warn-paper"), ("ink", "warn-paper")]:
        assert contrast(colours[ink], colours[paper]) >= 4.5
    for bar in ("more", "less"):
        assert contrast(colours[bar], colours["paper"]) >= 3
    fallback = dict(re.findall(r"--([\w-]+):(#\w{6})", css))
    assert set(fallback) == set(colours)


def test_attributions_load_this_only_when_asked_to():
    source = (Path(gaflow.__file__).parent / "attribution" / "attribution.py").read_text()
    top = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    assert "gaflow.html" not in {node.module for node in top}
