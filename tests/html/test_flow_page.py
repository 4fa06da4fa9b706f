"""The interactive flow page: its numbers and its safety as text, its behaviour in a browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import gaflow
from benchmarks.long_texts import review
from gaflow.attribution.attribution import Attribution
from gaflow.flow.result import Flow
from gaflow.html import flow_page
from gaflow.html.flow_drawing import drawing_data, drawn_flows
from gaflow.view.flow_graph import Graph
from gaflow.view.text import visible
from tests.support.attributions import make
from tests.support.browser import browser, opened  # noqa: F401
from tests.support.dom import parse
from tests.support.pictures import HOSTILE, in_sentences, odd_text, text_of

SMALL = text_of(6)
WITHOUT = replace(text_of(6, signed=True), method="attcat", layers=None, flow=None, certificate=None)
MANY = {"agf": SMALL, "af": replace(text_of(6, seed=1), text=SMALL.text, tokens=SMALL.tokens), "attcat": WITHOUT}


def flow_of(att: Attribution) -> Flow:
    assert att.flow is not None
    return att.flow


def layers_of(att: Attribution) -> np.ndarray:
    assert att.layers is not None
    return att.layers


def data_of(document):
    return json.loads(parse(document).one("#flow-data").text)


def split(att, layer, token):
    """Where the flow of a node comes from in the output and goes to in the input, over all edges, as shares."""
    edges, through = flow_of(att).edges[0].numpy(), layers_of(att)
    up = down = np.eye(len(att.tokens))[token]
    for k in range(layer, len(edges)):
        up = edges[k] @ (up / through[k])
    for k in reversed(range(layer)):
        down = (down / through[k + 1]) @ edges[k]
    return up, down


def test_a_page_is_one_document_that_allows_nothing_but_its_own_script():
    document = SMALL.to_flow_html()
    tree = parse(document)
    data, script = tree.all("script")
    (policy,) = (m.attributes["content"] for m in tree.all("meta") if "http-equiv" in m.attributes)
    digest, look = (
        base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode() for node in (script, tree.one("style"))
    )
    rules = ["default-src 'none'", f"style-src 'sha256-{look}'", f"script-src 'sha256-{digest}'"]
    assert policy.split("; ") == [*rules, "base-uri 'none'", "form-action 'none'"]
    assert data.attributes == {"type": "application/json", "id": "flow-data"}
    assert "://" not in document
    assert not re.search(r"url\(|@import|innerHTML|insertAdjacent|eval\(|Function\(|\son\w+=", document)
    assert not any(name.startswith("on") or name in ("src", "href") for n in tree.walk() for name in n.attributes)


def test_the_numbers_of_the_page_are_those_of_the_result():
    data = data_of(flow_page(MANY))
    options = parse(flow_page(MANY)).one("select").all("option")
    assert [option.text for option in options] == list(MANY)
    assert data["tokens"] == [visible(token) for token in SMALL.tokens]
    for method, att in zip(data["methods"], MANY.values(), strict=True):
        np.testing.assert_allclose(method["scores"], att.scores, rtol=1e-5)
        if att.flow is None:
            assert method["layers"] == method["edges"] == []
            continue
        value = att.flow.value.item()
        np.testing.assert_allclose(method["layers"], layers_of(att) / value * 1e6, rtol=1e-4)
        full = np.zeros(att.flow.edges[0].shape)
        for k, flat in enumerate(method["edges"]):
            for i, j, amount in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                full[k, i, j] = amount
        np.testing.assert_allclose(full, att.flow.edges[0] / value * 1e6, rtol=1e-3)


def test_methods_with_a_flow_come_first():
    tree = parse(flow_page({"attcat": WITHOUT, "agf": SMALL}))
    assert [o.text for o in tree.one("select").all("option")] == ["agf", "attcat"]


LONG = text_of(60, layers=4)
SENTENCES = in_sentences(text_of(300, layers=4, seed=2), length=6)  # of 50 sentences


def test_a_long_text_keeps_the_strongest_edges_and_a_way_from_every_token():
    (method,) = data_of(LONG.to_flow_html(edges=1000))["methods"]
    graph = Graph.of(flow_of(LONG))
    drawn, selection = graph.strongest(600), graph.strongest(1000, complete_paths=True)
    assert sum(len(flat) for flat in method["edges"]) == 3 * len(selection.amount)
    assert drawn.describe("flow") in method["caption"]
    assert f"{len(selection.amount):,}" in method["caption"]
    assert f"{selection.share():.1%}" in method["caption"]
    assert set(method["edges"][0][1::3]) == set(method["edges"][-1][::3]) == set(range(60))
    for layer, parts in ((0, method["ends"][0]), (4, method["ends"][1])):
        for token in (0, 7, 59):
            expected = split(LONG, layer, token)[0 if layer == 0 else 1]
            best = np.argsort(-expected, kind="stable")[:5]
            assert parts[token][::2] == best.tolist()
            np.testing.assert_allclose(parts[token][1::2], expected[best] * 1e6, rtol=1e-9, atol=0.5)


def test_where_all_edges_are_kept_pointing_shows_all():
    (method,) = data_of(text_of(20, layers=2).to_flow_html())["methods"]
    assert {"600", "800"} <= set(re.findall(r"\d+", method["caption"]))
    cut = data_of(text_of(20, layers=3).to_flow_html())["methods"][0]
    assert re.sub(r"\d", "", cut["caption"]) != re.sub(r"\d", "", method["caption"])  # not all edges are in the page


def test_before_a_token_is_pointed_at_the_strongest_edges_are_drawn(browser, tmp_path):  # noqa: F811
    LONG.to_flow_html(tmp_path / "long.html")
    drawn = "() => [...document.querySelectorAll('.edges path')].filter(p => p.checkVisibility()).length"
    with opened(browser, tmp_path / "long.html") as page:
        assert page.evaluate(drawn) == 600
        page.hover(".names g:nth-child(31) rect", force=True)
        assert page.locator(".edges .mine").first.is_visible()
        assert page.evaluate("() => document.querySelectorAll('.edges .mine.weak').length") == 0
        is_visible = "path => path.getAttribute('stroke-opacity') >= 0.45 && path.getAttribute('stroke-width') >= 1"
        start = "path => path.getAttribute('d').split(' ')[0]"
        places = f"() => [...document.querySelectorAll('.mine')].filter({is_visible}).map({start})"
        assert len(set(page.evaluate(places))) == 4  # in every layer its way is plain to see
        selection, through = Graph.of(flow_of(LONG)).strongest(1800, complete_paths=True), layers_of(LONG)
        edges, part = np.zeros_like(selection.graph.edges), np.eye(60)[30]
        edges[selection.layer, selection.i, selection.j] = selection.amount
        for k in range(4):
            part = edges[k] @ (part / through[k])
        (percent,) = re.findall(r"The lines carry ([\d.]+)% of it from end to end", says(page))
        assert float(percent) == pytest.approx(100 * part.sum(), abs=0.1)
        page.keyboard.press("Escape")
        page.mouse.move(2, 2)
        assert page.evaluate(drawn) == 600


def test_what_does_not_change_is_not_set_again_when_the_pointer_moves_on(browser, tmp_path):  # noqa: F811
    LONG.to_flow_html(tmp_path / "long.html")
    watch = """() => {
        window.changed = new Set();
        new MutationObserver(records => records.forEach(record => window.changed.add(record.target)))
            .observe(document.querySelector(".drawing"), {attributes: true, subtree: true});
    }"""
    carry = "() => document.querySelectorAll('.edges .mine').length"
    with opened(browser, tmp_path / "long.html") as page:
        assert page.locator(".edges path").first.evaluate("path => getComputedStyle(path).transitionDuration") == "0s"
        page.hover(".names g:nth-child(31) rect", force=True)
        before = page.evaluate(carry)
        page.evaluate(watch)
        page.hover(".names g:nth-child(41) rect", force=True)
        after = page.evaluate(carry)
        changed = page.evaluate("() => [...window.changed].filter(element => element.matches('.edges path')).length")
        assert 0 < changed <= before + after < page.locator(".edges path").count()


@pytest.mark.parametrize(
    ("tokens", "unit", "most"),
    [
        (12, None, 150_000),
        (128, "token", 250_000),
        (512, "token", 450_000),
        (128, None, 700_000),
        (512, None, 900_000),
    ],
)
def test_a_page_of_12_layers_stays_small(tokens, unit, most):
    rng = np.random.default_rng(0)  # a flow that is not solved for: every node passes on all that it gets
    edges, above = np.zeros((1, 12, tokens, tokens)), rng.dirichlet(np.ones(tokens))
    for layer in reversed(range(12)):
        edges[0, layer] = above[:, None] * rng.dirichlet(np.ones(tokens), tokens)
        above = edges[0, layer].sum(0)
    att = text_of(tokens, layers=1)
    flow = replace(
        flow_of(att),
        edges=torch.from_numpy(edges),
        source=torch.from_numpy(edges[:, -1].sum(2)),
        target=torch.from_numpy(edges[:, 0].sum(1)),
        value=torch.ones(1, dtype=torch.float64),
        capacity=None,
    )
    wide = replace(att, flow=flow, layers=flow.through()[0].numpy(), scores=edges[0, 0].sum(0))
    assert len(wide.to_flow_html(unit=unit).encode()) < most


def test_the_same_result_gives_the_same_bytes(tmp_path):
    assert flow_page(MANY, tmp_path / "a.html") == flow_page(MANY)
    assert (tmp_path / "a.html").read_text("utf-8") == flow_page(MANY)


def test_hostile_tokens_are_data_in_the_page_and_in_its_data():
    document = flow_page([odd_text(), replace(odd_text(), method="</script><script>alert(1)</script>\u2028")])
    tree = parse(document)
    assert len(tree.all("script")) == 2
    raw = document[document.index('id="flow-data">') + 15 :]
    raw = raw[: raw.index("</script>")]
    assert not set("<>&\u2028\u2029") & set(raw)
    assert raw.isascii()
    data = json.loads(raw)
    assert data["tokens"][1:-1] == [visible(token) for token in HOSTILE]
    plain = parse(flow_page([replace(odd_text(), tokens=("x",) * len(odd_text().tokens))] * 2))
    assert [tag for tag, _ in tree.skeleton()] == [tag for tag, _ in plain.skeleton()]


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"attributions.*attcat"):
        WITHOUT.to_flow_html()
    with pytest.raises(ValueError, match="of different texts"):
        flow_page([SMALL, make()])
    for wrong in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"edges.*{wrong}"):
            SMALL.to_flow_html(edges=wrong)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SMALL.to_flow_html(tmp_path / "nowhere" / "a.html")


def test_a_flow_that_was_not_kept_shows_its_nodes(browser, tmp_path):  # noqa: F811
    document = replace(SMALL, flow=None).to_flow_html(tmp_path / "nodes.html")
    (method,) = data_of(document)["methods"]
    assert "not kept" in method["caption"]
    assert method["edges"] == []
    with opened(browser, tmp_path / "nodes.html") as page:
        assert page.locator(".edges path").count() == 0
        assert page.locator(".nodes circle").count() > 6
        page.hover(".names g:nth-child(3) rect", force=True)
        assert says(page).startswith(f"“{SMALL.tokens[2]}” in input (layer 0): ")


LAYERS = layers_of(SMALL)


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "flow.html"
    flow_page(MANY, path)
    return path


def figure(score):
    return f"{score:.4g}"


def says(page):
    return page.inner_text(".says")


def percentages(text, end):
    """The shares that the sentence about an end of the network tells, by token."""
    sentence = text.partition(end)[2].partition("%.")[0] + "%"
    return {name: float(share) for name, share in re.findall(r"“([^”]+)” ([\d.]+)%", sentence)}


def test_pointing_at_a_token_shows_where_its_flow_goes(browser, page_path):  # noqa: F811
    with opened(browser, page_path) as page:
        at_rest = says(page)
        page.hover(".names g:nth-child(3) rect", force=True)  # the letters lie above
        up, _ = split(SMALL, 0, 2)
        assert says(page).startswith(f"“{SMALL.tokens[2]}” in input (layer 0): ")
        share = LAYERS[0, 2] / LAYERS[0].sum()
        assert f"{share:.1%} of the flow (score {figure(SMALL.scores[2])})" in says(page)
        for name, percent in percentages(says(page), "the output holds").items():
            assert percent == pytest.approx(100 * up[SMALL.tokens.index(name)], abs=0.051)
        assert page.locator(".edges .mine").count() == int((flow_of(SMALL).edges[0, 0, :, 2] > 0).sum()) + 2 * 36
        assert page.locator(".text .chosen").inner_text() == SMALL.tokens[2]
        page.mouse.move(2, 2)
        assert says(page) == at_rest
        assert page.locator(".edges .mine").count() == 0


def test_keys_reach_every_token_and_layer(browser, page_path):  # noqa: F811
    with opened(browser, page_path) as page:
        page.focus(".choose")
        for _ in range(3):
            page.keyboard.press("Tab")
        page.focus(".names g")
        for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        assert says(page).startswith(f"“{SMALL.tokens[1]}” in layer 2: {LAYERS[2, 1] / LAYERS[2].sum():.1%}")
        up, down = split(SMALL, 2, 1)
        for end, parts in (("the output holds", up), ("the input gets", down)):
            by_token = percentages(says(page), end)
            assert len(by_token) == 5
            for name, percent in by_token.items():
                assert percent == pytest.approx(100 * parts[SMALL.tokens.index(name)], abs=0.051)
        assert page.locator("[role=option][aria-selected=true]").count() == 1
        page.keyboard.press("End")
        assert says(page).startswith(f"“{SMALL.tokens[-1]}”")
        page.keyboard.press("Escape")
        assert page.inner_text(".layer") == "all layers"


def test_layers_are_stepped_through_and_shade_the_text(browser, page_path):  # noqa: F811
    with opened(browser, page_path) as page:
        shades = []
        for step in range(4):
            page.click(".on")
            kinds = ("input (layer 0)", "layer 1", "layer 2", "output (layer 3)")
            assert page.inner_text(".layer") == kinds[step]
            shades.append(page.locator(".text").inner_html())
            titles = page.locator(".text span").evaluate_all("spans => spans.map(span => span.title)")
            scores = [float(title.split()[0]) for title in titles]
            np.testing.assert_allclose(scores, LAYERS[step, 1:-1], rtol=1e-3)
            assert float(page.inner_text(".high")) == pytest.approx(LAYERS[step, 1:-1].max(), rel=1e-3)
        assert len(set(shades)) == 4
        assert page.is_disabled(".on")
        page.click(".back")
        assert page.inner_text(".layer") == "layer 2"
        page.click(".all")
        assert page.is_disabled(".all")


def test_methods_are_switched(browser, page_path):  # noqa: F811
    with opened(browser, page_path) as page:
        page.click(".names g:nth-child(4) rect", force=True)
        page.select_option(".choose", label="af")
        assert f"score {figure(MANY['af'].scores[3])})" in says(page)
        page.select_option(".choose", label="attcat")
        assert f"score {figure(WITHOUT.scores[3])}." in says(page)
        assert page.locator(".edges path").count() == 0
        assert page.locator(".bars .less").count() == int((WITHOUT.scores < 0).sum())
        assert page.inner_text("h1:visible") == "positive 87.5%"
        assert "attcat" in page.locator("p.facts:visible").inner_text()
        assert page.locator(".method:visible").count() == 1


def test_the_drawing_shows_every_token_score_and_edge(browser, page_path):  # noqa: F811
    with opened(browser, page_path) as page:
        names = page.locator(".names text:first-of-type").all_text_contents()
        assert names == list(SMALL.tokens)
        bars = page.locator(".bars rect")
        widths = np.array(bars.evaluate_all("bars => bars.map(bar => Number(bar.getAttribute('width')))"))
        np.testing.assert_allclose(widths / widths.max(), SMALL.scores / SMALL.scores.max(), atol=0.01)
        titles = bars.evaluate_all("bars => bars.map(bar => bar.querySelector('title').textContent)")
        assert titles == [f"{token}: {figure(score)}" for token, score in zip(SMALL.tokens, SMALL.scores, strict=True)]
        assert page.locator(".edges path").count() == int((flow_of(SMALL).edges > 0).sum())
        assert page.locator(".bars .less").count() == 0


def test_without_scripts_the_shaded_text_and_a_sentence_are_there(browser, page_path):  # noqa: F811
    with opened(browser, page_path, java_script_enabled=False) as page:
        assert page.inner_text(".text") == SMALL.text
        assert page.locator(".text .p16").count() == 1
        assert "JavaScript" in page.inner_text("noscript")
        for part in (".controls", ".help", ".says"):
            assert page.locator(part).is_hidden()


def test_hostile_tokens_run_nothing_in_a_browser(browser, tmp_path):  # noqa: F811
    path = tmp_path / "odd.html"
    att = odd_text()
    flow_page([att, replace(att, method="</script><script>alert(1)</script>")], path)
    with opened(browser, path) as page:
        for k in (2, 9, len(att.tokens)):
            page.hover(f".names g:nth-child({k}) rect", force=True)  # the letters lie above
            assert says(page).startswith("“")
        assert page.locator("script").count() == 2
        page.select_option(".choose", index=1)
        assert page.locator("h2:visible").inner_text() == "</script><script>alert(1)</script>"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_clipped_or_moves_against_the_readers_wish(browser, page_path, scheme):  # noqa: F811
    with opened(browser, page_path, color_scheme=scheme, reduced_motion="reduce") as page:
        moves = page.locator(".edges path").first.evaluate("path => getComputedStyle(path).transitionDuration")
        assert moves == "0s"
        inside = """() => { const box = document.querySelector("svg").getBoundingClientRect();
            return [...document.querySelectorAll("svg text")].every(text => { const own = text.getBoundingClientRect();
            return own.left >= box.left && own.right <= box.right && own.top >= box.top && own.bottom <= box.bottom;
            }) }"""
        assert page.evaluate(inside)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(28, 30, 34)"}[scheme]


def test_a_signed_method_shows_the_flow_for_and_the_flow_against(explainer):
    att = explainer("a gripping film, despite the plot.", "relevance_flow")
    document = att.to_flow_html()
    options = parse(document).one("select").all("option")
    assert [option.text for option in options] == ["relevance_flow, for", "relevance_flow, against"]
    data = data_of(document)
    for method, flow in zip(data["methods"], (att.flow, att.flow_against), strict=True):
        assert method["value"] == pytest.approx(flow.value.item())
        through = np.array(method["layers"]) / 1e6 * flow.value.item()
        np.testing.assert_allclose(through, flow.through()[0], rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(method["scores"], att.scores, rtol=1e-5)


def test_the_verdict_on_one_side_of_a_signed_method_is_about_that_side(explainer):
    att = explainer("a gripping film, despite the plot.", "relevance_flow")
    document = att.to_flow_html()
    for flow in (att.flow, att.flow_against):
        assert f"flow {flow.value.item():.4g}," in document


def test_a_signed_method_without_its_flow_shows_its_scores_and_says_so(explainer):
    att = explainer("a gripping film, despite the plot.", "relevance_flow", keep_flow=False)
    assert (att.layers < 0).any()
    (method,) = data_of(att.to_flow_html())["methods"]
    assert method["layers"] == []
    assert "not kept" in method["caption"]


def units_of(document):
    return data_of(document)["units"]


def first_rows(units):
    """The tokens of each row of a drawing by units."""
    rows = []
    members = iter(units["members"])
    for count in units["rows"]:
        rows.append([token for _ in range(count) for token in next(members)])
    return rows


def row_edges(method, size):
    edges = np.zeros((len(method["edges"]), size, size))
    for k, flat in enumerate(method["edges"]):
        for i, j, amount in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            edges[k, i, j] = amount
    return edges


def assert_drawn(method, att, rows):
    """The drawing has the flow that is solved again between these rows."""
    edited = att.edit(groups=[row for row in rows if len(row) > 1])
    flow = flow_of(edited)
    value = flow.value.item()
    assert method["value"] == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(method["scores"], edited.scores, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(method["layers"], layers_of(edited) / value * 1e6, rtol=1e-4, atol=0.01)
    edges = row_edges(method, len(rows))
    expected = flow.edges[0].numpy() / value * 1e6
    np.testing.assert_allclose(edges[edges > 0], expected[edges > 0], rtol=1e-3)
    assert expected[edges == 0].max(initial=0) <= np.sort(edges[edges > 0])[len(edges[edges > 0]) // 2]


def test_a_long_text_is_drawn_by_sentences_that_are_solved_again():
    units = units_of(SENTENCES.to_flow_html())
    assert units["kind"] == "sentence"
    assert len(units["members"]) == 52
    assert len(units["rows"]) <= 26
    rows = first_rows(units)
    assert sorted(token for row in rows for token in row) == list(range(300))
    (method,) = units["methods"]
    assert_drawn(method, SENTENCES, rows)
    edited = SENTENCES.edit(groups=[row for row in rows if len(row) > 1])
    assert f"{flow_of(edited).value.item():.4g}" in method["caption"]
    share = Graph.of(flow_of(edited)).strongest(1200).share()
    assert f"{share:.1%}" in method["caption"]


def test_an_opened_row_has_the_flow_of_its_sentences_and_an_opened_sentence_that_of_its_tokens():
    units = units_of(SENTENCES.to_flow_html())
    rows = first_rows(units)
    (several, *_) = [index for index, count in enumerate(units["rows"]) if count > 1]
    first = sum(units["rows"][:several])
    sentences = units["members"][first : first + units["rows"][several]]
    by_sentence = rows[:several] + sentences + rows[several + 1 :]
    assert_drawn(units["opened"][f"r{several}"][0], SENTENCES, by_sentence)
    tokens = [[token] for token in sentences[1]]
    by_token = rows[:several] + sentences[:1] + tokens + sentences[2:] + rows[several + 1 :]
    assert_drawn(units["opened"][f"u{first + 1}"][0], SENTENCES, by_token)


def test_a_page_says_which_sentences_it_cannot_open_and_how_much_flow_they_carry():
    flows = drawn_flows([("agf", SENTENCES)])
    units = drawing_data(flows, 100, opened_bytes=40_000)["units"]
    closed = [k for k, tokens in enumerate(units["members"]) if len(tokens) > 1 and f"u{k}" not in units["opened"]]
    assert 0 < len(closed) < 50
    through = layers_of(SENTENCES).sum(0)
    carried = [through[list(tokens)].sum() for tokens in units["members"] if len(tokens) > 1]
    share = sum(through[list(units["members"][k])].sum() for k in closed) / sum(carried)
    assert re.findall(r"[\d.]+%?", units["left_out"])[:2] == [str(len(closed)), f"{share:.1%}"]
    assert len(json.dumps(units["opened"], separators=(",", ":"))) < 41_000
    assert "opened" not in drawing_data(flows, 100)["units"]
    for key in units["opened"]:  # what it is in can be opened, too
        if key.startswith("u"):
            row = int(np.searchsorted(np.cumsum(units["rows"]), int(key[1:]), side="right"))
            assert units["rows"][row] == 1 or f"r{row}" in units["opened"]


def test_any_text_can_be_drawn_by_token_word_or_sentence():
    assert "units" not in data_of(SENTENCES.to_flow_html(unit="token"))
    assert units_of(SMALL.to_flow_html(unit="word"))["kind"] == "word"
    assert units_of(LONG.to_flow_html(unit="sentence"))["kind"] == "sentence"
    with pytest.raises(ValueError, match=r"unit.*page"):
        SMALL.to_flow_html(unit="page")  # type: ignore[arg-type]


def names(page):
    return page.locator(".names g[role=option] > text:first-of-type").all_text_contents()


def bar_scores(page):
    titles = page.locator(".bars rect title").all_text_contents()
    return [float(title.rpartition(": ")[2]) for title in titles]


def test_rows_are_opened_by_a_click_and_by_keys_and_closed_again(browser, tmp_path):  # noqa: F811
    units = units_of(SENTENCES.to_flow_html(tmp_path / "long.html"))
    rows = first_rows(units)
    single = next(index for index, count in enumerate(units["rows"]) if count == 1 and len(rows[index]) > 1)
    several = next(index for index, count in enumerate(units["rows"]) if count > 1)
    with opened(browser, tmp_path / "long.html") as page:
        at_rest = says(page)
        labels = names(page)
        assert len(labels) == len(rows)
        page.locator(f".names g[data-token='{rows[single][0]}'] .opener").click()
        tokens = [SENTENCES.tokens[token] for token in rows[single]]
        assert names(page) == labels[:single] + tokens + labels[single + 1 :]
        parts = [row for row in rows if row != rows[single] and len(row) > 1]
        np.testing.assert_allclose(bar_scores(page), SENTENCES.edit(groups=parts).scores, rtol=2e-3)
        assert page.locator(".opened button").count() == 1
        page.keyboard.press("Backspace")
        assert names(page) == labels
        page.focus(f".names g[data-token='{rows[several][0]}']")
        page.keyboard.press("Enter")
        count = units["rows"][several]
        assert len(names(page)) == len(rows) + count - 1
        page.keyboard.press("Enter")  # the first of its sentences
        first = units["members"][sum(units["rows"][:several])]
        assert len(names(page)) == len(rows) + count - 1 + len(first) - 1
        page.locator(".opened button").last.click()
        assert names(page) == labels
        page.keyboard.press("Escape")
        page.mouse.move(2, 2)
        assert says(page) == at_rest


def test_a_word_of_the_text_shows_the_flow_of_its_sentence(browser, tmp_path):  # noqa: F811
    units = units_of(SENTENCES.to_flow_html(tmp_path / "long.html"))
    rows = first_rows(units)
    row = next(index for index, tokens in enumerate(rows) if 40 in tokens)
    with opened(browser, tmp_path / "long.html") as page:
        page.locator(".text span").nth(39).click()  # the first token has no place in the text
        assert page.locator(".names .chosen").count() == 1
        assert page.locator(".names g[role=option]").nth(row).get_attribute("aria-selected") == "true"
        assert page.locator(".text .chosen").count() == len(rows[row])


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "agf"])
def test_a_text_of_508_tokens_has_few_rows_and_shows_most_of_the_flow(browser, tmp_path, method):  # noqa: F811
    explainer = gaflow.Explainer()
    att = explainer(review(explainer.runner.tokenizer, 508), method)
    assert len(att.tokens) == 508
    document = att.to_flow_html(tmp_path / "long.html")
    assert len(document.encode()) < 900_000
    units = units_of(document)
    assert len(units["rows"]) <= 26
    rows = first_rows(units)
    edited = att.edit(groups=[row for row in rows if len(row) > 1])
    for drawn, flow in zip(units["methods"], (edited.flow, edited.flow_against), strict=False):
        assert flow is not None
        drawn_share = row_edges(drawn, len(rows)).sum() / 1e6 / (flow.edges.sum().item() / flow.value.item())
        assert drawn_share > 0.95
        (share,) = re.findall(r"strongest of [\d,]+ edges with flow carry ([\d.]+)%", drawn["caption"])
        assert float(share) > 70
    with opened(browser, tmp_path / "long.html") as page:
        height = page.evaluate("document.querySelector('.drawing').getBoundingClientRect().height")
        assert height < 700
        page.locator(".opener").nth(2).click()
        assert page.locator(".opened button").count() == 1
