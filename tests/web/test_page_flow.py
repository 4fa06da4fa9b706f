"""The page Flow: every tool that changes the network, against the same change in Python. None runs the model."""

import re

import numpy as np
import pytest

import gaflow
from gaflow.evaluation.edge_faithfulness import probabilities_without
from tests.support.browser import browser  # noqa: F401
from tests.support.explorer_page import (
    TEXT,
    assert_scores,
    edits_of,
    link,
    linked,
    move,
    opened,
    read_number,
    requests_of,
    scores_of,
    settled,
    solved,
)
from tests.support.servers import running

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LAYER = 4
TOKEN = 11  # "smart"
OF_THE_MODEL = {"explain", "compare", "predictions", "mask", "remove", "heads"}


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
def tab(browser, address):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT)) as page:
        yield page


@pytest.fixture
def page(tab):
    """The explanation without changes; the model must not run meanwhile."""
    if tab.is_enabled(".reset"):
        solved_or_original(tab)
    tab.click("#tool-change")
    paths = requests_of(tab)
    yield tab
    assert not OF_THE_MODEL & set(paths)


def solved_or_original(page):
    page.click(".reset")
    page.wait_for_selector(".reset:disabled")
    settled(page)


def choose_node(page, layer=LAYER, token=TOKEN):
    page.click(f".nodes .spot[data-layer='{layer}'][data-token='{token}']", force=True)


def choose_edge(page, edge):
    page.locator(f".edges [data-edge='{','.join(map(str, edge))}']").dispatch_event("click")


def test_pointing_at_a_node_follows_its_flow(page, att):
    page.hover(f".nodes .spot[data-layer='{LAYER}'][data-token='{TOKEN}']", force=True)
    share = att.flow.through()[0, LAYER, TOKEN] / att.flow.value[0]
    assert f"{share:.1%} of the flow" in page.inner_text(".says")
    edge = page.locator(f".edges [data-edge='{LAYER},0,{TOKEN}'] title").text_content()
    assert f"{att.flow.edges[0, LAYER, 0, TOKEN] / att.flow.value[0]:.1%} of the flow" in edge


def test_a_node_is_cut_taken_back_and_cut_again(page, att):
    choose_node(page)
    solved(page, lambda: page.click(".cut-node"))
    cut = att.edit(cut_nodes=[(LAYER, TOKEN)])
    assert_scores(page, cut)
    assert edits_of(page) == [("cut_nodes", [LAYER, TOKEN])]
    assert "−80" in page.inner_text(".verdict")
    assert cut.flow.value / att.flow.value - 1 == pytest.approx(-0.80, abs=0.01)
    line = page.locator(".ranking .line", has_text="smart")
    before, after = re.findall(r"[−\d.]+", line.locator(".values").inner_text())
    assert read_number(before) == pytest.approx(att.scores[TOKEN], abs=6e-4)
    assert read_number(after) == pytest.approx(cut.scores[TOKEN], abs=6e-4)
    assert "1 → 3" in line.inner_text()
    page.click(".undo")
    page.wait_for_selector(".edits", state="detached")
    assert_scores(page, att)
    solved(page, lambda: page.click(".redo"))
    assert_scores(page, cut)


def test_an_edge_is_widened_and_cut(page, att):
    edge = (LAYER, 0, TOKEN)
    choose_edge(page, edge)
    assert page.locator(".edges .picked").count() == 1
    page.select_option(".factor", "5")
    solved(page, lambda: page.click(".widen"))
    assert_scores(page, att.edit(widen={edge: 5}))
    page.select_option(".factor", "2")
    solved(page, lambda: page.click(".widen"))
    assert edits_of(page) == [("widen", [*edge, 10])]
    assert_scores(page, att.edit(widen={edge: 10}))
    solved(page, lambda: page.click(".cut-edge"))
    assert_scores(page, att.edit(cut_edges=[edge]))


def test_edges_of_a_node_can_be_chosen_without_pointing(page, att):
    choose_node(page)
    page.locator(".edge-list button").first.click()
    assert page.inner_text(".selection") == "Edge smart → [CLS], layer 4"


def test_a_layer_is_skipped(page, att):
    choose_node(page)
    solved(page, lambda: page.click(".skip-layer"))
    assert_scores(page, att.edit(skip_layers=[LAYER]))


