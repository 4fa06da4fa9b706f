"""Perturbation methods, by Captum: integrated gradients, KernelSHAP and LIME over the tokens of a text.

All three see the model as `y(p)`, where `p_i` is the inclusion weight of ordinary token `i` (`token_removal.py`):

- integrated gradients (Sundararajan et al. 2017): `∫ dy/dp_i (a, ..., a) da` over [0, 1] by Gauss-Legendre
- KernelSHAP (Lundberg and Lee 2017): Shapley values of `y` over the tokens, as a weighted linear regression on drawn
  0/1 vectors `p`; on all of them, hence exactly, when there are no more than `samples`
- LIME (Ribeiro et al. 2016): ridge regression on 0/1 vectors drawn uniformly, with weights
  `exp(-d² / (2 width²))` where `d` is the cosine distance of `p` to the complete text

Scores of the first two sum to `y(1) - y(0)`; the diagnostics hold the error of that sum. Special tokens are never
removed: their score is 0.

The convention this file owns: each text is explained by itself, with its own random numbers (`text_random.py`), so a
batch gives the same as each text alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Any, ClassVar

import torch
from torch import Tensor

from gaflow.arguments import optional_whole_number, positive_number, whole_number
from gaflow.extras import need
from gaflow.inputs.encoding import Encoding
from gaflow.methods.base import Diagnostics, MethodInfo, NamedSettings, Scores
from gaflow.methods.media_removal import removal_for
from gaflow.methods.removal import Removal, Replacement, check_replacement
from gaflow.methods.text_random import TextGenerator, token_ids
from gaflow.models.tracing import Trace
from gaflow.progress import Report, within

_LARGEST_ERROR = 0.01  # of all scores by which integrated gradients may miss their sum without a warning
_END_WEIGHT = 1e6  # of the complete and of the empty text in KernelSHAP, in theory infinite: Captum's own

_Output = Callable[[Tensor], Tensor]  # `y` (s,) for inclusion weights (s, m)
_TextScores = tuple[Tensor, Diagnostics]  # scores (m,) of the ordinary tokens of one text


class _Perturbation(NamedSettings, ABC):
    """What the three methods have in common: they explain one text after the other."""

    reference: ClassVar[str]
    replacement: Replacement
    batch_size: int | None

    def __post_init__(self) -> None:
        check_replacement(self.replacement)
        optional_whole_number("batch_size", self.batch_size)

    @property
    def info(self) -> MethodInfo:
        """What its scores mean and cost. Captum imports scikit-learn only once everything is computed."""
        return MethodInfo(
            family="perturbation",
            signed=True,
            class_specific=True,
            passes=self._passes,
            reference=self.reference,
            libraries=("captum", "sklearn"),
            extra="baselines",
        )

    @property
    @abstractmethod
    def _passes(self) -> str:
        """Of the model, for one text."""

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; the diagnostics say what replaced the tokens, and how exact the scores are."""
        purpose = "ig, kernel_shap and lime need Captum and scikit-learn"
        need("sklearn.linear_model", "baselines", purpose)
        need("captum.attr", "baselines", purpose)
        traced_model = trace.require_model()
        encodings = traced_model.batch.encodings
        values = torch.zeros(trace.mask.shape, dtype=torch.float64)
        diagnostics: list[Diagnostics] = []
        share = 1 / len(encodings)  # of the work, for one text
        for item, encoding in enumerate(encodings):
            removal = removal_for(traced_model, item, self.replacement, self.batch_size)
            report = within(traced_model.report, item * share, share)
            diagnostics.append({"replacement": removal.replacement})
            if len(removal):
                scores, more = self._score(removal, _seeds(encoding), report)
                values[item, removal.positions.cpu()] = scores.detach().cpu().double()
                diagnostics[item].update(more)
        return Scores(values, diagnostics=tuple(diagnostics))

    @abstractmethod
    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        """The scores (m,) of the ordinary tokens of one text; the integers seed its random numbers."""


@dataclass(frozen=True)
class IntegratedGradients(_Perturbation):
    """Integrated gradients along the word embeddings, from a baseline to the text itself."""

    steps: int = 50  # points of the Gauss-Legendre rule
    replacement: Replacement = None  # baseline: "pad", "mask", "unk", a token id; None: the first there is
    batch_size: int | None = None  # points in one pass; None: as many as fit, fewer for long texts

    base_name = "ig"
    reference = "Sundararajan, Taly and Yan 2017, ICML"

    def __post_init__(self) -> None:
        whole_number("steps", self.steps)
        super().__post_init__()

    @property
    def _passes(self) -> str:
        return f"{self.steps + 2} forward, {self.steps} backward"

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        from captum.attr import IntegratedGradients as CaptumIntegratedGradients

        done = 0

        def output(inclusion: Tensor) -> Tensor:
            nonlocal done
            y = removal(inclusion)
            done += len(inclusion)
            report(min(1.0, done / self.steps))
            return y

        scores = CaptumIntegratedGradients(output).attribute(
            removal.uniform_inclusion(1.0),
            removal.uniform_inclusion(0.0),
            n_steps=self.steps,
            method="gausslegendre",
            internal_batch_size=min(removal.batch_size, self.steps),
        )
        diagnostics = _completeness(removal, scores)
        error = abs(float(diagnostics["convergence_delta"]))
        if error > _LARGEST_ERROR * float(scores.abs().sum()):
            diagnostics["warning"] = f"the integral is off by {error:.2g}; take more than {self.steps} steps"
        return scores[0], diagnostics


