"""What a reader is told about an attribution, worded once for pages, figures and the terminal.

The conventions this file owns: the largest score in the text has the strongest shade; special tokens are not counted
for that, because they often hold most of all. A share is a score's fraction of the sum of all absolute scores, special
tokens included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gaflow.attribution.attribution import Attribution
from gaflow.attribution.words import ALL_ZERO, UNITS, TextUnit, Unit
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.flow.result import VALUE_AGAINST, Certificate
from gaflow.inputs.media import Image
from gaflow.tasks.classification import REST
from gaflow.tasks.similarity import MEASURES
from gaflow.view.shades import LEVELS, POSITIVE_COLOUR, level_of
from gaflow.view.text import number_format, one_line, runs, shortened

Attributions = Attribution | Iterable[Attribution] | Mapping[str, Attribution]
NamedAttribution = tuple[str, Attribution]
TableRow = tuple[str, str, str]

NO_CERTIFICATE = "This method solves no flow problem, so there is no certificate."
_WARNING = "warning"  # diagnostic that is a sentence
_DIAGNOSTICS = {  # sentences about diagnostics; of others, name and value are told
    "left_to_biases": "{} of the output comes from biases, which belong to no token",
    "replacement": "how tokens were removed: {}",
}
_LONGEST_NOTE = 300  # characters of a diagnostic: a file may hold any string
_ROUNDING = 1e-12  # a difference of two flows that is this small, relative to them, is 0
_CERTIFICATE_MEANINGS = {
    "conservation": "largest imbalance at a node, relative to the flow",
    "dual": "largest error of a flow on an edge, computed from the potentials, relative to the flow",
    "centrality": "largest error of a flow on an edge, computed from the barrier, relative to the flow",
    "gap": "upper bound of the distance to the maximum flow",
    "cut": "upper bound of every flow",
    "kappa": "smallest sum of the capacities of a layer",
    "mu": "barrier parameter",
    "epsilon": "barrier parameter, relative",
    "edges": "edges that can carry flow",
    "negligible": "capacities dropped, below 1e-100 of the largest",
    "iterations": "factorisations",
}
_MAX_FLOW_MEANINGS = {  # of plain maximum flows, in integers
    "gamma": "capacities were whole numbers, int(gamma times capacity); 0: as fine as 64 bits allow",
    "clamped": "gamma is smaller than the algorithms print it, so that 64 bits hold all capacities",
}


@dataclass(frozen=True)
class Flag:
    """A warning that readers must not miss."""

    name: str
    meaning: str


@dataclass(frozen=True)
class CertificateSummary:
    """What the certificate says about the flow."""

    name: str  # "certified", "not certified" or "nothing to certify"
    text: str
    numbers: tuple[TableRow, ...]  # name, value, meaning


@dataclass(frozen=True)
class Legend:
    """The scale of shades, and what it means."""

    high: str  # the number at its upper end
    signed: bool  # the scale begins below 0
    words: str

    @property
    def low(self) -> str:
        """The number at its lower end."""
        return f"-{self.high}" if self.signed else "0"

    @property
    def levels(self) -> range:
        """The shades of the scale, in order."""
        lowest = -LEVELS if self.signed else 0
        return range(lowest, LEVELS + 1)


@dataclass(frozen=True)
class TextPiece:
    """Characters of a text that have one shade."""

    text: str
    level: int | None = None  # of the shade; None: the characters belong to no token
    tooltip: str = ""
    unread: bool = False  # the model has not read them


@dataclass(frozen=True)
class Passage:
    """The text, or the second text of a pair."""

    caption: str  # "text" or "pair"; empty if there is only one
    pieces: tuple[TextPiece, ...]


@dataclass(frozen=True)
class TopUnit:
    """A word or sentence of large absolute score, as tables show it."""

    unit: TextUnit
    segment: str  # "text" or "pair"; empty if there is only one text
    occurrence: str  # "2 of 3" if the text has the word more than once
    score: str
    share: str
    fraction: float  # of the largest score in the table, -1 to 1


@dataclass(frozen=True)
class Summary:
    """An attribution, and what its shades and shares are relative to."""

    name: str  # of the method, or as the user calls it
    att: Attribution
    unit: Unit  # what is shaded as one
    runs: tuple[TextUnit, ...]  # the shaded parts of the text and, if there is one, of the pair
    largest: float  # absolute score of a run
    largest_token: float  # absolute score of a token, special ones included
    total: float  # sum of all absolute scores, divided by `largest_token`: the sum itself may overflow

    @property
    def signed(self) -> bool:
        """Some token has a score below 0."""
        return bool((self.att.scores < 0).any())

    @property
    def unit_name(self) -> str:
        """What a score belongs to, in words."""
        if self.att.media is None:
            return self.unit
        return "patch" if isinstance(self.att.media, Image) else "frame"

    @property
    def label(self) -> str:
        """The label of the explained output, on one line."""
        return one_line(self.att.label)

    @property
    def headline(self) -> str:
        """The explained label and its probability."""
        if self.att.probability is None:
            return self.label
        return f"{self.label} {self.att.probability:.1%}"

    @property
    def title(self) -> str:
        """What a page or figure is about, on one line."""
        return f"{self.headline} by {one_line(self.name)}: {shortened(self.att.text)}"

    def facts(self, *, method: bool = True) -> list[str]:
        """What stands below the headline; `method=False` leaves out which method explained it."""
        att = self.att
        predicted = att.prediction == att.label
        facts = []
        if att.target in MEASURES:
            pass  # a similarity is the only output of its model
        elif predicted:
            facts.append("predicted")
        elif isinstance(att.target, tuple) and REST not in att.target and att.probability is not None:
            facts.append("probability of the first of the two")
        facts.append(f"{one_line(att.output_name)} {att.output:.4g}")
        if method:
            facts.append(f"explained by {one_line(self.name)}")
        if not predicted:
            facts.append(f"the model predicts {one_line(att.prediction)}")
        facts.append(f"{len(att.tokens)} tokens")
        return facts

    @property
    def text_flags(self) -> list[Flag]:
        """Flags that hold for every method on the same text."""
        if not self.att.truncated:
            return []
        return [Flag("truncated", f"the model read only the first {len(self.att.tokens)} tokens")]

    @property
    def method_flags(self) -> list[Flag]:
        """Flags of this method's result."""
        flags = []
        certificate = self.att.certificate
        if certificate is not None and certificate.dead:
            flags.append(Flag("dead", f"nothing flows from the output to the input, so {ALL_ZERO}"))
        elif certificate is not None and not certificate.converged:
            flags.append(Flag("not converged", "the solver stopped early; do not rely on these scores"))
        if _WARNING in self.att.diagnostics:
            flags.append(Flag("warning", one_line(str(self.att.diagnostics[_WARNING]))))
        return flags

    @property
    def flags(self) -> list[Flag]:
        """Everything that readers must not miss."""
        return self.text_flags + self.method_flags

    @property
    def verdict(self) -> CertificateSummary | None:
        """What the certificate says; None without one."""
        certificate = self.att.certificate
        if certificate is None:
            return None
        numbers = _certificate_numbers(certificate)
        if certificate.dead:
            return CertificateSummary("nothing to certify", "no path leads from the output to the input", numbers)
        error = max(certificate.conservation, certificate.dual, certificate.centrality)
        text = f"{self._flow_values()}, solved to {error:.0e} in {certificate.iterations} steps"
        if certificate.negligible:
            text += f"; {certificate.negligible} negligible capacities were dropped"
        if not certificate.converged:
            return CertificateSummary("not certified", one_line(f"the solver stopped early: {text}"), numbers)
        return CertificateSummary("certified", one_line(text), numbers)

    def _flow_values(self) -> str:
        """The value of the flow, or of the flows for and against."""
        one_layer = self.att.scores if self.att.layers is None else self.att.layers[0]  # scores may sum over layers
        value = float(one_layer.sum())
        if VALUE_AGAINST not in self.att.diagnostics:
            return f"flow {value:.4g}"
        against = float(self.att.diagnostics[VALUE_AGAINST])
        supporting = value + against
        if supporting <= _ROUNDING * against:
            supporting = 0.0
        return f"flow {supporting:.4g} for, {against:.4g} against"

    @property
    def special_share(self) -> float | None:
        """The share of all special tokens; None if every score is 0."""
        if self.total == 0:
            return None
        return math.fsum(abs(self.att.normalized()[self.att.special_mask])) / self.total

    @property
    def special_note(self) -> str:
        """A sentence about the special tokens' share; empty if they have none."""
        if not self.special_share:
            return ""
        names = [shortened(self.att.tokens[index]) for index in np.flatnonzero(self.att.special_mask)]
        return f"special tokens ({', '.join(dict.fromkeys(names))}) hold {self.special_share:.1%} of all scores"

    @property
    def diagnostics(self) -> list[str]:
        """What else the method reports; warnings are flags, and the flow against is part of the verdict."""
        lines = []
        for name, value in self.att.diagnostics.items():
            if name not in (_WARNING, VALUE_AGAINST):
                text = shortened(value, _LONGEST_NOTE) if isinstance(value, str) else f"{value:.4g}"
                sentence = _DIAGNOSTICS.get(name, f"{one_line(name.replace('_', ' '))} {{}}")
                lines.append(sentence.replace("{}", text))
        return lines

    @property
    def provenance(self) -> list[tuple[str, str]]:
        """Where the scores come from, as names and values."""
        return provenance_rows(self.att.provenance)

    def share(self, score: float) -> str:
        """A score's share of all scores."""
        if self.total == 0:
            return "-"
        return f"{abs(score) / self.largest_token / self.total:.1%}"

    def strongest(self) -> str:
        """The score that has the strongest shade, and its share."""
        return f"{number_format(self.largest)(self.largest)} ({self.share(self.largest)})"

    def legend(self, negative: str) -> Legend | None:
        """The scale of the shades, None if every score is 0; `negative` describes scores below 0."""
        if self.largest == 0:
            return None
        return self.score_legend(negative, self.largest, signed=self.signed)

    def score_legend(self, negative: str, largest: float, *, signed: bool) -> Legend:
        """A scale from the lowest score to the highest; `negative` describes how scores below 0 are drawn."""
        meaning = "the stronger the shade, the larger"
        if signed:
            meaning = f"{POSITIVE_COLOUR} speaks for {self.label}, {negative} against it"
        return Legend(number_format(largest)(largest), signed, f"score per {self.unit_name}; {meaning}")

    def passages(self, unread: int) -> list[Passage]:
        """The text and the pair in shaded pieces; at most `unread` characters of what the model has not read."""
        passages = []
        for segment, (caption, source) in enumerate(_sources(self.att)):
            pieces = []
            end = 0
            for run in self.runs:
                if run.segment != segment:
                    continue
                if end < run.start:
                    pieces.append(TextPiece(source[end : run.start]))
                tokens = " ".join(self.att.tokens[index] for index in run.tokens)
                tooltip = f"{run.score:.6g} ({self.share(run.score)} of all scores): {tokens}"
                pieces.append(TextPiece(run.text, level_of(run.score, self.largest), tooltip))
                end = run.end
            if end < len(source):
                pieces.append(self._rest(source[end:], unread))
            passages.append(Passage(caption, tuple(pieces)))
        return passages

    def _rest(self, text: str, longest: int) -> TextPiece:
        """The characters after the last token."""
        if not self.att.truncated or not text.strip():
            return TextPiece(text)
        if len(text) > longest:
            text = f"{text[:longest]} (and {len(text) - longest} more characters)"
        return TextPiece(text, tooltip="not read by the model", unread=True)

    def top(self, count: int, unit: Unit = "word") -> list[TopUnit]:
        """The `count` words (or other units) of largest absolute score."""
        units = UNITS[unit](self.att)
        ranked = sorted(units, key=lambda text_unit: -abs(text_unit.score))[:count]
        largest = max((abs(text_unit.score) for text_unit in ranked), default=0.0)
        form = number_format(largest)
        sources = _sources(self.att)
        rows = []
        for text_unit in ranked:
            same = [
                other.start for other in units if (other.text, other.segment) == (text_unit.text, text_unit.segment)
            ]
            occurrence = f"{same.index(text_unit.start) + 1} of {len(same)}" if len(same) > 1 else ""
            row = TopUnit(
                unit=text_unit,
                segment=sources[text_unit.segment][0],
                occurrence=occurrence,
                score=form(text_unit.score),
                share=self.share(text_unit.score),
                fraction=text_unit.score / (largest or 1.0),
            )
            rows.append(row)
        return rows

    def tokens(self) -> list[TableRow]:
        """Every token with its score and share."""
        form = number_format(self.largest_token)
        scores = self.att.scores.tolist()
        return [(token, form(score), self.share(score)) for token, score in zip(self.att.tokens, scores, strict=True)]


