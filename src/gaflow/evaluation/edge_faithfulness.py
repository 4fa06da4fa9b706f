"""Are ranked attention edges faithful? Edges are removed from the model, and its probability is measured.

An edge is a triple (layer, query, key) with an attention weight in some head. The diagonal is left out: the network of
a flow joins the residual stream to it, and removing attention from a token to itself would remove something else. Of m
edges, level k removes the `max(1, floor(k m / 100 + 1/2))` highest-scored ones. With `p` the probability of the
explained class,

    comprehensiveness   p - p(without the highest-scored edges), averaged over levels; high is good
    sufficiency         p - p(with the highest-scored edges alone), averaged over levels; low is good

What a removed edge carries instead is `replacement`: the value of the same token in a text of [PAD] or [MASK] tokens,
nothing ("zero"), or nothing with the remaining weights renormalised ("renormalise").

`edge_sets` asks the same of sets of edges that a flow names: the edges of its widest routes, or of its minimum cut.
Scores are then compared at the size of the set: as many of their highest-scored edges are removed, or kept alone.

The convention this file owns: edges of all layers compete with each other, and all heads of an edge go together. Equal
scores are ranked by layer, query and key. A control of random scores is always included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from gaflow.arguments import checked, one_of, whole_number
from gaflow.errors import Argument, ArgumentError, ArgumentTypeError
from gaflow.evaluation.arguments import check_levels, encode_texts, parse_targets, softmax_head
from gaflow.evaluation.masking import find_replacement, masked_count, word_embeddings
from gaflow.evaluation.ranking import CONTROL
from gaflow.evaluation.tokens import finite_numbers
from gaflow.explainer.explainer import Explainer
from gaflow.extras import need
from gaflow.flow import Flow, min_cut, routes
from gaflow.inputs.encoding import Encoding, Text
from gaflow.methods.text_random import token_generator
from gaflow.models.attention_patching import PatchedModel, Removal
from gaflow.progress import Progress, reporting

if TYPE_CHECKING:
    import pandas as pd

EDGE_LEVELS = (1, 2, 5, 10, 20, 30, 50)  # per cents of the edges
EDGE_REPLACEMENTS = ("pad", "mask", "zero", "renormalise")
ITSELF = "the set itself"  # in the place of a ranking
_TOKENS_PER_PASS = 4096
EdgeScores = Mapping[str, Sequence[Any]]  # per method, for each text: an Attribution, or scores (l, t, t)


@dataclass(frozen=True, eq=False)
class EdgeEvaluation:
    """Faithfulness of edge scores on the same texts and model.

    It is what `edges` returns:

        result = gaflow.evaluation.edges(explainer, texts, {"flow": attributions})
        result.table()
    """

    methods: tuple[str, ...]  # (m,)
    levels: tuple[int, ...]  # (k,) per cents of the edges
    replacement: str
    probability: np.ndarray  # (n,) of the explained class
    without_top: np.ndarray  # (m, n, k) its probability without the highest-scored edges
    top_alone: np.ndarray  # (m, n, k) its probability with the highest-scored edges alone
    edge_counts: np.ndarray  # (n,)

    def per_text(self, metric: str) -> np.ndarray:
        """Comprehensiveness or sufficiency (m, n), averaged over levels."""
        one_of("metric", metric, ("comprehensiveness", "sufficiency"))
        remaining = self.without_top if metric == "comprehensiveness" else self.top_alone
        return (self.probability[:, None] - remaining).mean(-1)

    def difference(self, first: str, second: str, metric: str = "comprehensiveness") -> tuple[float, float]:
        """How much `first` exceeds `second` on the same texts: the mean difference and its standard error."""
        values = self.per_text(metric)
        rows = []
        for argument, name in (("first", first), ("second", second)):
            rows.append(values[self.methods.index(one_of(argument, name, self.methods))])
        differences = rows[0] - rows[1]
        if len(differences) < 2:
            return float(differences.mean()), float("nan")
        return float(differences.mean()), float(differences.std(ddof=1) / len(differences) ** 0.5)

    def table(self) -> pd.DataFrame:
        """One row per method: both measures with standard errors, the number of texts and the replacement."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        columns: dict[str, Any] = {}
        for metric in ("comprehensiveness", "sufficiency"):
            values = self.per_text(metric)
            columns[metric] = values.mean(1)
            spread = values.std(1, ddof=1) if values.shape[1] > 1 else np.full(len(values), np.nan)
            columns[f"{metric}_error"] = spread / values.shape[1] ** 0.5
        columns["texts"] = len(self.probability)
        columns["replacement"] = self.replacement
        return pd.DataFrame(columns, index=pd.Index(self.methods, name="method"))


