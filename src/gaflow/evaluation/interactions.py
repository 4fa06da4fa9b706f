"""Do two tokens act together? True interactions of pairs of tokens by masking, and what predicts them.

Let y(S) be the log-odds of the explained class, `log p - log(1 - p)`, with all ordinary tokens masked but those of S.
With N the whole text, the interaction of tokens i and j is

    I(i, j) = y(N) - y(N without i) - y(N without j) + y(N without i and j)

It is 0 where the effects of masking i and j add up. Predictions of it:

    shared_flow      how much flow the routes of i and j share: the sum over nodes above the input of the smaller of the
                     amounts that come to the node from i and from j. A list of scores cannot say this
    second_order     `d_i (dg_i / dx_j) d_j`, made symmetric: g is the plain or the balanced gradient of y by the word
                     embeddings x, and d their difference to the embedding of the replacement
    ablation         loss of y if all attention between i and j is removed, in all layers

A prediction is judged by its rank correlation with the truth over the pairs of each text. Shared flow is never negative
and can only predict the size of an interaction, so sizes are compared as well.

The convention this file owns: interactions are symmetric (n, n) arrays over the ordinary tokens of a text, and only the
pairs above the diagonal are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from gaflow.arguments import checked, one_of, whole_number
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.arguments import encode_texts, parse_targets, softmax_head
from gaflow.evaluation.edge_faithfulness import EDGE_REPLACEMENTS, patched_model
from gaflow.evaluation.masking import Masker, find_replacement, word_embeddings
from gaflow.evaluation.ranking import CONTROL
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.evaluation.tokens import finite_numbers, ordinary_values
from gaflow.explainer.explainer import Explainer
from gaflow.extras import need
from gaflow.inputs.encoding import Encoding, Text
from gaflow.methods.balanced import forward_with
from gaflow.methods.text_random import token_generator
from gaflow.models.restore import borrow
from gaflow.progress import Progress, reporting

if TYPE_CHECKING:
    import pandas as pd

LEAST_PAIRS = 3  # of a text, for a rank correlation to mean anything
# steps of the difference quotients of gradients, relative to the differences of embeddings
_STEPS = {torch.float64: 1e-3, torch.float32: 1e-2}
_COARSE_STEP = 0.1  # for all other types
_ROWS_AT_ONCE = 64
PairScores = Mapping[str, Sequence[Any]]  # per method, for each text: an Attribution with a flow, or scores (n, n)


@dataclass(frozen=True, eq=False)
class InteractionEvaluation:
    """How well predictions of interactions agree with true ones, on the same texts.

    It is what `interactions` returns:

        result = gaflow.evaluation.interactions(explainer, texts, {"flow": attributions})
        result.table()
    """

    methods: tuple[str, ...]  # (m,)
    replacement: str
    true: tuple[np.ndarray, ...]  # per text (n, n)
    correlation: np.ndarray  # (m, texts) rank correlation; NaN where there are too few pairs, or nothing is ranked
    size_correlation: np.ndarray  # (m, texts) rank correlation of absolute values

    @checked
    def table(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per method: mean rank correlations over texts, with the ends of bootstrap intervals."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        rows = []
        for row in range(len(self.methods)):
            entry: dict[str, Any] = {}
            for name, values in (("size", self.size_correlation[row]), ("sign", self.correlation[row])):
                finite = values[np.isfinite(values)]
                low, high = np.nan, np.nan
                if len(finite):
                    low, high = interval(bootstrap_means(finite, resamples, seed), confidence)
                entry[f"{name}_correlation"] = finite.mean() if len(finite) else np.nan
                entry[f"{name}_low"] = low
                entry[f"{name}_high"] = high
                entry[f"{name}_texts"] = len(finite)
            rows.append(entry)
        table = pd.DataFrame(rows, index=pd.Index(self.methods, name="method"))
        table["replacement"] = self.replacement
        return table


@checked
def interactions(
    explainer: Explainer,
    texts: Sequence[Text],
    predictions: PairScores,
    replacement: str | int = "pad",
    *,
    target: Any = None,
    truncation: bool = False,
    seed: int = 0,
    progress: Progress = None,
) -> InteractionEvaluation:
    """Compare predicted interactions of pairs of tokens with true ones, which take n^2 / 2 forward passes a text.

    The interaction of two tokens is what masking both does to the log-odds of the class, beyond what masking each of
    them does. `predictions` has for each method a list with one entry per text: an Attribution with a flow, whose
    shared flow is the prediction, or an array (n, n) over the ordinary tokens, or (t, t) over all tokens. `replacement`
    is that of masked tokens. A control of random numbers is always included.

        attributions = explainer(texts, "relevance_flow")
        gaflow.evaluation.interactions(explainer, texts, {"shared flow": attributions}).table()
    """
    whole_number("seed", seed, 0)
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, texts, truncation)
    targets = parse_targets(head, target, None, len(encodings))
    predicted = _parse_predictions(predictions, encodings)
    predicted[CONTROL] = []
    for encoding in encodings:
        n = sum(segment >= 0 for segment in encoding.segments)
        generator = token_generator(seed, 0, list(encoding.inputs["input_ids"]))
        predicted[CONTROL].append(generator.normal(size=(n, n)))
    masker = Masker.of(explainer.model, explainer.tokenizer, encodings, replacement)
    with reporting(progress, 1, "text") as report:
        outputs = masker([_masks_of_pairs(n) for n in masker.sizes], report)
    true = []
    correlation = np.full((len(predicted), len(encodings)), np.nan)
    size_correlation = np.full((len(predicted), len(encodings)), np.nan)
    for text in range(len(encodings)):
        log_probabilities = outputs[text]
        explained = targets[text]
        if explained is None:
            explained = int(log_probabilities[0].argmax())
        truth = _interactions(_log_odds(log_probabilities, explained), int(masker.sizes[text]))
        true.append(truth)
        pairs = np.triu_indices(len(truth), 1)
        for row, items in enumerate(predicted.values()):
            correlation[row, text] = _rank_correlation(items[text][pairs], truth[pairs])
            size_correlation[row, text] = _rank_correlation(np.abs(items[text][pairs]), np.abs(truth[pairs]))
    return InteractionEvaluation(
        methods=tuple(predicted),
        replacement=masker.replacement,
        true=tuple(true),
        correlation=correlation,
        size_correlation=size_correlation,
    )


@checked
def shared_flow(attribution: Attribution) -> np.ndarray:
    """How much flow the routes of every two tokens share (t, t): flows for and against the output are added."""
    if attribution.flow is None:
        message = " has no flow; explain by a flow method with keep_flow=True"
        raise ArgumentError(Argument("attribution"), message)
    total = _shared_flow(attribution.flow.edges[0])
    if attribution.flow_against is not None:
        total = total + _shared_flow(attribution.flow_against.edges[0])
    return total


def _shared_flow(edges: Tensor) -> np.ndarray:
    """The same of one flow with edges (l, t, t), from node i of a layer down to node j of the layer below.

    What arrives at a node from below is mixed: of the flow of each edge above, the tokens have the same shares.
    """
    layers = edges.detach().cpu().double().numpy().clip(min=0.0)
    t = layers.shape[-1]
    shares = np.eye(t)  # (nodes, tokens) of the flow through a node, the share that comes from each token
    shared = np.zeros((t, t))
    for layer in layers:
        amounts = layer @ shares  # (nodes, tokens)
        through = amounts.sum(1, keepdims=True)
        shared += np.minimum(amounts[:, :, None], amounts[:, None, :]).sum(0)
        shares = np.divide(amounts, through, out=np.zeros_like(amounts), where=through > 0)
    return shared


@checked
def second_order(
    explainer: Explainer,
    text: Text,
    gradients: str = "plain",
    replacement: str | int = "pad",
    *,
    target: Any = None,
    truncation: bool = False,
) -> np.ndarray:
    """Second-order effects (t, t) of every two tokens of a text on the log-odds of a class.

    `gradients` is "plain", "balanced" or "balanced_cp". They are central differences of gradients, two
    backward passes for each token: of a model in float64 you get six digits, in float32 three.
    """
    one_of("gradients", gradients, ("plain", "balanced", "balanced_cp"))
    encoding, explained = _one_text(explainer, text, target, truncation)
    runner = explainer.runner
    batch = runner.collate([encoding])
    ids = batch.inputs["input_ids"]
    _, token = find_replacement(explainer.model, explainer.tokenizer, runner.padding, replacement)
    if token is None:
        raise ArgumentError(Argument("replacement", "delete"), " has no embedding; pass 'pad' or 'mask'")
    ordinary = torch.tensor(encoding.segments, device=ids.device) >= 0
    embeddings = word_embeddings(explainer.model, ids)
    baseline = word_embeddings(explainer.model, ids.masked_fill(ordinary, token))
    difference = (embeddings - baseline)[0]  # (t, d)
    step = _STEPS.get(difference.dtype, _COARSE_STEP)
    t = len(encoding)
    effects = torch.zeros(t, t, dtype=torch.float64)
    positions = ordinary.nonzero()[:, 0].tolist()
    for start in range(0, len(positions), _ROWS_AT_ONCE // 2):
        moved = positions[start : start + _ROWS_AT_ONCE // 2]
        directions = torch.zeros(len(moved), *difference.shape, dtype=difference.dtype, device=ids.device)
        for row, position in enumerate(moved):
            directions[row, position] = difference[position]
        points = torch.cat([embeddings + step * directions, embeddings - step * directions])
        slopes = _gradients(explainer, encoding, points, explained, gradients)
        above, below = slopes.double().split(len(moved))
        change = (above - below) / (2 * step)  # of the gradient (r, t, d), by moving one token
        effects[:, moved] = (change * difference.double()).sum(-1).T.cpu()
    symmetric = (effects + effects.T) / 2
    return symmetric.numpy()


@checked
def attention_ablation(
    explainer: Explainer,
    text: Text,
    replacement: str = "zero",
    *,
    target: Any = None,
    truncation: bool = False,
) -> np.ndarray:
    """By how much the log-odds of a class fall if all attention between two tokens is removed, for every pair (t, t).

    `replacement` says what removed edges carry, as in `edges`.
    """
    one_of("replacement", replacement, EDGE_REPLACEMENTS)
    encoding, explained = _one_text(explainer, text, target, truncation)
    patched = patched_model(explainer, encoding, replacement)
    live = patched.live_edges()
    t = len(encoding)
    ordinary = [position for position, segment in enumerate(encoding.segments) if segment >= 0]
    first, second = np.triu_indices(len(ordinary), 1)
    removed = torch.zeros(1 + len(first), *live.shape, dtype=torch.bool)
    for row, (a, b) in enumerate(zip(first, second, strict=True), 1):
        removed[row, :, ordinary[a], ordinary[b]] = True
        removed[row, :, ordinary[b], ordinary[a]] = True
    log_probabilities = []
    for runs in removed.split(_ROWS_AT_ONCE):
        logits = patched.logits(runs.to(patched.embeddings.device))
        log_probabilities.append(logits.double().log_softmax(-1).cpu().numpy())
    y = _log_odds(np.concatenate(log_probabilities), explained)
    losses = np.zeros((t, t))
    positions = np.array(ordinary)
    losses[positions[first], positions[second]] = y[0] - y[1:]
    return losses + losses.T


def _one_text(explainer: Explainer, text: Text, target: Any, truncation: bool) -> tuple[Encoding, int]:
    """The encoding of a text, and the class that is explained."""
    head = softmax_head(explainer)
    encodings = encode_texts(explainer, [text], truncation)
    (explained,) = parse_targets(head, target, None, 1)
    if explained is None:
        explained = int(explainer.runner.logits(encodings)[0].argmax())
    return encodings[0], explained


def _gradients(explainer: Explainer, encoding: Encoding, points: Tensor, target: int, kind: str) -> Tensor:
    """Gradients (r, t, d) of the log-odds by the word embeddings, at `points` (r, t, d)."""
    batch = explainer.runner.collate([encoding] * len(points))
    leaves = points.detach().requires_grad_()
    with borrow(explainer.model), torch.enable_grad():
        forward_pass = forward_with(kind, explainer.model, batch, embeddings=leaves)
        logits = forward_pass.logits
        is_other = torch.ones(logits.shape[-1], dtype=torch.bool, device=logits.device)
        is_other[target] = False
        # the gradient of log-odds by logits, as a constant: balanced gradients are those of logits
        weights = -logits.detach().double().masked_fill(~is_other, -torch.inf).softmax(-1)
        weights[:, target] = 1.0
        y = (logits * weights.to(logits.dtype)).sum()
        (slopes,) = torch.autograd.grad(y, leaves)
    return slopes


def _masks_of_pairs(n: int) -> np.ndarray:
    """Masks (1 + n + n (n - 1) / 2, n): of nothing, of each token, and of every pair."""
    first, second = np.triu_indices(n, 1)
    pairs = np.zeros((len(first), n), dtype=bool)
    rows = np.arange(len(first))
    pairs[rows, first] = True
    pairs[rows, second] = True
    return np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool), pairs])


def _interactions(y: np.ndarray, n: int) -> np.ndarray:
    """Interactions (n, n) from the outputs of `_masks_of_pairs`."""
    first, second = np.triu_indices(n, 1)
    single = y[1 : 1 + n]
    truth = np.zeros((n, n))
    truth[first, second] = y[0] - single[first] - single[second] + y[1 + n :]
    return truth + truth.T


def _log_odds(log_probabilities: np.ndarray, target: int) -> np.ndarray:
    """Log-odds (r,) of a class from log-probabilities (r, classes)."""
    others = np.delete(log_probabilities, target, axis=1)
    return log_probabilities[:, target] - np.logaddexp.reduce(others, axis=1)


def _parse_predictions(predictions: PairScores, encodings: Sequence[Encoding]) -> dict[str, list[np.ndarray]]:
    """Predictions (n, n) for the ordinary tokens of every text, by method."""
    if not predictions:
        raise ArgumentError(Argument("predictions"), " is empty; pass the predictions of at least one method")
    by_method: dict[str, list[np.ndarray]] = {}
    for name, items in predictions.items():
        if name == CONTROL:
            raise ArgumentError(Argument("predictions"), f" has the name {CONTROL!r}, which is that of the control")
        if len(items) != len(encodings):
            message = f"[{name!r}] has {len(items)} entries but there are {len(encodings)} texts"
            raise ArgumentError(Argument("predictions"), message)
        by_method[str(name)] = []
        for index, (item, encoding) in enumerate(zip(items, encodings, strict=True)):
            by_method[str(name)].append(_pair_scores(item, encoding, f"[{name!r}][{index}]"))
    return by_method


def _pair_scores(item: Any, encoding: Encoding, entry: str) -> np.ndarray:
    """The prediction (n, n) for one text; `entry` is the place in `predictions` that errors name."""
    if hasattr(item, "certificate"):  # an Attribution
        item = shared_flow(item)
    values = finite_numbers(item)
    if values is None or values.ndim != 2 or len(values) != values.shape[1]:
        message = f"{entry} must be an Attribution with a flow, or finite numbers, a row and a column for each token"
        raise ArgumentError(Argument("predictions"), message)
    ordinary = np.array(encoding.segments) >= 0
    rows = ordinary_values(values, ordinary, "predictions", entry, "an Attribution")
    return ordinary_values(rows.T, ordinary, "predictions", entry, "an Attribution").T


def _rank_correlation(predicted: np.ndarray, true: np.ndarray) -> float:
    """Spearman's rank correlation; NaN for too few pairs, or where all are equal."""
    if len(true) < LEAST_PAIRS or np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(predicted), rankdata(true))[0, 1])
