"""The widget: the drawing of static/flow.js in a notebook, connected with an attribution in Python.

The conventions this file owns: **Python solves, the browser draws**. The browser sends what was asked for, and Python
answers with new data. `selected` and `edits` hold the same on both sides. Without a kernel, as in a stored notebook,
the drawing shows the last answer, and nothing can be changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.export import as_json
from gaflow.attribution.words import Unit
from gaflow.errors import GaflowError
from gaflow.flow.editing import grouped
from gaflow.html.document import render, scope, static, style
from gaflow.html.flow_drawing import DrawnFlow, drawing_data, legends, row_data
from gaflow.html.flow_page import checked_flows
from gaflow.view.shades import LEVELS
from gaflow.view.summary import summarize

_SHEETS = ("flow.css", "flow_widget.css")
_KINDS = ("cut_edges", "cut_nodes", "skip_layers")  # what the browser can ask for; `edits` takes all of `att.edit`


class FlowWidget(anywidget.AnyWidget):
    """A drawing of a flow in a notebook.

    `att` is the attribution that is drawn: the original one, or that of the changed network. `selected` is what is
    chosen, `{"layer": 2, "tokens": [3]}` or None. `edits` are the changes, as arguments of `att.edit`; edges to widen
    are lists (layer, i, j, factor). Both can be set, and `observe` tells when they change.

        widget = att.widget()
        widget.edits = {"cut_nodes": [(4, 11)]}
        widget.att.scores - widget.original.scores
        widget.observe(lambda change: print(change.new), "selected")
    """

    _esm = static("flow.js") + static("flow_widget.js")
    _css = style(*_SHEETS)

    frame = traitlets.Unicode().tag(sync=True)  # HTML that static/flow.js draws into
    data = traitlets.Dict().tag(sync=True)  # what it draws
    facts = traitlets.Unicode().tag(sync=True)  # about the flow that is drawn
    problem = traitlets.Unicode().tag(sync=True)  # why the last change was refused
    selected = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    edits = traitlets.Dict().tag(sync=True)

    def __init__(self, att: Attribution, *, edges: int = 600, unit: Unit | None = None):
        self.original = att
        self.att = att
        self._edges = edges
        self._unit: Unit | None = unit
        checked_flows(att, edges, unit)
        data = self._draw(att)
        super().__init__(frame=_frame(att), data=data, facts=_facts(att))
        self.on_msg(self._receive)

    @traitlets.validate("edits")
    def _solve(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        """Solve the changed network; what cannot be changed is an error, and nothing changes."""
        edits = {name: value for name, value in proposal["value"].items() if value}
        arguments = dict(edits)
        if "widen" in edits:
            arguments["widen"] = {tuple(edge): factor for *edge, factor in edits["widen"]}
        att = self.original.edit(**arguments) if edits else self.original
        self.data = self._draw(att)
        self.facts = _facts(att, self.original if edits else None)
        self.problem = ""
        self.att = att
        return as_json(edits)

    def _draw(self, att: Attribution) -> dict[str, Any]:
        flows = checked_flows(att, self._edges, self._unit)
        names = [drawn.name for drawn in flows]
        return {"names": names, **as_json(drawing_data(flows, self._edges, unit=self._unit))}

    def _receive(self, _: object, message: Mapping[str, Any], buffers: object) -> None:
        """Answer what the browser asks for; its answer carries the number of the request."""
        number = message.get("number")
        try:
            if message.get("kind") == "edit":
                edits = {name: message.get("edits", {}).get(name, []) for name in _KINDS}
                self.edits = {**self.edits, **edits}
                answer: dict[str, Any] = {}
            else:
                answer = {"methods": self._between(message.get("groups", []))}
        except GaflowError as error:
            self.problem = str(error)
            answer = {"problem": str(error)}
        self.send({"number": number, **answer})

    def _between(self, groups: list[list[int]]) -> Any:
        """The flows between groups of tokens: how opened rows of a long text look."""
        rows = grouped(len(self.att.tokens), groups)
        return as_json(row_data(checked_flows(self.att, self._edges, self._unit), rows, self._edges))


def _frame(att: Attribution) -> str:
    summary = summarize(att)
    positive, signed = legends(summary)
    flows: list[DrawnFlow] = checked_flows(att, 1, None)
    body = render(
        "flow_widget.html",
        summaries=[summarize(drawn.att, drawn.name) for drawn in flows],
        legend=signed if summary.signed else positive,
        levels=LEVELS,
        scope=scope(*_SHEETS),
    )
    return str(body)


def _facts(att: Attribution, before: Attribution | None = None) -> str:
    """The verdict of the certificate, and what it was before the changes."""
    verdict = summarize(att).verdict
    if verdict is None:
        return ""
    facts = f"{verdict.name}: {verdict.text}"
    if before is not None and before.flow is not None and att.flow is not None:
        share = (att.flow.value / before.flow.value).item()
        facts = f"changed: {share:.1%} of the flow is left. {facts}"
    return facts