def test_the_barrier_follows_its_slider(page, att):
    answer = solved(page, lambda: move(page, ".epsilon", -1))
    assert answer["attribution"]["certificate"]["epsilon"] == pytest.approx(0.1)
    assert_scores(page, att.edit(epsilon=0.1))
    assert "Stability" in page.inner_text(".verdict")
    solved(page, lambda: move(page, ".epsilon", 2))
    assert_scores(page, att.edit(epsilon=100.0))
    assert edits_of(page) == [("epsilon", 100)]


def test_the_barrier_is_dragged_and_the_drag_undone_as_one(page, att):
    box = page.locator(".epsilon").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 2, middle)
    page.mouse.down()
    for part in (0.3, 0.6, 1.0):
        page.mouse.move(box["x"] + part * box["width"] - 2, middle, steps=3)
        settled(page)
    page.mouse.up()
    settled(page)
    assert_scores(page, att.edit(epsilon=1000.0))
    page.click(".undo")
    page.wait_for_selector(".reset:disabled")
    assert_scores(page, att)


def test_the_layer_slider_moves_the_focus(page):
    move(page, ".layer-slider", 2)
    assert page.inner_text("output.layer") == "layer 2"
    assert linked(page)["layer"] == "2"
    page.click(".controls .all")
    assert page.input_value(".layer-slider") == "-1"


def test_the_start_and_the_end_of_the_flow_are_painted(page, att):
    page.click("#tool-paint")
    targets = page.locator(".chips").nth(1)
    first = targets.locator("[data-token='10']").bounding_box()
    last = targets.locator("[data-token='11']").bounding_box()
    page.mouse.move(first["x"] + 5, first["y"] + 5)
    page.mouse.down()
    page.mouse.move(last["x"] + 5, last["y"] + 5)
    solved(page, page.mouse.up)
    assert edits_of(page) == [("targets", [10, 11])]
    assert_scores(page, att.edit(targets=[10, 11]))
    solved(page, lambda: page.locator(".names [data-token='0'][data-layer='5']").dispatch_event("click"))
    assert edits_of(page) == [("targets", [10, 11]), ("sources", [0])]
    assert_scores(page, att.edit(targets=[10, 11], sources=[0]))


def test_tokens_are_joined_by_dragging_and_named(page, att):
    page.click("#tool-groups")
    boxes = [page.locator(f".chips [data-token='{token}']").bounding_box() for token in (4, 6)]
    page.mouse.move(boxes[0]["x"] + 4, boxes[0]["y"] + 4)
    page.mouse.down()
    page.mouse.move(boxes[1]["x"] + 4, boxes[1]["y"] + 4)
    page.mouse.up()
    page.fill(".group-name", "negation <b>")
    answer = solved(page, lambda: page.click(".join"))
    joined = att.edit(groups=[[4, 5, 6]])
    assert answer["attribution"]["tokens"][4] == "negation <b>"
    assert_scores(page, joined)
    assert "negation <b>" in page.locator(".names g").nth(4).text_content()
    assert edits_of(page) == [("groups", [{"tokens": [4, 5, 6], "name": "negation <b>"}])]
    solved(page, lambda: page.select_option(".units", "word"))
    assert_scores(page, att.edit(groups="word"))


def test_routes_add_up_are_lit_and_left_out(page, att):
    page.click("#tool-routes")
    page.wait_for_selector(".routes li")
    routes = gaflow.routes(att.flow, k=8)
    assert page.locator(".routes b").all_text_contents() == [f"{route.share:.1%}" for route in routes]
    assert f"{routes.rest_share:.1%}" in page.inner_text(".rest")
    page.locator(".routes .light").nth(1).click()
    assert page.locator(".edges .route").count() == len(att.flow.edges[0])
    tokens = routes[1].tokens
    amounts = [att.flow.edges[0, k, tokens[k + 1], tokens[k]].item() for k in range(len(tokens) - 1)]
    narrowest = int(np.argmin(amounts))
    edge = (narrowest, tokens[narrowest + 1], tokens[narrowest])
    solved(page, lambda: page.locator(".routes .without").nth(1).click())
    assert edits_of(page) == [("cut_edges", list(edge))]
    assert_scores(page, att.edit(cut_edges=[edge]))


def test_the_bottleneck_moves_when_one_of_its_edges_is_widened(page, att):
    page.click("#tool-routes")
    page.click(".show-cut")
    page.wait_for_selector(".cut-edges button")
    cut = gaflow.min_cut(att.flow)
    wide = [edge for edge in cut.edges if edge.capacity >= 0.01 * cut.value]
    assert page.locator(".edges .cut").count() == len(wide)
    inner = [edge for edge in wide if 0 <= edge.layer < len(att.flow.edges[0])]
    solved(page, lambda: page.locator(".cut-edges button").first.click())
    widened = att.edit(widen={(inner[0].layer, inner[0].i, inner[0].j): 2})
    assert_scores(page, widened)
    assert gaflow.min_cut(widened.flow).value > cut.value


