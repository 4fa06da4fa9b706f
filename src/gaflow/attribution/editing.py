"""An attribution of a changed network: the flow is solved again, and its scores and tokens follow.

The convention this file owns: **what the edited attribution says about the model is unchanged**. Text, target, label
and output are those of the original; scores, layers, flows and certificate are new. `diagnostics["edited"]` says what
was changed, so that an edited result is never mistaken for an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gaflow.arguments import checked, one_of
from gaflow.attribution.words import UNITS, TextUnit
from gaflow.errors import Argument, ArgumentError, GaflowError
from gaflow.flow.arguments import Nodes
from gaflow.flow.barrier.solve import Barrier
from gaflow.flow.editing import Edge, Node, grouped
from gaflow.flow.editing import edit as edit_flow
from gaflow.flow.result import VALUE_AGAINST, Flow, layer_scores
from gaflow.inputs.segmentation import Span

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution

EDITED = "edited"  # the diagnostic that lists the changes
Groups = Literal["word", "sentence"] | Sequence[Sequence[int]] | None


@checked
def edit(
    att: Attribution,
    *,
    cut_edges: Sequence[Edge] = (),
    cut_nodes: Sequence[Node] = (),
    skip_layers: Sequence[int] = (),
    widen: Mapping[Edge, float] | None = None,
    sources: Nodes = None,
    targets: Nodes = None,
    groups: Groups = None,
    epsilon: float | None = None,
    barrier: Barrier | None = None,
    throw: bool = True,
) -> Attribution:
    """Change the network of an attribution and solve it again, without the model.

    The arguments are those of `gaflow.edit`. A signed method has two networks, for and against the output: both are
    changed alike. `groups` is "word", "sentence" or lists of tokens; the groups are the tokens of the result. Special
    tokens stay by themselves.

        what_if = att.edit(cut_edges=[(2, 0, 5)])
        what_if.scores - att.scores
        att.edit(groups="word")  # a network of words
    """
    if att.flow is None:
        raise GaflowError(
            f"this attribution by {att.method!r} has no flow to change; explain with a flow method, such as agf, and ",
            Argument("keep_flow", True),
        )
    token_groups = _token_groups(att, groups)
    settings: dict[str, Any] = {
        "cut_edges": list(cut_edges),
        "cut_nodes": list(cut_nodes),
        "skip_layers": list(skip_layers),
        "widen": widen,
        "sources": sources,
        "targets": targets,
        "groups": token_groups,
        "epsilon": epsilon,
        "barrier": barrier,
    }
    flow = edit_flow(att.flow, throw=throw, **settings)
    flow_against = None
    if att.flow_against is not None:
        flow_against = edit_flow(att.flow_against, throw=throw, **settings)
    edited = att
    if token_groups is not None:
        edited = _grouped(att, token_groups, flow)
    return _with_flows(edited, flow, flow_against, _description(settings))


def _with_flows(att: Attribution, flow: Flow, flow_against: Flow | None, description: str) -> Attribution:
    """The attribution with these flows, and with scores, layers and certificate that follow from them."""
    through = flow.through()
    certificate = flow.certificate[0]
    diagnostics: dict[str, float | str] = {}
    if flow_against is not None:
        through = through - flow_against.through()
        certificate = certificate.combine(flow_against.certificate[0])
        diagnostics[VALUE_AGAINST] = flow_against.value.item()
    diagnostics[EDITED] = description
    layers = through[0].numpy()
    return replace(
        att,
        scores=layer_scores(layers, 0 if att.layer is None else att.layer),
        layers=layers,
        flow=flow,
        flow_against=flow_against,
        certificate=certificate,
        diagnostics=diagnostics,
    )


def _token_groups(att: Attribution, groups: Groups) -> list[tuple[int, ...]] | None:
    """The nodes that the groups and all other tokens become."""
    if groups is None:
        return None
    if not isinstance(groups, str):
        return grouped(len(att.tokens), groups)
    unit = one_of("groups", groups, ("word", "sentence"))
    if att.media is not None:
        raise ArgumentError(Argument("groups", groups), " is for texts; pictures and sounds have neither")
    units: list[TextUnit] = UNITS[unit](att)
    return grouped(len(att.tokens), [text_unit.tokens for text_unit in units])


def _grouped(att: Attribution, nodes: Sequence[Sequence[int]], flow: Flow) -> Attribution:
    """The attribution with groups of tokens for tokens; its scores are those of the flow, and no others."""
    if att.media is not None:
        raise ArgumentError(Argument("groups"), " are of texts; edit the flow of a picture or a sound by gaflow.edit")
    tokens = []
    offsets = []
    segments = []
    for members in nodes:
        segment = _segment(att, members)
        start, end = _span(att, members)
        text = att.tokens[members[0]]
        if len(members) > 1:
            text = ((att.text, att.text_pair or "")[segment])[start:end]
        tokens.append(text)
        offsets.append((start, end))
        segments.append(segment)
    read = {node for node, members in enumerate(nodes) if set(members) & set(att.read_positions)}
    return replace(
        att,
        tokens=tuple(tokens),
        offsets=tuple(offsets),
        segments=tuple(segments),
        scores=flow.target[0].numpy(),
        layers=None,
        token_matches=None,
        read_positions=tuple(sorted(read)),
    )


def _segment(att: Attribution, members: Sequence[int]) -> int:
    """The text that all tokens of a group belong to."""
    segments = {att.segments[token] for token in members}
    if len(segments) > 1 or (len(members) > 1 and -1 in segments):
        names = [att.tokens[token] for token in members]
        raise ArgumentError(
            Argument("groups"), f" joins {names}; a group has tokens of one text, and special tokens stay by themselves"
        )
    return segments.pop()


def _span(att: Attribution, members: Sequence[int]) -> Span:
    """The part of the text from the first character of a group to its last."""
    starts = [att.offsets[token][0] for token in members]
    ends = [att.offsets[token][1] for token in members]
    return min(starts), max(ends)


def _description(settings: Mapping[str, Any]) -> str:
    """What was changed, in a few words."""
    counted = {
        "cut_edges": "edge cut",
        "widen": "edge widened",
        "cut_nodes": "node cut",
        "skip_layers": "layer skipped",
        "groups": "node of tokens",
    }
    parts = []
    for name, words in counted.items():
        count = len(settings[name] or ())
        if count > 1:
            words = words.replace(" ", "s ", 1)
        if count:
            parts.append(f"{count} {words}")
    for name in ("sources", "targets"):
        if settings[name] is not None:
            parts.append(f"chosen {name}")
    for name in ("epsilon", "barrier"):
        if settings[name] is not None:
            parts.append(f"{name} {settings[name]}")
    return ", ".join(parts) or "solved again"
