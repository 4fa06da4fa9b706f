"""Draws the figures of the paper and of the documentation: `python docs/figures.py [FOLDER]`.

Figures 1 to 4 and 10 show networks small enough to check by hand; 5, 6, 7 and 9 the showcase sentence, explained with
the embedded model. (Figure 8 has masking curves, which are in benchmarks/results.) The same versions of the libraries
give the same files, byte for byte.
"""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import gaflow
from gaflow import plots
from gaflow.benchmark import PAPER_METHODS
from gaflow.flow.information import INFORMATION
from gaflow.plots.figure import PAD

HERE = Path(__file__).parent
TEXT = "although this dog is not cute, it is very smart."
ALGORITHMS = {"Algorithm 1": "backward", "Algorithm 2": "forward"}


def synthetic(layers: int, tokens: int, seed: int = 0) -> Tensor:
    """An information tensor of tenths, which the algorithms' integers hold exactly."""
    tenths = torch.randint(1, 10, (layers, tokens, tokens), generator=torch.Generator().manual_seed(seed))
    return tenths.double() / 10


def information_of(explainer: gaflow.Explainer, name: str) -> Tensor:
    """The information tensor (l, t, t) of the showcase sentence: a method may be any function of the same arguments."""
    tensors: list[Tensor] = []

    def keep(attention: Tensor, gradient: Tensor) -> Tensor:
        tensors.append(INFORMATION[name](attention, gradient))
        return tensors[-1]

    explainer(TEXT, keep)
    return tensors[0][0]


def panels(rows: int, columns: int, width: float, height: float, description: str) -> tuple[Figure, list[Axes]]:
    """A figure with room for several diagrams of `width` x `height` points."""
    pad = 8.0
    picture = plots.Picture.padded(columns * width - 2 * PAD, description, rows * height - 2 * PAD)
    inner = ((width - 2 * pad) / (columns * width), (height - 2 * pad) / (rows * height))
    corners = [
        ((c * width + pad) / (columns * width), 1 - (r * height + pad) / (rows * height))
        for r in range(rows)
        for c in range(columns)
    ]
    return picture, [picture.add_axes((x, y - inner[1], *inner)) for x, y in corners]


def figure_1() -> Figure:
    """What Algorithms 1 and 2 build of an information tensor of 3 layers and 3 tokens."""
    figure, places = panels(1, 2, 520, 235, "Networks of Algorithms 1 and 2")
    for axes, (name, direction) in zip(places, ALGORITHMS.items(), strict=True):
        plots.network_diagram(synthetic(3, 3), direction=direction, title=name, axes=axes)
    return figure


def figure_2() -> Figure:
    """From many sources and targets, over one of each, to a circulation of minimum cost."""
    figure, places = panels(3, 1, 560, 225, "From a network to a circulation")
    stages = {
        "Many sources and targets": {"terminals": False},
        "One super-source, one super-target": {},
        "A circulation, with a return edge": {"returning": True},
    }
    for axes, (title, drawing) in zip(places, stages.items(), strict=True):
        plots.network_diagram(synthetic(3, 3), title=title, axes=axes, **drawing)
    return figure