def test_intervals_are_those_over_all_maximum_flows(page, att):
    page.check(".show-ranges")
    page.wait_for_selector(".range:visible")
    low, high = (ends.numpy() for ends in gaflow.score_ranges(att.flow))
    low_against, high_against = (ends.numpy() for ends in gaflow.score_ranges(att.flow_against))
    title = page.locator(".line", has_text="smart").locator(".range").get_attribute("title")
    ends = [read_number(number) for number in re.findall(r"[−\d.]+(?:e-\d+)?", title)]
    expected = [low[TOKEN] - high_against[TOKEN], high[TOKEN] - low_against[TOKEN]]
    assert ends == pytest.approx([float(end) for end in expected], rel=1e-3)
    least = np.maximum(0, np.maximum(low - high_against, -(high - low_against)))
    most = np.maximum(np.abs(low - high_against), np.abs(high - low_against))
    last = 1 + sum(most[i] > least[TOKEN] for i in range(len(att.tokens)) if i != TOKEN)
    assert page.locator(".line", has_text="smart").locator(".open-order").inner_text() == f"1 to {last}"
    page.uncheck(".show-ranges")
    assert page.locator(".range:visible").count() == 0


def test_the_model_answers_beside_the_network(browser, address, explainer, att):  # noqa: F811
    edits = [{"kind": "cut_nodes", "value": [LAYER, TOKEN]}, {"kind": "skip_layers", "value": 1}]
    with opened(browser, address, link("flow", text=TEXT, edits=edits)) as page:
        assert_scores(page, att.edit(cut_nodes=[(LAYER, TOKEN)], skip_layers=[1]))
        page.click(".ask-model")
        page.wait_for_selector(".two-answers .answer")

        def removed(layers, heads, tokens):
            mask = np.zeros((layers, tokens, tokens), dtype=bool)
            mask[1] = True
            mask[LAYER, :, TOKEN] = True
            mask[LAYER - 1, TOKEN] = True
            return mask

        before, after = probabilities_without(explainer, TEXT, removed)[:, 1]
        network, model = page.locator(".answer .big").all_inner_texts()
        assert model == f"{before:.1%} → {after:.1%}"
        assert read_number(network.partition(" → ")[0]) == pytest.approx(att.scores.sum(), rel=1e-3)
        choose_node(page)
        page.click(".show-heads")
        page.wait_for_selector(".head-bars li")
        assert page.locator(".head-bars li").count() == explainer.model.config.num_attention_heads
        page.locator(".head").nth(1).click()
        page.wait_for_selector(".without-head b")

        def without_head(layers, heads, tokens):
            mask = np.zeros((layers, heads, tokens, tokens), dtype=bool)
            mask[LAYER - 1, 1] = True
            return mask

        after = probabilities_without(explainer, TEXT, without_head)[1, 1]
        assert page.inner_text(".without-head b") == f"{before:.1%} → {after:.1%}"


LONG = " ".join(["the film begins slowly, and nothing happens for a while.", "then the sisters meet again."] * 5)


def rows_of(page):
    """The tokens that the rows of the drawing begin with."""
    return page.locator(".names > g").evaluate_all("rows => rows.map(row => Number(row.dataset.token))")


