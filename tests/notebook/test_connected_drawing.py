"""The notebook widget: its Python side alone, and its module in a browser, connected with the real Python side."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import traitlets

import gaflow
from gaflow.notebook.connected_drawing import FlowWidget
from tests.support.browser import browser  # noqa: F401
from tests.support.pictures import HOSTILE, in_sentences, odd_text, text_of

ATT = text_of(8)
LONG = in_sentences(text_of(100, layers=3, seed=2), length=10)


def sent_by(widget):
    """What Python sends to the browser from now on."""
    messages = []
    widget.send = messages.append
    return messages


def receive(widget, **message):
    """A message from the browser."""
    widget._handle_custom_msg(message, [])


def test_a_widget_draws_the_attribution():
    widget = ATT.widget()
    assert isinstance(widget, FlowWidget)
    assert widget.att is ATT
    assert widget.data["tokens"] == list(ATT.tokens)
    np.testing.assert_allclose(widget.data["methods"][0]["scores"], ATT.scores, rtol=1e-5)
    assert "certified" in widget.facts
    json.dumps(widget.get_state(["frame", "data", "facts", "problem", "selected", "edits"]))


def test_edits_are_solved_in_python_and_drawn():
    widget = ATT.widget()
    widget.edits = {"cut_nodes": [[1, 3]], "cut_edges": [], "widen": [[0, 1, 2, 2.5]]}
    expected = ATT.edit(cut_nodes=[(1, 3)], widen={(0, 1, 2): 2.5})
    np.testing.assert_allclose(widget.att.scores, expected.scores)
    np.testing.assert_allclose(widget.data["methods"][0]["scores"], expected.scores, rtol=1e-5)
    assert widget.edits == {"cut_nodes": [[1, 3]], "widen": [[0, 1, 2, 2.5]]}
    widget.edits = {}
    assert widget.att is ATT


def test_an_edit_that_cannot_be_changes_nothing():
    widget = ATT.widget()
    widget.edits = {"cut_nodes": [[1, 3]]}
    for wrong in ({"cut_nodes": [[99, 0]]}, {"skip_layers": [0, 1, 2]}):
        with pytest.raises(gaflow.ArgumentError):
            widget.edits = wrong
    assert widget.edits == {"cut_nodes": [[1, 3]]}
    np.testing.assert_allclose(widget.att.scores, ATT.edit(cut_nodes=[(1, 3)]).scores)


def test_the_browser_asks_for_edits_and_is_told_what_is_wrong():
    widget = ATT.widget()
    widget.edits = {"epsilon": 0.1}
    sent = sent_by(widget)
    receive(widget, kind="edit", number=1, edits={"cut_nodes": [[1, 3]]})
    assert sent == [{"number": 1}]
    np.testing.assert_allclose(widget.att.scores, ATT.edit(cut_nodes=[(1, 3)], epsilon=0.1).scores)
    receive(widget, kind="edit", number=2, edits={"cut_nodes": [[99, 3]]})
    assert sent[1]["number"] == 2
    assert "99" in sent[1]["problem"]
    assert widget.problem == sent[1]["problem"]
    receive(widget, kind="edit", number=3, edits={})
    assert widget.problem == ""
    np.testing.assert_allclose(widget.att.scores, ATT.edit(epsilon=0.1).scores)


def test_opened_rows_of_a_long_text_are_solved_in_python():
    widget = LONG.widget()
    sent = sent_by(widget)
    groups = [unit for unit in widget.data["units"]["members"] if len(unit) > 1][1:]
    receive(widget, kind="open", number=1, groups=groups)
    expected = LONG.edit(groups=groups)
    np.testing.assert_allclose(sent[0]["methods"][0]["scores"], expected.scores, rtol=1e-5)
    receive(widget, kind="open", number=2, groups=[[0, 0]])
    assert "twice" in sent[1]["problem"]


def test_an_attribution_without_a_flow_has_no_widget():
    with pytest.raises(gaflow.ArgumentError):
        gaflow.explain("a good film", method="attcat").widget()
    with pytest.raises(traitlets.TraitError):
        ATT.widget().set_trait("selected", "dog")


STUB = """
window.model = {
  values: {}, listeners: {}, saved: [], undelivered: 0,
  get(name) { return this.values[name]; },
  set(name, value) { this.values[name] = value; this.saved.push(name); },
  save_changes() { for (const name of this.saved.splice(0)) this.deliver(save(name, this.values[name])); },
  on(name, action) { (this.listeners[name] ||= []).push(action); },
  off(name, action) { this.listeners[name] = this.listeners[name].filter(other => other !== action); },
  send(message) { this.deliver(send(message)); },
  async deliver(promise) { this.undelivered += 1; await promise; this.undelivered -= 1; },
  tell(event, ...details) { for (const action of this.listeners[event] || []) action(...details); },
  change(name, value) { this.values[name] = value; this.tell("change:" + name); },
  receive(message) { this.tell("msg:custom", message); },
};
"""
TRAITS = ("frame", "data", "facts", "problem", "selected", "edits")


@contextmanager
def widget_page(browser, widget):  # noqa: F811
    """The widget's module in a page, with a model that is connected with the widget."""
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    waiting = []  # of the browser, for Python; playwright does not let one call another
    page.expose_function("send", lambda message: waiting.append(("send", message)))
    page.expose_function("save", lambda name, value: waiting.append((name, value)))
    page.set_content("<!doctype html><style></style><div id=output></div>")
    page.add_style_tag(content=widget._css)
    page.evaluate(STUB)
    page.evaluate("values => { model.values = values; }", {name: getattr(widget, name) for name in TRAITS})
    widget.send = lambda message: page.evaluate("message => model.receive(message)", message)

    def push(change):
        if change.new != page.evaluate("name => model.values[name]", change.name):
            page.evaluate("([name, value]) => model.change(name, value)", [change.name, change.new])

    widget.observe(push, list(TRAITS))

    def answer():
        page.wait_for_function("model.undelivered === 0")
        while waiting:
            name, value = waiting.pop(0)
            if name == "send":
                widget._handle_custom_msg(value, [])
            else:
                setattr(widget, name, value)
            page.wait_for_function("model.undelivered === 0")

    page.evaluate(
        """source => {
            const url = URL.createObjectURL(new Blob([source], {type: "text/javascript"}));
            return import(url).then(module => {
                window.leave = module.default.render({model, el: document.getElementById("output")});
            });
        }""",
        str(widget._esm),
    )
    yield page, answer
    assert wrong == []
    page.close()