@checked
def edges(
    explainer: Explainer,
    texts: Sequence[Text],
    scores: EdgeScores,
    replacement: str = "pad",
    *,
    levels: Sequence[int] = EDGE_LEVELS,
    target: Any = None,
    truncation: bool = False,
    seed: int = 0,
    progress: Progress = None,
) -> EdgeEvaluation:
    """Measure how the model's probability changes when its highest-scored attention edges are removed, or kept alone.

    `scores` has for each method a list with one entry per text: an Attribution of a flow method, whose flow is the
    score, or an array (l, t, t) of layers, queries and keys, such as `att.flow.capacity[0]`. `replacement` is "pad",
    "mask", "zero" or "renormalise". `levels` are per cents of the edges, `seed` is that of the random control. The
    model must be a text classifier whose attention goes through the interface of transformers.

        attributions = explainer(texts, "relevance_flow")
        gaflow.evaluation.edges(explainer, texts, {"flow": attributions}).table()
    """
    one_of("replacement", replacement, EDGE_REPLACEMENTS)
    whole_number("seed", seed, 0)
    level_values = check_levels(levels)
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, texts, truncation)
    targets = parse_targets(head, target, None, len(encodings))
    scores_by_method = _parse_edge_scores(scores, encodings)
    methods = (*scores_by_method, CONTROL)
    shape = (len(methods), len(encodings), len(level_values))
    without_top = np.empty(shape)
    top_alone = np.empty(shape)
    probability = np.empty(len(encodings))
    edge_counts = np.empty(len(encodings), dtype=np.int64)
    with reporting(progress, len(encodings), "text") as report:
        for index, encoding in enumerate(encodings):
            patched = patched_model(explainer, encoding, replacement)
            live = patched.live_edges()
            candidates = _candidates(live)
            edge_counts[index] = len(candidates)
            values = []
            for name, items in scores_by_method.items():
                scores_of_text = _checked_shape(items[index], live, name, index)
                values.append(scores_of_text.reshape(-1)[candidates])
            generator = token_generator(seed, 0, list(encoding.inputs["input_ids"]))
            values.append(generator.random(len(candidates)))
            removed = _removals(np.stack(values), candidates, live, level_values)
            log_probabilities = _log_probabilities(patched, removed)
            requested = targets[index]
            explained = int(log_probabilities[0].argmax()) if requested is None else requested
            probabilities = np.exp(log_probabilities[:, explained])
            probability[index] = probabilities[0]
            by_side = probabilities[1:].reshape(len(methods), len(level_values), 2)
            without_top[:, index] = by_side[..., 0]
            top_alone[:, index] = by_side[..., 1]
            report(index + 1)
    return EdgeEvaluation(
        methods=methods,
        levels=level_values,
        replacement=replacement,
        probability=probability,
        without_top=without_top,
        top_alone=top_alone,
        edge_counts=edge_counts,
    )


@checked
def probabilities_without(
    explainer: Explainer,
    text: Text,
    removed: Callable[[int, int, int], np.ndarray],
    replacement: str = "zero",
    *,
    truncation: bool = False,
) -> np.ndarray:
    """Probabilities (2, classes) of a text as it is, and without some of the model's attention edges.

    `removed` is called with the numbers of layers, heads and tokens, and returns which edges to remove: (l, t, t) bool
    for all heads together, or (l, h, t, t). `replacement` is what removed edges carry instead, as in `edges`.

        probabilities_without(explainer, text, lambda layers, heads, tokens: np.ones((layers, tokens, tokens), bool))
    """
    one_of("replacement", replacement, EDGE_REPLACEMENTS)
    softmax_head(explainer)
    (encoding,) = encode_texts(explainer, [text], truncation)
    patched = patched_model(explainer, encoding, replacement)
    layers, tokens, _ = patched.live_edges().shape
    heads = explainer.model.config.num_attention_heads
    removals = torch.from_numpy(np.asarray(removed(layers, heads, tokens), dtype=bool))
    runs = torch.stack([torch.zeros_like(removals), removals])
    return np.exp(_log_probabilities(patched, runs))