def matrices(axes: Axes, tensor: Tensor, title: str) -> None:
    """The layers (l, t, t) of a tensor as heat maps, one beside the other."""
    layers, tokens, _ = tensor.shape
    strip = np.full((tokens, layers * (tokens + 1) - 1), np.nan)
    for layer, matrix in enumerate(tensor):
        start = layer * (tokens + 1)
        strip[:, start : start + tokens] = matrix
    limit = float(tensor.abs().max())
    axes.imshow(strip, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set_axis_off()
    axes.text(-0.5, -0.75, title, weight="bold")
    for layer in range(layers):
        axes.text(layer * (tokens + 1) + (tokens - 1) / 2, tokens, f"layer {layer + 1}", ha="center", color="dimgrey")


def figure_3() -> Figure:
    """From attention and its gradient to the unique flow: every step on numbers, 3 layers, 2 heads and 3 tokens."""
    generator = torch.Generator().manual_seed(0)
    attention = torch.randn(1, 3, 2, 3, 3, generator=generator, dtype=torch.float64).softmax(-1)
    gradient = torch.randn(1, 3, 2, 3, 3, generator=generator, dtype=torch.float64)
    information = gaflow.information.agf(attention, gradient)[0]
    figure, places = panels(3, 2, 560, 240, "How the flow is computed")
    matrices(places[0], attention[0].mean(1), "1. Attention A, mean of two heads")
    matrices(places[1], gradient[0].mean(1), "2. Its gradient, mean of two heads")
    title = "3. The network of relu(A * gradient), mean over heads"
    plots.network_diagram(information, title=title, axes=places[2])
    options = {"terminals": True, "routes": 0, "cut": False}
    for axes, direction, name in zip(places[3:5], ALGORITHMS.values(), ("One", "Another"), strict=True):
        flow = gaflow.max_flow(information, direction, integral=False)
        title = f"4. {name} of many maximum flows, value {flow.value.item():.3f}"
        plots.flow_diagram(flow, title=title, axes=axes, **options)
    flow = gaflow.solve(information)
    title = f"5. The unique flow of the log barrier, value {flow.value.item():.3f}"
    plots.flow_diagram(flow, title=title, axes=places[5], **options)
    return figure


def game_values(information: Tensor) -> dict[tuple[int, ...], tuple[list[float], float]]:
    """What coalitions of input tokens earn: their members' flows in the barrier solution, and the flow game's value."""
    scores = gaflow.solve(information).target[0].tolist()
    values = {}
    for size in range(1, len(scores) + 1):
        for coalition in itertools.combinations(range(len(scores)), size):
            maximum = gaflow.max_flow(information, integral=False, targets=list(coalition)).value.item()
            values[coalition] = ([scores[token] for token in coalition], maximum)
    return values


def figure_10() -> Figure:
    """The game behind Theorem 3.1: coalitions earn the sum of their members' flows; beside it, the flow game."""
    information = synthetic(4, 3)
    figure, places = panels(1, 2, 560, 300, "Coalitions and what they earn")
    flow = gaflow.solve(information)
    title = f"The players are the input tokens; flow {flow.value.item():.3f}"
    options = {"terminals": True, "routes": 0, "cut": False}
    plots.flow_diagram(flow, ["0", "1", "2"], title=title, axes=places[0], **options)
    axes = places[1]
    colours = ("#4477aa", "#ee6677", "#ccbb44")
    values = game_values(information)
    longest = max(maximum for _, maximum in values.values())
    axes.set(xlim=(-1.1, longest * 1.05), ylim=(len(values) + 0.2, -1.2))
    axes.set_axis_off()
    axes.text(-1.1, -0.9, "v(S): flow through S (colours) and maximum flow into S (frame)", weight="bold")
    for row, (coalition, (shares, maximum)) in enumerate(values.items()):
        left = 0.0
        for token, share in zip(coalition, shares, strict=True):
            axes.barh(row, share, left=left, height=0.6, color=colours[token])
            left += share
        axes.barh(row, maximum, height=0.75, facecolor="none", edgecolor="black")
        members = ", ".join(map(str, coalition))
        axes.text(-0.08, row, f"S = {{{members}}}", ha="right", va="center")
    return figure


def figure_4() -> Figure:
    """Capacities of 4 layers and 3 tokens, and the maximum flows that the two algorithms find."""
    information = synthetic(4, 3)
    flows = {name: gaflow.max_flow(information, direction) for name, direction in ALGORITHMS.items()}
    figure, places = panels(2, 2, 640, 290, "Capacities and maximum flows of Algorithms 1 and 2")
    for axes, (name, direction) in zip(places[:2], ALGORITHMS.items(), strict=True):
        plots.network_diagram(information, direction=direction, values=True, title=f"{name}: capacities", axes=axes)
    for axes, (name, direction) in zip(places[2:], ALGORITHMS.items(), strict=True):
        (other,) = (flow for key, flow in flows.items() if key != name)
        title = f"{name}: a maximum flow of {flows[name].value.item():.4g}"
        drawing = {"direction": direction, "terminals": True, "values": True, "routes": 0}
        plots.flow_diagram(flows[name], against=other, cut=False, title=title, axes=axes, **drawing)
    return figure


def shares(att: gaflow.Attribution, flow: gaflow.Flow) -> gaflow.Attribution:
    """`att` with another flow, and as in the paper normalized: scores are shares of the flow, so that rows compare."""
    through = (flow.through()[0] / flow.value[0]).numpy()
    return replace(att, scores=through[0], layers=through, flow=flow, certificate=flow.certificate[0])


def maximum_flows(explainer: gaflow.Explainer) -> dict[str, gaflow.Attribution]:
    """The showcase sentence by plain maximum flow: each information tensor, each algorithm."""
    flows = {}
    for name in ("af", "gf", "agf"):
        att, information = explainer(TEXT, name), information_of(explainer, name)
        for algorithm, direction in ALGORITHMS.items():
            flows[f"{name}, {algorithm}"] = shares(att, gaflow.max_flow(information, direction))
    return flows


def figure_5(explainer: gaflow.Explainer) -> Figure:
    """Shares of the input tokens by plain maximum flow, which depend on the algorithm."""
    return plots.compare(maximum_flows(explainer))


def figure_6(explainer: gaflow.Explainer) -> Figure:
    """The same in all layers."""
    return plots.layers(maximum_flows(explainer))


def figure_7(explainer: gaflow.Explainer) -> Figure:
    """The unique shares of the log barrier, for which the algorithm does not matter."""
    attributions = explainer.compare(TEXT, methods=["af", "gf", "agf"])
    return plots.compare({name: shares(att, att.flow) for name, att in attributions.items() if att.flow is not None})


def figure_9(explainer: gaflow.Explainer) -> Figure:
    """The showcase sentence by all fourteen methods of the paper."""
    return plots.compare(explainer.compare(TEXT, methods=list(PAPER_METHODS)))


def bars(explainer: gaflow.Explainer) -> Figure:
    """What `att.plot()` shows."""
    return explainer(TEXT).plot()


def flow(explainer: gaflow.Explainer) -> Figure:
    """What `att.plot_flow()` shows, with the minimum cut."""
    return explainer(TEXT, "agf").plot_flow()


def figures() -> dict[str, Figure]:
    """Every figure by the name of its file."""
    explainer = gaflow.Explainer()
    return {
        "figure-1": figure_1(),
        "figure-2": figure_2(),
        "figure-3": figure_3(),
        "figure-4": figure_4(),
        "figure-5": figure_5(explainer),
        "figure-6": figure_6(explainer),
        "figure-7": figure_7(explainer),
        "figure-9": figure_9(explainer),
        "figure-10": figure_10(),
        "bars": bars(explainer),
        "flow": flow(explainer),
    }


def save(drawn: dict[str, Figure], folder: Path) -> None:
    """Write figures as SVG files into `folder`."""
    folder.mkdir(exist_ok=True)
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.svg")


if __name__ == "__main__":
    save(figures(), Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "figures")