def scores_of(page):
    titles = page.locator(".bars rect title").all_text_contents()
    return [float(title.rpartition(": ")[2]) for title in titles]


def click_node(page, layer, token):
    page.locator(f".spot[data-layer='{layer}'][data-token='{token}']").dispatch_event("click")


def test_a_node_is_cut_in_the_browser_and_put_back(browser):  # noqa: F811
    widget = ATT.widget()
    with widget_page(browser, widget) as (page, answer):
        np.testing.assert_allclose(scores_of(page), ATT.scores, rtol=2e-3)
        assert page.is_disabled(".cut")
        click_node(page, 1, 3)
        answer()
        assert widget.selected == {"layer": 1, "tokens": [3]}
        page.click(".buttons .cut")
        answer()
        expected = ATT.edit(cut_nodes=[(1, 3)])
        np.testing.assert_allclose(widget.att.scores, expected.scores)
        np.testing.assert_allclose(scores_of(page), expected.scores, rtol=2e-3)
        assert widget.edits == {"cut_nodes": [[1, 3]]}
        assert page.inner_text(".verdict").startswith("changed")
        page.click(".buttons .undo")
        answer()
        assert widget.att is ATT
        np.testing.assert_allclose(scores_of(page), ATT.scores, rtol=2e-3)


def test_edges_and_layers_are_cut_and_python_sees_them(browser):  # noqa: F811
    widget = ATT.widget()
    with widget_page(browser, widget) as (page, answer):
        page.locator("[data-edge='1,0,2']").dispatch_event("click")
        page.click(".buttons .cut")
        answer()
        click_node(page, 0, 4)
        page.click(".buttons .skip")
        answer()
        assert widget.edits == {"cut_edges": [[1, 0, 2]], "skip_layers": [0]}
        expected = ATT.edit(cut_edges=[(1, 0, 2)], skip_layers=[0])
        np.testing.assert_allclose(scores_of(page), expected.scores, rtol=2e-3, atol=1e-6)
        page.click(".buttons .reset")
        answer()
        assert widget.edits == {}


def test_what_python_sets_is_drawn(browser):  # noqa: F811
    widget = ATT.widget()
    with widget_page(browser, widget) as (page, answer):
        widget.selected = {"layer": 2, "tokens": [5]}
        assert page.locator(".names .chosen").get_attribute("data-token") == "5"
        widget.edits = {"cut_nodes": [[2, 5]]}
        np.testing.assert_allclose(scores_of(page), ATT.edit(cut_nodes=[(2, 5)]).scores, rtol=2e-3)
        with pytest.raises(gaflow.ArgumentError):
            widget.edits = {"cut_nodes": [[2, 99]]}
        click_node(page, 1, 1)
        answer()
        assert widget.selected == {"layer": 1, "tokens": [1]}
        page.evaluate("leave()")
        widget.set_trait("selected", None)
        click_node(page, 1, 2)
        answer()
        assert widget.selected is None


def test_a_row_of_a_long_text_is_opened_by_python(browser):  # noqa: F811
    widget = LONG.widget()
    with widget_page(browser, widget) as (page, answer):
        rows = page.locator(".names g[role=option]").count()
        page.locator(".opener").first.click()
        answer()
        page.wait_for_function("count => document.querySelectorAll('.names g[role=option]').length > count", arg=rows)
        units = [unit for unit in widget.data["units"]["members"] if len(unit) > 1]
        assert page.locator(".names g[role=option]").count() == rows + len(units[0]) - 1
        np.testing.assert_allclose(scores_of(page), LONG.edit(groups=units[1:]).scores, rtol=2e-3)


def test_hostile_tokens_run_nothing(browser):  # noqa: F811
    widget = odd_text().widget()
    with widget_page(browser, widget) as (page, answer):
        assert page.locator("#output script, #output img").count() == 0
        for token in range(len(HOSTILE)):
            click_node(page, 0, token)
        answer()
        assert widget.selected == {"layer": 0, "tokens": [len(HOSTILE) - 1]}