def test_a_long_text_begins_with_sentences_and_rows_stay_open_after_an_edit(browser, address, explainer):  # noqa: F811
    att = explainer(LONG)
    sentences = [list(unit.tokens) for unit in att.sentences()]
    with opened(browser, address, link("flow", text=LONG)) as page:
        assert rows_of(page) == [0, *(tokens[0] for tokens in sentences), len(att.tokens) - 1]
        page.locator(f".names g[data-token='{sentences[1][0]}'] .opener").click()
        page.wait_for_function("() => document.querySelectorAll('.opened button').length === 1")
        settled(page)
        rows = rows_of(page)
        assert set(sentences[1]) <= set(rows)
        token = sentences[1][2]
        choose_node(page, layer=2, token=token)
        solved(page, lambda: page.click(".cut-node"))
        assert edits_of(page) == [("cut_nodes", [2, token])]
        assert rows_of(page) == rows
        others = [tokens for tokens in sentences if tokens != sentences[1]]
        expected = att.edit(cut_nodes=[(2, token)]).edit(groups=others)
        assert scores_of(page) == pytest.approx(expected.scores.tolist(), rel=2e-3, abs=1e-6)
        page.click(".undo")
        page.wait_for_selector(".reset:disabled")
        settled(page)
        assert rows_of(page) == rows
        assert scores_of(page) == pytest.approx(att.edit(groups=others).scores.tolist(), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("text", [TEXT, LONG])
def test_the_drawing_fits_its_card(browser, address, text):  # noqa: F811
    with opened(browser, address, link("flow", text=text)) as page:
        inside, visible = page.locator("#flow .scroll").evaluate("box => [box.scrollWidth, box.clientWidth]")
        assert inside == visible


def test_a_change_that_cannot_be_made_is_said_and_taken_back(browser, address, att):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT, tool="groups"), refused=True) as page:
        first = page.locator(".chips [data-token='0']")
        for token in (0, 1):
            page.locator(f".chips [data-token='{token}']").focus()
            page.keyboard.press("Space")
        assert first.get_attribute("aria-pressed") == "true"
        page.click(".join")
        page.wait_for_selector(".problem:visible")
        assert page.locator(".edits li").count() == 0
        assert_scores(page, att)


def test_a_link_restores_edits_tool_layer_and_side(browser, address, att):  # noqa: F811
    edits = [{"kind": "cut_edges", "value": [LAYER, 0, TOKEN]}, {"kind": "epsilon", "value": 0.01}]
    values = {"text": TEXT, "edits": edits, "tool": "routes", "layer": "3", "side": "1", "ranges": "1"}
    with opened(browser, address, link("flow", **values)) as page:
        page.wait_for_selector(".range:visible")
        assert_scores(page, att.edit(cut_edges=[(LAYER, 0, TOKEN)], epsilon=0.01))
        assert page.inner_text("output.layer") == "layer 3"
        assert page.locator(".choose").evaluate("select => select.selectedOptions[0].textContent").endswith(", against")
        assert page.get_attribute("#tool-routes", "aria-selected") == "true"
        after = linked(page)
        assert {name: after[name] for name in ("tool", "layer", "side", "ranges")} == {
            name: values[name] for name in ("tool", "layer", "side", "ranges")
        }
        assert edits_of(page) == [(edit["kind"], edit["value"]) for edit in edits]


def test_a_result_that_the_server_dropped_is_explained_again(browser, address, att):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT), refused=True) as page:
        with page.expect_request(lambda request: request.url.endswith("/routes")) as request:
            page.click("#tool-routes")
        key = request.value.post_data_json["id"]
        page.evaluate("key => fetch(`/api/v1/results/${key}`, {method: 'DELETE'}).then(() => {})", key)
        choose_node(page)
        page.click(".cut-node")
        page.wait_for_selector(".edits li")
        settled(page)
        assert_scores(page, att.edit(cut_nodes=[(LAYER, TOKEN)]))


def test_a_note_is_kept_in_the_link(browser, address):  # noqa: F811
    note = "look at <b>smart</b>"
    with opened(browser, address, link("flow", text=TEXT, tool="keep")) as page:
        page.fill(".note-text", note)
        fragment = page.evaluate("location.hash")
        page.click("#flow .pin")
        page.click(".shelf-button")
        assert page.inner_text("#shelf a") == note
    with opened(browser, address, fragment) as page:
        page.wait_for_selector(".noted")
        assert page.inner_text(".noted") == note


def test_a_damaged_link_shows_the_explanation(browser, address, att):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT, edits="[{", layer="99", side="7", tool="none")) as page:
        assert_scores(page, att)


def test_a_method_without_flow_says_what_to_do(browser, address):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT, method="attcat")) as page:
        page.click("#flow .primary")
        page.wait_for_selector("#flow .drawing .edges path", state="attached")
        assert linked(page)["text"] == TEXT


def test_keys_alone_change_the_network(browser, address, att):  # noqa: F811
    with opened(browser, address, link("flow", text=TEXT)) as page:
        page.focus(".names g[tabindex='0']")
        for _ in range(TOKEN):
            page.keyboard.press("ArrowDown")
        for _ in range(LAYER + 1):
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.focus(".cut-node")
        solved(page, lambda: page.keyboard.press("Enter"))
        assert_scores(page, att.edit(cut_nodes=[(LAYER, TOKEN)]))
        page.focus("#tool-change")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.id") == "tool-routes"
        page.focus(".undo")
        page.keyboard.press("Space")
        page.wait_for_selector(".undo:disabled")
        assert_scores(page, att)
