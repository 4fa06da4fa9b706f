"""Do scores stay the same when nothing that matters has changed? Harmless edits of texts, and other precisions.

    spaces         two spaces between words
    case           the other case, if the tokenizer makes the same tokens of it
    punctuation    a full stop at the end, or none if there was one
    float64, ...   the same model in another precision

An edit counts for a text if the model still predicts the same class. The scores of the words that both texts have are
compared by rank correlation. For a change of precision all words are compared.

The convention this file owns: words are compared in order, each with the same word of the other text, and the last one
is left out where only one text has it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import rankdata

from gaflow.arguments import checked, one_of
from gaflow.attribution.attribution import Attribution
from gaflow.errors import Argument, ArgumentError
from gaflow.evaluation.significance import bootstrap_means, interval
from gaflow.explainer.explainer import AnyMethod, Explainer
from gaflow.extras import need
from gaflow.methods import find_method

if TYPE_CHECKING:
    import pandas as pd

_FULL_STOPS = (".", "!", "?")
PRECISIONS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def double_spaces(text: str) -> str:
    """The text with two spaces for one."""
    return text.replace(" ", "  ")


def swap_case(text: str) -> str:
    """The text in capitals, or in small letters if it was in capitals."""
    return text.lower() if text.isupper() else text.upper()


def swap_full_stop(text: str) -> str:
    """The text with a full stop at its end, or without the one that it has."""
    stripped = text.rstrip()
    return stripped[:-1].rstrip() if stripped.endswith(_FULL_STOPS) else f"{stripped}."


EDITS: Mapping[str, Callable[[str], str]] = {
    "spaces": double_spaces,
    "case": swap_case,
    "punctuation": swap_full_stop,
}


@dataclass(frozen=True, eq=False)
class Stability:
    """How scores of words change with what should not matter.

    It is what `stability` returns:

        result = gaflow.evaluation.stability(explainer, texts, ["ig", "relevance_flow"])
        result.table()
    """

    methods: tuple[str, ...]  # (m,)
    changes: tuple[str, ...]  # (c,) edits and precisions
    correlation: np.ndarray  # (m, c, n) rank correlation of the words' scores; NaN where a text does not count
    probability: np.ndarray  # (c, n) change of the predicted class's probability; NaN where a text does not count

    @checked
    def table(self, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0) -> pd.DataFrame:
        """One row per change and method: mean rank correlation with the ends of a bootstrap interval, and texts."""
        need("pandas", "data", "tables need pandas")
        import pandas as pd

        rows = []
        for column, change in enumerate(self.changes):
            for row, method in enumerate(self.methods):
                values = self.correlation[row, column]
                finite = values[np.isfinite(values)]
                low, high = np.nan, np.nan
                if len(finite):
                    low, high = interval(bootstrap_means(finite, resamples, seed), confidence)
                entry = {
                    "change": change,
                    "method": method,
                    "correlation": finite.mean() if len(finite) else np.nan,
                    "low": low,
                    "high": high,
                    "texts": len(finite),
                }
                rows.append(entry)
        return pd.DataFrame(rows).set_index(["change", "method"])


@checked
def stability(
    explainer: Explainer,
    texts: Sequence[str],
    methods: Sequence[AnyMethod],
    *,
    edits: Mapping[str, Callable[[str], str]] | Sequence[str] = tuple(EDITS),
    precisions: Sequence[str] = ("float64", "bfloat16"),
    batch_size: int = 16,
) -> Stability:
    """Rank correlation of the scores of `texts` with those after harmless edits, and of the model in other precisions.

    `edits` are "spaces" (two for one), "case" (capitals for small letters, where the tokens stay the same) and
    "punctuation" (a full stop at the end more or less), or a dict of your own functions from a text to an edited one.
    `precisions` are names of torch's types; the model is copied for each, and is itself left as it is. A text counts
    if the model still predicts the same class.
    """
    explainer.runner.class_head("stability")
    functions = _edit_functions(edits)
    for name in precisions:
        one_of("precisions", name, tuple(PRECISIONS))
    items = list(texts)
    if not items:
        raise ArgumentError(Argument("texts"), " is empty; pass at least one text")
    parsed_methods = [find_method(method, "methods") for method in methods]
    if not parsed_methods:
        raise ArgumentError(Argument("methods"), " is empty; name at least one method")
    original = {method.name: explainer(items, method, batch_size=batch_size) for method in parsed_methods}
    changes = (*functions, *precisions)
    correlation = np.full((len(parsed_methods), len(changes), len(items)), np.nan)
    probability = np.full((len(changes), len(items)), np.nan)
    for column, change in enumerate(changes):
        if change in functions:
            changed_texts = [functions[change](text) for text in items]
            valid = _comparable(explainer, change, items, changed_texts)
            other = explainer
        else:
            changed_texts = items
            valid = list(range(len(items)))
            other = _in_precision(explainer, PRECISIONS[change])
        if not valid:
            continue
        for row, method in enumerate(parsed_methods):
            changed = other([changed_texts[index] for index in valid], method, batch_size=batch_size)
            for index, after in zip(valid, changed, strict=True):
                before = original[method.name][index]
                if before.prediction != after.prediction:
                    continue
                correlation[row, column, index] = _agreement(before, after)
                probability[column, index] = (after.probability or 0.0) - (before.probability or 0.0)
    return Stability(
        methods=tuple(method.name for method in parsed_methods),
        changes=changes,
        correlation=correlation,
        probability=probability,
    )


def _edit_functions(edits: Any) -> dict[str, Callable[[str], str]]:
    if isinstance(edits, Mapping):
        return dict(edits)
    return {name: EDITS[one_of("edits", name, tuple(EDITS))] for name in edits}


def _comparable(explainer: Explainer, change: str, texts: Sequence[str], changed: Sequence[str]) -> list[int]:
    """The texts that an edit changes, and that hold anything afterwards; of case those whose tokens stay the same."""
    valid = []
    for index, (before, after) in enumerate(zip(texts, changed, strict=True)):
        if before == after or not after.strip():
            continue
        if change == "case":
            tokens, changed_tokens = (explainer.tokenizer(text)["input_ids"] for text in (before, after))
            if tokens != changed_tokens:
                continue
        valid.append(index)
    return valid


def _in_precision(explainer: Explainer, dtype: torch.dtype) -> Explainer:
    """An explainer of a copy of the model in another precision."""
    model = copy.deepcopy(explainer.model).to(dtype)
    return Explainer(model, explainer.tokenizer, task=explainer.runner.task)


def _agreement(before: Attribution, after: Attribution) -> float:
    """Rank correlation of the words that both have; NaN if that are less than three."""
    scores = [word.score for word in before.words()]
    changed_scores = [word.score for word in after.words()]
    common = min(len(scores), len(changed_scores))
    first = np.array(scores[:common])
    second = np.array(changed_scores[:common])
    if common < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])