def summarize(att: Attribution, name: str | None = None, unit: Unit = "token") -> Summary:
    """The summary of `att`, shaded by token, word or sentence; `name` is used in place of the method's."""
    units = UNITS[unit](att)
    text_runs: list[TextUnit] = []
    if att.media is None:
        for segment, (_, source) in enumerate(_sources(att)):
            inside = [text_unit for text_unit in units if text_unit.segment == segment]
            text_runs += runs(source, inside)
    shaded = text_runs or units  # pictures and sounds have no runs
    return Summary(
        name=name or att.method,
        att=att,
        unit=unit,
        runs=tuple(text_runs),
        largest=max((abs(part.score) for part in shaded), default=0.0),
        largest_token=float(abs(att.scores).max(initial=0.0)),
        total=math.fsum(abs(att.normalized())),
    )


def _sources(att: Attribution) -> list[tuple[str, str]]:
    """The text and, if there is one, the pair, with their captions; a single text needs none."""
    if att.text_pair is None:
        return [("", att.text)]
    return [("text", att.text), ("pair", att.text_pair)]


def relative_legend(words: str, label: str, negative: str, *, signed: bool) -> Legend:
    """A scale for several rows that are each shaded by their own largest value; `words` describe that value."""
    if signed:  # orange is no vote for the label where a method has no signs
        words += f"; {POSITIVE_COLOUR}: above 0; {negative}: below 0, so against {label}"
    return Legend("100%", signed, words)


