"""The pieces of a page about one attribution: headline, flags, shaded text, legend and tables.

The conventions this file owns: **everything that is not ours goes through `safe`**; the largest score among the runs
of the text has the strongest shade, special tokens aside, since they often hold most of all; a share is a score's part
of the sum of all absolute scores, special tokens included.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gaflow.attribution.words import UNITS, Unit
from gaflow.view.media import depicted
from gaflow.view.shades import LEVELS, Run, number_format, runs, spelled, visible

if TYPE_CHECKING:
    from gaflow.attribution.attribution import Attribution, TextUnit
    from gaflow.flow.result import Certificate

__all__ = [
    "View",
    "certificate",
    "flags",
    "headline",
    "legend",
    "level_class",
    "notes",
    "safe",
    "shared_legend",
    "shortened",
    "text",
    "tokens",
    "top",
]

_UNREAD = 400  # characters shown of what a truncated text goes on with
_LONGEST = 60  # characters of a word or token in a table
_SENTENCE = 200  # characters of a sentence there
_CERTIFICATE = {
    "conservation": "largest imbalance at a node, relative to the flow",
    "dual": "largest error of an edge’s flow given the potentials, relative to the flow",
    "centrality": "largest error of an edge’s flow given the barrier, relative to the flow",
    "gap": "how far the flow can be below the maximum flow",
    "cut": "upper bound of every flow",
    "kappa": "smallest sum of the capacities of a layer",
    "mu": "barrier parameter",
    "epsilon": "barrier parameter, relative",
    "edges": "edges that can carry flow",
    "negligible": "capacities dropped, below 1e-100 of the largest",
    "iterations": "factorisations",
}
_PLAIN = {  # of plain maximum flows, in integers
    "gamma": "capacities were whole numbers, int(gamma times capacity); 0: as fine as 64 bits allow",
    "clamped": "gamma is smaller than the algorithms print it, so that 64 bits hold all capacities",
}


@dataclass(frozen=True)
class View:
    """An attribution and what its shades, bars and shares are relative to."""

    name: str
    att: Attribution
    runs: tuple[tuple[Run, ...], ...]  # of the text and, if there is one, of the pair
    largest: float  # absolute score of a run
    total: float  # the sum of all absolute scores, in units of the largest of them, so that it cannot overflow
    signed: bool
    unit: Unit

    @classmethod
    def of(cls, name: str, att: Attribution, unit: Unit) -> View:
        """What to show of `att`, by token, word or sentence."""
        pieces = UNITS[unit](att)
        sources = (att.text,) if att.text_pair is None else (att.text, att.text_pair)
        spans = pieces if att.media is None else []  # a picture or a sound is no text to be shaded
        found = tuple(tuple(runs(s, [p for p in spans if p.segment == k])) for k, s in enumerate(sources))
        scores = [run.score for each in found for run in each] or [piece.score for piece in pieces]
        largest = max(map(abs, scores), default=0.0)
        total = math.fsum(abs(att.normalized()))
        return cls(name, att, found, largest, total, bool((att.scores < 0).any()), unit)

    def share(self, score: float) -> str:
        """A score's part of all there is."""
        return f"{abs(score) / abs(self.att.scores).max() / self.total:.1%}" if self.total > 0 else "-"