@dataclass(frozen=True, eq=False)
class EdgeSetEvaluation:
    """Faithfulness of sets of edges, and of as many edges by other rankings.

    It is what `edge_sets` returns:

        result = gaflow.evaluation.edge_sets(explainer, texts, {"routes": sets}, {"capacities": scores})
        result.table()
    """

    sets: tuple[str, ...]  # (s,)
    rankings: tuple[str, ...]  # (r,) the set itself, the scores, and random edges
    replacement: str
    probability: np.ndarray  # (n,) of the explained class
    without: np.ndarray  # (s, r, n) its probability without these edges; NaN for an empty set
    alone: np.ndarray  # (s, r, n) its probability with these edges alone
    sizes: np.ndarray  # (s, n) edges

    def per_text(self, metric: str) -> np.ndarray:
        """Comprehensiveness or sufficiency (s, r, n)."""
        one_of("metric", metric, ("comprehensiveness", "sufficiency"))
        remaining = self.without if metric == "comprehensiveness" else self.alone
        return self.probability - remaining

    def table(self) -> pd.DataFrame:
        """One row per set and ranking: both measures with standard errors, texts, and the mean number of edges."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        filled = self.sizes > 0
        rows = []
        for number, name in enumerate(self.sets):
            for ranking_number, ranking in enumerate(self.rankings):
                entry: dict[str, Any] = {"set": name, "edges": ranking}
                for metric in ("comprehensiveness", "sufficiency"):
                    values = self.per_text(metric)[number, ranking_number, filled[number]]
                    entry[metric] = values.mean() if len(values) else np.nan
                    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
                    entry[f"{metric}_error"] = error
                entry["texts"] = int(filled[number].sum())
                entry["size"] = self.sizes[number, filled[number]].mean() if filled[number].any() else 0.0
                entry["replacement"] = self.replacement
                rows.append(entry)
        return pd.DataFrame(rows).set_index(["set", "edges"])


@checked
def edge_sets(
    explainer: Explainer,
    texts: Sequence[Text],
    sets: EdgeScores,
    scores: EdgeScores,
    replacement: str = "pad",
    *,
    target: Any = None,
    truncation: bool = False,
    draws: int = 5,
    seed: int = 0,
    progress: Progress = None,
) -> EdgeSetEvaluation:
    """Measure how the model's probability changes without certain attention edges, or with these alone.

    `sets` has for each name a list with one truth value (l, t, t) per text, such as `route_edges(att.flow, 10)` or
    `cut_edges(att.flow)`. `scores` is as in `edges`: of each, as many of the highest-scored edges are taken as the set
    has. Random edges are the mean of `draws` draws. Edges on the diagonal do not count. The rest is as in `edges`.

        attributions = explainer(texts, "relevance_flow")
        sets = {"routes": [route_edges(att.flow) for att in attributions]}
        edge_sets(explainer, texts, sets, {"flow": attributions}).table()
    """
    one_of("replacement", replacement, EDGE_REPLACEMENTS)
    whole_number("draws", draws)
    whole_number("seed", seed, 0)
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, texts, truncation)
    targets = parse_targets(head, target, None, len(encodings))
    sets_by_name = _parse_edge_scores(sets, encodings, "sets")
    scores_by_method = _parse_edge_scores(scores, encodings)
    rankings = (ITSELF, *scores_by_method, CONTROL)
    shape = (len(sets_by_name), len(rankings), len(encodings))
    without = np.full(shape, np.nan)
    alone = np.full(shape, np.nan)
    sizes = np.zeros((len(sets_by_name), len(encodings)), dtype=np.int64)
    probability = np.empty(len(encodings))
    with reporting(progress, len(encodings), "text") as report:
        for index, encoding in enumerate(encodings):
            patched = patched_model(explainer, encoding, replacement)
            live = patched.live_edges()
            candidates = _candidates(live)
            orders = []
            for name, items in scores_by_method.items():
                orders.append(_best_first(_checked_shape(items[index], live, name, index), candidates))
            generator = token_generator(seed, 0, list(encoding.inputs["input_ids"]))
            orders += [generator.permutation(candidates) for _ in range(draws)]
            edge_sets = [np.zeros(0, dtype=np.int64)]
            for number, (name, items) in enumerate(sets_by_name.items()):
                members = _checked_shape(items[index], live, name, index, "sets").reshape(-1)[candidates] > 0
                sizes[number, index] = members.sum()
                edge_sets += [candidates[members], *(order[: members.sum()] for order in orders)]
            log_probabilities = _log_probabilities(patched, _removals_of_sets(edge_sets, candidates, live))
            requested = targets[index]
            explained = int(log_probabilities[0].argmax()) if requested is None else requested
            probabilities = np.exp(log_probabilities[:, explained])
            probability[index] = probabilities[0]
            by_side = probabilities[2:].reshape(len(sets_by_name), 1 + len(orders), 2)
            named = 1 + len(scores_by_method)
            random_mean = by_side[:, named:].mean(1, keepdims=True)
            filled = sizes[:, index] > 0
            by_ranking = np.concatenate([by_side[:, :named], random_mean], 1)
            without[filled, :, index] = by_ranking[filled, :, 0]
            alone[filled, :, index] = by_ranking[filled, :, 1]
            report(index + 1)
    return EdgeSetEvaluation(
        sets=tuple(sets_by_name),
        rankings=rankings,
        replacement=replacement,
        probability=probability,
        without=without,
        alone=alone,
        sizes=sizes,
    )


@checked
def route_edges(flow: Flow, k: int = 10) -> np.ndarray:
    """The edges (l, t, t) of the `k` widest routes of a flow, as truth values."""
    member = np.zeros(tuple(flow.edges.shape[1:]), dtype=bool)
    layers = np.arange(len(member))
    for route in routes(flow, k).routes:
        nodes = np.array(route.tokens)  # from the input up
        member[layers, nodes[1:], nodes[:-1]] = True
    return member


@checked
def cut_edges(flow: Flow) -> np.ndarray:
    """The attention edges (l, t, t) of the minimum cut of a flow's network; none where it runs through nodes alone."""
    member = np.zeros(tuple(flow.edges.shape[1:]), dtype=bool)
    for edge in min_cut(flow).edges:
        if 0 <= edge.layer < len(member):
            member[edge.layer, edge.i, edge.j] = True
    return member


