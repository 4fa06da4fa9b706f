"""Explanations in a notebook: the drawing of a flow as a widget, whose changes Python solves (extra `notebook`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gaflow.arguments import checked
from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import Unit
from gaflow.extras import need

if TYPE_CHECKING:
    from gaflow.notebook.connected_drawing import FlowWidget

__all__ = ["flow_widget"]


@checked
def flow_widget(att: Attribution, *, edges: int = 600, unit: Unit | None = None) -> FlowWidget:
    """A widget that draws the flow of `att`, and solves its network again when nodes and edges are cut in it.

    The arguments are those of `gaflow.html.flow_page`.

        widget = flow_widget(att)
        widget  # shows it; then cut a node in the drawing
        widget.att.scores  # of the changed network
    """
    need("anywidget", "notebook", "widgets need anywidget")
    from gaflow.notebook.connected_drawing import FlowWidget

    return FlowWidget(att, edges=edges, unit=unit)