class _Sampling(_Perturbation):
    """What KernelSHAP and LIME have in common: a regression of `y` on 0/1 vectors, done by Captum."""

    samples: int
    seed: int

    def __post_init__(self) -> None:
        whole_number("samples", self.samples, least=2)
        whole_number("seed", self.seed, least=0)
        super().__post_init__()

    @property
    def _passes(self) -> str:
        return f"{self.samples} forward"

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        tokens = len(removal)
        generator = TextGenerator(self.seed, seeds)

        def output(inclusion: Tensor) -> Tensor:
            """`y` of all samples at once, in as many passes as it needs. The model has the global random state."""
            with generator.suspended():
                return removal.outputs(inclusion, report).cpu()

        regression, samples = self._regression(output, tokens)
        with generator:
            scores = regression.attribute(
                torch.ones(1, tokens), torch.zeros(1, tokens), n_samples=samples, perturbations_per_eval=samples
            )[0]
        diagnostics: Diagnostics = {}
        if samples <= tokens:  # more unknowns than equations
            diagnostics["warning"] = f"{samples} samples are too few for {tokens} tokens; take more than {tokens}"
        return scores, diagnostics

    @abstractmethod
    def _regression(self, output: _Output, tokens: int) -> tuple[Any, int]:
        """Captum's method for so many tokens, and the vectors that it draws."""


@dataclass(frozen=True)
class KernelShap(_Sampling):
    """KernelSHAP: Shapley values of the tokens, estimated from texts with some tokens removed."""

    samples: int = 500  # texts drawn; a text with no more subsets of tokens than this gets exact values
    seed: int = 0  # other seeds draw other texts
    replacement: Replacement = None  # baseline: "pad", "mask", "unk", a token id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts

    base_name = "kernel_shap"
    reference = "Lundberg and Lee 2017, NeurIPS"

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        scores, diagnostics = super()._score(removal, seeds, report)
        return scores, _completeness(removal, scores) | diagnostics

    def _regression(self, output: _Output, tokens: int) -> tuple[Any, int]:
        from captum import attr
        from captum._utils.models.linear_model import SkLearnLinearRegression

        subsets = 2**tokens
        if subsets > self.samples:
            return attr.KernelShap(output), self.samples
        return attr.Lime(output, SkLearnLinearRegression(), _shapley_kernel, _all_subsets), subsets


@dataclass(frozen=True)
class Lime(_Sampling):
    """LIME: a ridge regression of the output on the tokens that are kept, near the complete text."""

    samples: int = 500  # texts drawn, each token kept or removed with equal chance
    seed: int = 0  # other seeds draw other texts
    width: float = 1.0  # of the kernel that gives texts nearer to the complete one more weight
    alpha: float = 1.0  # strength of the ridge penalty
    replacement: Replacement = None  # baseline: "pad", "mask", "unk", a token id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts

    base_name = "lime"
    reference = "Ribeiro, Singh and Guestrin 2016, KDD"

    def __post_init__(self) -> None:
        positive_number("width", self.width)
        positive_number("alpha", self.alpha)
        super().__post_init__()

    def _regression(self, output: _Output, tokens: int) -> tuple[Any, int]:
        from captum import attr
        from captum._utils.models.linear_model import SkLearnRidge
        from captum.attr._core.lime import get_exp_kernel_similarity_function

        kernel = get_exp_kernel_similarity_function("cosine", self.width)
        return attr.Lime(output, SkLearnRidge(alpha=self.alpha), kernel), self.samples


def _seeds(encoding: Encoding) -> list[int]:
    """Integers that seed the random numbers of an input and depend on nothing else: token ids, or a digest of media."""
    if encoding.media is None:
        return token_ids(encoding)
    return list(blake2b(encoding.media.tensor.numpy().tobytes(), digest_size=16).digest())


def _all_subsets(_complete: Tensor, num_interp_features: int, **_: Any) -> Iterator[Tensor]:
    """Every 0/1 vector (1, m) once, with the signature that Captum calls."""
    for subset in product((0, 1), repeat=num_interp_features):
        yield torch.tensor([subset])


def _shapley_kernel(_complete: Tensor, _changed: Tensor, subset: Tensor, **_: Any) -> float:
    """The weight under which linear regression gives Shapley values, with the signature that Captum calls."""
    m = subset.shape[1]
    k = int(subset.sum())
    if k in (0, m):
        return _END_WEIGHT
    return (m - 1) / (math.comb(m, k) * k * (m - k))


def _completeness(removal: Removal, scores: Tensor) -> Diagnostics:
    """The output of the baseline, and by how much the sum of scores misses the gain of the text over it."""
    ends = torch.cat([removal.uniform_inclusion(0.0), removal.uniform_inclusion(1.0)])
    baseline_output, output = removal.outputs(ends).cpu().double().tolist()
    delta = float(scores.detach().double().sum()) - (output - baseline_output)
    return {"baseline_output": baseline_output, "convergence_delta": delta}