def shared_legend(summaries: Sequence[Summary], negative: str) -> Legend:
    """One scale for several methods, each shaded by its own largest score."""
    signed = any(summary.signed for summary in summaries)
    words = f"of each method's largest score per {summaries[0].unit_name}, special tokens aside"
    return relative_legend(words, summaries[0].label, negative, signed=signed)


def summarize_all(attributions: Attributions) -> list[Summary]:
    """The summaries of one attribution, several, or a dict of them, which must be of the same text."""
    return [summarize(att, name) for name, att in of_same_text(attributions)]


def named_attributions(attributions: Attributions) -> list[NamedAttribution]:
    """One attribution, several, or a dict of them, as (name, attribution); anything else is refused."""
    if isinstance(attributions, Mapping):
        named = [(str(name), att) for name, att in attributions.items()]
    else:
        results = attributions if isinstance(attributions, Iterable) else [attributions]
        named = [(getattr(att, "method", ""), att) for att in results]
    for _, att in named:
        if not isinstance(att, Attribution):
            message = f" must be Attribution objects, in a list or dict, not {type(att).__name__}"
            raise ArgumentTypeError(Argument("attributions"), message)
    if not named:
        raise ArgumentError(Argument("attributions"), " is empty; give at least one attribution")
    return named


def of_same_text(attributions: Attributions) -> list[NamedAttribution]:
    """The same, of one text; attributions of different texts are refused."""
    named = named_attributions(attributions)
    _, first = named[0]
    for _, att in named:
        if (att.text, att.text_pair, att.tokens) != (first.text, first.text_pair, first.tokens):
            raise ArgumentError(Argument("attributions"), " are of different texts; show one text at a time")
    return named


def _certificate_numbers(certificate: Certificate) -> tuple[TableRow, ...]:
    meanings = dict(_CERTIFICATE_MEANINGS)
    if certificate.mu == 0:
        meanings |= _MAX_FLOW_MEANINGS
    rows = []
    for name, meaning in meanings.items():
        value = getattr(certificate, name)
        text = one_line(str(value))
        if isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, float):
            text = f"{value:.4g}"
        rows.append((name, text, meaning))
    return tuple(rows)


def provenance_rows(provenance: Mapping[str, object]) -> list[tuple[str, str]]:
    """A provenance as names and values; entries that are None are left out."""
    rows = []
    for name, value in provenance.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {item}" for key, item in value.items() if item is not None)
        if value is not None:
            rows.append((one_line(name), one_line(str(value))))
    return rows