def safe(text: str) -> str:
    """`text` as it may stand between tags and in quoted attributes."""
    return escape(visible(text), quote=True)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The beginning of a long word or text, on one line; what cannot be seen at all is written out."""
    line = " ".join(visible(text).split())
    if all(unicodedata.category(char) == "Cf" for char in line):  # as a byte order mark or a zero-width space
        line = "".join(f"\\u{ord(char):04x}" for char in line)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def level_class(level: int) -> str:
    """The class of a shade: p1, p2, ... above 0, n1, n2, ... below."""
    return f"{'n' if level < 0 else 'p'}{abs(level)}"


def headline(view: View, tag: str, *, method: bool = True) -> str:
    """What was explained, and what the model says about it."""
    att = view.att
    contrast = isinstance(att.target, tuple)
    chance = "" if att.probability is None else f' <span class="figure">{att.probability:.1%}</span>'
    facts = [f"{safe(att.output_name)} {att.output:.4g}"]
    if contrast and att.probability is not None:
        facts.insert(0, "probability of the first of the two")
    if att.prediction == att.label:
        facts.insert(0, "the model’s prediction")
    else:
        facts.append(f"the model predicts <bdi>{safe(att.prediction)}</bdi>")
    if method:
        facts.append(f"explained by <b><bdi>{safe(view.name)}</bdi></b>")
    facts.append(f"{len(att.tokens)} tokens")
    head = f'<{tag} class="headline"><bdi>{safe(att.label)}</bdi>{chance}</{tag}>\n'
    return head + f'<p class="facts">{" · ".join(facts)}</p>\n'


def flags(att: Attribution) -> str:
    """What must not be missed."""
    found, certificate = [], att.certificate
    if att.truncated:
        found.append(("truncated", f"the model read only the first {len(att.tokens)} tokens, special ones included"))
    if certificate is not None and certificate.dead:
        found.append(("dead", "nothing flows from the output to the input, so every score is 0"))
    elif certificate is not None and not certificate.converged:
        found.append(("not converged", "the solver stopped early; do not rely on these scores"))
    if "warning" in att.diagnostics:
        found.append(("warning", safe(str(att.diagnostics["warning"]))))
    items = "".join(f"<li><b>{name}</b>: {meaning}</li>" for name, meaning in found)
    return f'<ul class="flags">{items}</ul>\n' if items else ""


def text(view: View) -> str:
    """The text, and the pair below it, with a shade behind every run."""
    att, parts = view.att, []
    if att.media is not None:
        return f'<p class="caption">{safe(att.text)}</p>\n{depicted(att)}'
    for source, found, caption in zip((att.text, att.text_pair or ""), view.runs, ("text", "pair"), strict=False):
        if att.text_pair is not None:
            parts.append(f'<p class="caption">{caption}</p>\n')
        cursor, pieces = 0, []
        for run in found:
            pieces.append(safe(source[cursor : run.start]) + _span(view, source, run))
            cursor = run.end
        parts.append(f'<div class="text" dir="auto" lang="">{"".join(pieces)}{_rest(source[cursor:], att)}</div>\n')
    return "".join(parts)


def _span(view: View, source: str, run: Run) -> str:
    tokens = " ".join(view.att.tokens[k] for k in run.tokens)
    level = round(run.score / view.largest * LEVELS) if view.largest > 0 else 0
    shown = f' class="{level_class(level)}"' if level else ""
    title = safe(f"{run.score:.6g} ({view.share(run.score)} of all scores): {tokens}")
    return f'<span{shown} title="{title}">{safe(source[run.start : run.end])}</span>'


def _rest(rest: str, att: Attribution) -> str:
    """What comes after the last token: of a truncated text, the part that the model has not read."""
    if not (att.truncated and rest.strip()):
        return safe(rest)
    more = f" (and {len(rest) - _UNREAD} more characters)" if len(rest) > _UNREAD else ""
    return f'<span class="unread" title="not read by the model">{safe(rest[:_UNREAD])}{more}</span>'


def legend(view: View) -> str:
    """From the lowest possible score, over 0, to the highest, in the shades of the text."""
    if view.largest == 0:
        return '<p class="legend">every score is 0</p>\n'
    form = number_format(view.largest)
    levels = range(-LEVELS if view.signed else 0, LEVELS + 1)
    cells = "".join(f'<i class="{level_class(k)}"></i>' if k else "<i></i>" for k in levels)
    low = f"{form(-view.largest)}" if view.signed else "0"
    label = f"<bdi>{safe(view.att.label)}</bdi>"
    words = f"score per {view.unit}; the stronger the shade, the larger"
    if view.signed:
        words = f"score per {view.unit}; orange speaks for {label}, blue with a dashed line below against it"
    scale = f'{low} <span class="strip" aria-hidden="true">{cells}</span> {form(view.largest)}'
    return f'<p class="legend"><span class="scale">{scale}</span> <span>{words}</span></p>\n'


def shared_legend(views: Sequence[View]) -> str:
    """One legend for methods that each have units of their own: in parts of the largest score."""
    signed = any(view.signed for view in views)
    cells = (
        f'<i class="{level_class(k)}"></i>' if k else "<i></i>" for k in range(-LEVELS if signed else 0, LEVELS + 1)
    )
    words = f"of a method’s largest score per {views[0].unit}, which is given beside it"
    if signed:  # orange is no vote for the label where a method knows no signs
        label = f"<bdi>{safe(views[0].att.label)}</bdi>"
        words += f"; orange: above 0; blue with a dashed line below: below 0, so against {label}"
    strip = f'<span class="strip" aria-hidden="true">{"".join(cells)}</span>'
    scale = f"{'-100%' if signed else '0'} {strip} 100%"
    return f'<p class="legend"><span class="scale">{scale}</span> <span>{words}</span></p>\n'


def top(view: View, count: int, unit: Unit = "word") -> str:
    """The words (or sentences) of largest absolute score: word, bar, score, share of all there is."""
    every = UNITS[unit](view.att)
    found = sorted(every, key=lambda w: -abs(w.score))[:count]
    largest = max((abs(w.score) for w in found), default=0.0)
    if largest == 0:
        return ""
    form, longest = number_format(largest), _SENTENCE if unit == "sentence" else _LONGEST
    rows = "".join(
        f'<tr><th scope="row">{_word(view, w, every, longest)}</th><td>{_bar(w.score / largest, view.signed)}</td>'
        f'<td class="number">{form(w.score)}</td><td class="number">{view.share(w.score)}</td></tr>\n'
        for w in found
    )
    head = f'<th scope="col">top {unit}s</th><th></th><th scope="col">score</th><th scope="col">share</th>'
    return f'<table class="top {unit}s"><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n'


def _word(view: View, word: TextUnit, every: Sequence[TextUnit], longest: int) -> str:
    """A word or sentence, and which one it is where the text has it more than once."""
    where = [] if view.att.text_pair is None else ["pair" if word.segment else "text"]
    same = [w.start for w in every if (w.text, w.segment) == (word.text, word.segment)]
    where += [f"{same.index(word.start) + 1} of {len(same)}"] if len(same) > 1 else []
    beside = f" <small>{', '.join(where)}</small>" if where else ""
    title = f"characters {word.start} to {word.end}"
    return f'<bdi title="{title}">{safe(shortened(word.text, longest))}</bdi>{beside}'


def _bar(value: float, signed: bool) -> str:
    """A bar as long as `value` says, -1 to 1; with signed scores it grows from the middle, to the left below 0."""
    size = abs(value) * (50 if signed else 100)
    start = 0 if not signed else 50 - size if value < 0 else 50
    kind = "less" if value < 0 else "more"
    place = f"left:{start:.2f}%;width:{size:.2f}%"
    return f'<span class="bar{" signed" if signed else ""}"><i class="{kind}" style="{place}"></i></span>'


def notes(view: View) -> str:
    """The special tokens' part, the certificate, what else the method knows, and every token's score."""
    return _special(view) + certificate(view.att) + _facts(view.att) + tokens(view)


def _special(view: View) -> str:
    att = view.att
    found = [k for k, segment in enumerate(att.segments) if segment < 0]
    held = math.fsum(abs(att.normalized()[k]) for k in found)
    if not held:
        return ""
    names = ", ".join(dict.fromkeys(f"<bdi>{safe(shortened(att.tokens[k]))}</bdi>" for k in found))
    return f'<p class="note">Special tokens ({names}) hold {held / view.total:.1%} of all scores.</p>\n'


def certificate(att: Attribution) -> str:
    """How good the flow is, in words first."""
    found = att.certificate
    if found is None:
        return '<p class="note">This method solves no flow problem, so there is no certificate.</p>\n'
    meanings = _CERTIFICATE if found.mu > 0 else _CERTIFICATE | _PLAIN
    shown = {name: _figure(getattr(found, name)) for name in meanings}
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td class="number">{shown[name]}</td><td>{meaning}</td></tr>\n'
        for name, meaning in meanings.items()
    )
    table = f'<table class="facts-table"><tbody>\n{rows}</tbody></table>'
    return f'<details class="certificate"><summary>{_verdict(found)}</summary>\n{table}</details>\n'


def _figure(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _facts(att: Attribution) -> str:
    known = {name: value for name, value in spelled(att.diagnostics).items() if name != "warning"}
    shown = " · ".join(f"{safe(name)} <bdi>{safe(shortened(value))}</bdi>" for name, value in known.items())
    return f'<p class="note">{shown}</p>\n' if shown else ""


def _verdict(found: Certificate) -> str:
    kept, error, gap = (
        f'<span class="figure">{value:.0e}</span>'
        for value in (found.conservation, max(found.conservation, found.dual, found.centrality), found.gap)
    )
    if found.dead:
        return "<b>Nothing to certify</b>: no path leads from the output to the input."
    if not found.converged:
        return f"<b>Not certified</b>: the solver stopped with an error of {error} (relative)."
    dropped = f" {found.negligible} negligible capacities were dropped." if found.negligible else ""
    return (
        f"<b>Certified</b>: the flow is conserved to {kept} and optimal to {error} (relative); "
        f"no flow can exceed it by more than {gap}.{dropped}"
    )


def tokens(view: View) -> str:
    """Every token with its score, for those who cannot hover."""
    att = view.att
    form = number_format(float(abs(att.scores).max(initial=0.0)))
    rows = "".join(
        f'<tr><td>{k}</td><th scope="row"><bdi>{safe(shortened(token))}</bdi></th>'
        f"<td>{form(score)}</td><td>{view.share(score)}</td></tr>\n"
        for k, (token, score) in enumerate(zip(att.tokens, att.scores.tolist(), strict=True))
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("", "token", "score", "share"))
    table = f'<table class="facts-table"><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>'
    return f'<details class="tokens"><summary>All {len(att.tokens)} tokens</summary>\n{table}</details>\n'
