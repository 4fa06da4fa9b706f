"""Figures for papers, notebooks and web pages, drawn with matplotlib (extra `plot`).

    bars(att)                     every token's score: the text as a heat strip, and bars    att.plot()
    media(att)                    a picture with shaded patches, a sound with shaded frames  att.plot()
    layers(att)                   heat map, tokens x node layers                             att.plot_layers()
    matches(att)                  heat map, words x words, of the similarity of two texts    att.plot_matches()
    flow_diagram(flow)            how much each token passes on to each other, by layer      att.plot_flow()
    network_diagram(information)  the same for capacities: the networks of Algorithms 1 and 2
    compare(attributions)         heat map, tokens x methods
    curves(table)                 masking curves with confidence bands

Each returns a matplotlib `Figure`: save it with `savefig` as svg, pdf or png; notebooks display it. They do not use
pyplot, so no backend is chosen and no figure stays open.
"""

from gaflow.extras import need

need("matplotlib", "plot", "figures need matplotlib")

from gaflow.plots.bars import bars  # noqa: E402
from gaflow.plots.curves import curves  # noqa: E402
from gaflow.plots.figure import Picture  # noqa: E402
from gaflow.plots.flow.diagram import flow_diagram, network_diagram  # noqa: E402
from gaflow.plots.heat_map import compare, layers, matches  # noqa: E402
from gaflow.plots.media import media  # noqa: E402

__all__ = ["Picture", "bars", "compare", "curves", "flow_diagram", "layers", "matches", "media", "network_diagram"]
