"""Kinds of attributions that pages show."""

from collections.abc import Callable

from gaflow.attribution.attribution import Attribution
from gaflow.html import flow_page, fragment, page

KINDS: dict[str, Callable[[Attribution], str]] = {
    "tokens": lambda att: att.to_html(),
    "words": lambda att: att.to_html(words=True),
    "sentences": lambda att: att.to_html(sentences=True),
    "notebook": fragment,
    "list": lambda att: page([att, att.at_layer(1)]),
    "compare": lambda att: page({"a": att, "b": att.at_layer(-1)}, words=True),
    "flow": flow_page,
    "flow, switched": lambda att: flow_page({"a": att, "b": att.at_layer(1)}, edges=20),
}
