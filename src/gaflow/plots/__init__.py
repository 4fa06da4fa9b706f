"""Figures for papers, notebooks and web pages, drawn with matplotlib (extra `plot`).

    bars(att)            every token's score: the text as a heat strip, and bars     att.plot()
    seen(att)            a picture with its patches shaded, a sound with its frames  att.plot()
    layers(att)          heat map, tokens x node layers                              att.plot_layers()
    flow_diagram(flow)   who passes how much on to whom, layer by layer              att.plot_flow()
    network_diagram(information)    the same of capacities: what Algorithms 1 and 2 build
    compare(attributions)           heat map, tokens x methods
    curves(table)                   masking curves with confidence bands

Each gives a matplotlib `Figure`, saved by its `savefig` as svg, pdf or png, and shown by notebooks. No pyplot: nothing
stays behind, and no backend is chosen.
"""

from __future__ import annotations

from gaflow.errors import MissingExtraError

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise MissingExtraError("figures need matplotlib: pip install 'gaflow[plot]'") from error

from gaflow.plots.bars import bars
from gaflow.plots.curves import curves
from gaflow.plots.figure import Picture
from gaflow.plots.flow.diagram import flow_diagram, network_diagram
from gaflow.plots.heat_map import compare, layers
from gaflow.plots.media import seen

__all__ = ["Picture", "bars", "compare", "curves", "flow_diagram", "layers", "network_diagram", "seen"]