def _removals_of_sets(edge_sets: Sequence[np.ndarray], candidates: np.ndarray, live: Tensor) -> Tensor:
    """What each run removes (2 * sets, l, t, t): a set of edges, then all candidates but these."""
    runs = np.zeros((2 * len(edge_sets), live.numel()), dtype=bool)
    for row, members in enumerate(edge_sets):
        runs[2 * row, members] = True
        runs[2 * row + 1, candidates] = True
        runs[2 * row + 1, members] = False
    return torch.from_numpy(runs).reshape(-1, *live.shape)


def _best_first(values: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """The candidates (m,), those with the highest values (l, t, t) first."""
    order = np.argsort(-values.reshape(-1)[candidates], kind="stable")
    return candidates[order]


def _checked_shape(values: np.ndarray, live: Tensor, name: str, index: int, argument: str = "scores") -> np.ndarray:
    """The values (l, t, t), if there is one for each edge."""
    if values.shape != live.shape:
        shapes = f"{tuple(values.shape)}, not {tuple(live.shape)}"
        message = f"[{name!r}][{index}] must have a value for each layer, query and key: it has shape "
        raise ArgumentError(Argument(argument), message + shapes)
    return values


def _parse_edge_scores(
    scores: EdgeScores, encodings: Sequence[Encoding], argument: str = "scores"
) -> dict[str, list[np.ndarray]]:
    """Scores (l, t, t) of every text by every method."""
    if not scores:
        raise ArgumentError(Argument(argument), " is empty; pass at least one")
    by_method = {}
    for name, items in scores.items():
        if name in (CONTROL, ITSELF):
            raise ArgumentError(Argument(argument), f" has the name {name!r}, which is taken; choose another one")
        if len(items) != len(encodings):
            message = f"[{name!r}] has {len(items)} entries but there are {len(encodings)} texts"
            raise ArgumentError(Argument(argument), message)
        by_method[str(name)] = [_edge_scores(item, argument, f"[{name!r}][{k}]") for k, item in enumerate(items)]
    return by_method


def _edge_scores(item: Any, argument: str, entry: str) -> np.ndarray:
    """Scores (l, t, t) of one text; `entry` is the place in the argument that errors name."""
    if hasattr(item, "certificate"):  # an Attribution
        if item.flow is None:
            message = f"{entry} has no flow; explain by a flow method with keep_flow=True"
            raise ArgumentError(Argument(argument), message)
        signed = item.flow.edges[0]
        if item.flow_against is not None:
            signed = signed - item.flow_against.edges[0]
        item = signed
    values = finite_numbers(item)
    if values is None or values.ndim != 3:
        message = f"{entry} must be an Attribution with a flow, or finite numbers of shape (l, t, t)"
        raise ArgumentTypeError(Argument(argument), message)
    return values


def patched_model(explainer: Explainer, encoding: Encoding, replacement: str) -> PatchedModel:
    """The model with one text, and the text that removed edges read instead."""
    batch = explainer.runner.collate([encoding])
    ids = batch.inputs["input_ids"]
    embeddings = word_embeddings(explainer.model, ids)
    baseline = None
    removal: Removal = "baseline"
    if replacement == "zero":
        removal = "zero"
    elif replacement == "renormalise":
        removal = "renormalise"
    else:
        _, token = find_replacement(explainer.model, explainer.tokenizer, explainer.runner.padding, replacement)
        assert token is not None  # only deletion has none
        ordinary = torch.tensor(encoding.segments, device=ids.device) >= 0
        baseline = word_embeddings(explainer.model, ids.masked_fill(ordinary, token))
    return PatchedModel(
        model=explainer.model, inputs=batch.inputs, embeddings=embeddings, baseline=baseline, removal=removal
    )


def _candidates(live: Tensor) -> np.ndarray:
    """Indices (m,) into the flattened edges (l, t, t): live ones off the diagonal."""
    diagonal = torch.eye(live.shape[-1], dtype=torch.bool, device=live.device)
    return (live & ~diagonal).reshape(-1).nonzero()[:, 0].cpu().numpy()


def _removals(values: np.ndarray, candidates: np.ndarray, live: Tensor, levels: Sequence[int]) -> Tensor:
    """What each run removes, (1 + methods * levels * 2, l, t, t): nothing, then the top edges and all others in turn.

    `values` (methods, m) are the scores of the candidates.
    """
    count = len(candidates)
    runs = np.zeros((1 + len(values) * len(levels) * 2, live.numel()), dtype=bool)
    row = 1
    for method_values in values:
        order = candidates[np.argsort(-method_values, kind="stable")]
        for level in levels:
            top_count = masked_count(count, level)
            runs[row, order[:top_count]] = True
            runs[row + 1, order[top_count:]] = True
            row += 2
    return torch.from_numpy(runs).reshape(-1, *live.shape)


def _log_probabilities(patched: PatchedModel, removed: Tensor) -> np.ndarray:
    """Log-probabilities (r, classes) of runs with edges `removed` (r, l, t, t)."""
    size = max(1, _TOKENS_PER_PASS // removed.shape[-1])
    outputs = []
    for runs in removed.split(size):
        logits = patched.logits(runs.to(patched.embeddings.device))
        outputs.append(logits.double().log_softmax(-1).cpu().numpy())
    return np.concatenate(outputs)
