"""Perturbation methods: integrated gradients (by Captum), KernelSHAP, LIME and occlusion over the tokens of a text.

All of them see the model as `y(p)`, where `p_i` is the inclusion weight of ordinary token `i` (`token_removal.py`):

- integrated gradients (Sundararajan et al. 2017): `∫ dy/dp_i (a, ..., a) da` over [0, 1] by Gauss-Legendre
- KernelSHAP (Lundberg and Lee 2017): Shapley values of `y` over the tokens, as a weighted linear regression on drawn
  0/1 vectors `p`; on all of them, hence exactly, when there are no more than `samples`
- LIME (Ribeiro et al. 2016): ridge regression on 0/1 vectors drawn uniformly, with weights
  `exp(-d² / (2 width²))` where `d` is the cosine distance of `p` to the complete text
- occlusion (Zeiler and Fergus 2014; Li et al. 2016): `y(1) - y(1 - e_i)`, what is lost without token `i` alone

Scores of the first two sum to `y(1) - y(0)`; the diagnostics hold the error of that sum. Special tokens are never
removed: their score is 0.

The convention this file owns: each text is explained by itself, with its own random numbers (`text_random.py`), so a
batch gives the same as each text alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from gaflow.arguments import boolean, optional_whole_number, positive_number, whole_number
from gaflow.extras import need
from gaflow.inputs.encoding import Encoding
from gaflow.methods.base import Diagnostics, MethodInfo, NamedSettings, Scores
from gaflow.methods.media_removal import removal_for
from gaflow.methods.removal import Removal, Replacement, check_replacement
from gaflow.methods.text_random import token_ids, torch_generator
from gaflow.models.tracing import Trace
from gaflow.progress import Report, within

if TYPE_CHECKING:
    from sklearn.linear_model import LinearRegression, Ridge

_LARGEST_ERROR = 0.01  # of all scores by which integrated gradients may miss their sum without a warning
_SHAP_SAMPLES = 2048  # of any text, and 2 more for each of its tokens: SHAP's own
_END_WEIGHT = 1e6  # of the complete and of the empty text in KernelSHAP, in theory infinite: Captum's own

_TextScores = tuple[Tensor, Diagnostics]  # scores (m,) of the ordinary tokens of one text


class _Perturbation(NamedSettings, ABC):
    """What these methods have in common: they explain one text after the other."""

    head_means = ()

    reference: ClassVar[str]
    library: ClassVar[str] = ""  # the module that it is computed with; none if empty
    replacement: Replacement
    batch_size: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_replacement(self.replacement)
        optional_whole_number("batch_size", self.batch_size)

    @property
    def info(self) -> MethodInfo:
        """What its scores mean and cost."""
        return MethodInfo(
            family="perturbation",
            signed=True,
            class_specific=True,
            passes=self._passes,
            reference=self.reference,
            libraries=(self.library.partition(".")[0],) if self.library else (),
            extra="baselines" if self.library else "",
        )

    @property
    @abstractmethod
    def _passes(self) -> str:
        """Of the model, for one text."""

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; the diagnostics say what replaced the tokens, and how exact the scores are."""
        if self.library:
            need(self.library, "baselines", f"{self.base_name} needs {self.library}")
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
    library = "captum.attr"
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
    """What KernelSHAP and LIME have in common: a weighted regression of `y` on 0/1 vectors, by scikit-learn."""

    library = "sklearn.linear_model"
    seed: int

    def __post_init__(self) -> None:
        whole_number("seed", self.seed, least=0)
        super().__post_init__()

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        tokens = len(removal)
        subsets, weights = self._draw(tokens, torch_generator(self.seed, seeds))
        outputs = removal.outputs(subsets, report).cpu().float()
        model = self._regression().fit(subsets.numpy(), outputs.numpy(), weights.numpy())
        diagnostics: Diagnostics = {}
        if len(subsets) <= tokens:  # more unknowns than equations
            diagnostics["warning"] = f"{len(subsets)} samples are too few for {tokens} tokens; take more than {tokens}"
        return torch.from_numpy(model.coef_), diagnostics

    @abstractmethod
    def _draw(self, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Vectors (s, m) of 0 and 1, and the weight (s,) of each in the regression."""

    @abstractmethod
    def _regression(self) -> LinearRegression | Ridge:
        """The regression, not fitted yet."""


@dataclass(frozen=True)
class KernelShap(_Sampling):
    """KernelSHAP: Shapley values of the tokens, estimated from texts with some tokens removed."""

    samples: int | None = 500  # texts drawn, all if there are no more; None: 2048 and 2 per token, as in SHAP
    seed: int = 0  # other seeds draw other texts
    replacement: Replacement = None  # baseline: "pad", "mask", "unk", a token id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts
    paired: bool = False  # draw texts in pairs, each token in one of the two: less variance for as many samples

    base_name = "kernel_shap"
    reference = "Lundberg and Lee 2017, NeurIPS"

    def __post_init__(self) -> None:
        optional_whole_number("samples", self.samples, least=2)
        boolean("paired", self.paired)
        super().__post_init__()

    @property
    def _passes(self) -> str:
        if self.samples is None:
            return f"{_SHAP_SAMPLES} forward, 2 more per token"
        return f"{self.samples} forward"

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        scores, diagnostics = super()._score(removal, seeds, report)
        return scores, _completeness(removal, scores) | diagnostics

    def _draw(self, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        samples = 2 * tokens + _SHAP_SAMPLES if self.samples is None else self.samples
        if 2**tokens <= samples:
            subsets = _all_subsets(tokens)
            return subsets, _shapley_kernel(subsets)
        subsets = _subsets_by_shapley_kernel(tokens, samples, generator, self.paired)
        return subsets, torch.where(_is_end(subsets), _END_WEIGHT, 1.0)

    def _regression(self) -> LinearRegression:
        from sklearn.linear_model import LinearRegression

        return LinearRegression()


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
        whole_number("samples", self.samples, least=2)
        positive_number("width", self.width)
        positive_number("alpha", self.alpha)
        super().__post_init__()

    @property
    def _passes(self) -> str:
        return f"{self.samples} forward"

    def _draw(self, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        even = torch.full((self.samples, tokens), 0.5)
        subsets = torch.bernoulli(even, generator=generator)
        distances = 1 - cosine_similarity(subsets, torch.ones(1, tokens))
        return subsets, torch.exp(-(distances**2) / (2 * self.width**2))

    def _regression(self) -> Ridge:
        from sklearn.linear_model import Ridge

        return Ridge(alpha=self.alpha)


@dataclass(frozen=True)
class Occlusion(_Perturbation):
    """Occlusion, leave-one-out: how much the output falls when one token is removed."""

    replacement: Replacement = None  # baseline: "pad", "mask", "unk", a token id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts

    base_name = "occlusion"
    reference = "Li, Monroe and Jurafsky 2016, arXiv:1612.08220"

    @property
    def _passes(self) -> str:
        return "1 forward per token"

    def _score(self, removal: Removal, seeds: list[int], report: Report) -> _TextScores:
        complete = removal.uniform_inclusion(1.0)
        without_one = complete - torch.eye(len(removal)).to(complete)
        output, *outputs = removal.outputs(torch.cat([complete, without_one]), report).unbind()
        return output - torch.stack(outputs), {}


def _seeds(encoding: Encoding) -> list[int]:
    """Integers that seed the random numbers of an input and depend on nothing else: token ids, or a digest of media."""
    if encoding.media is None:
        return token_ids(encoding)
    return list(blake2b(encoding.media.tensor.numpy().tobytes(), digest_size=16).digest())


def _all_subsets(tokens: int) -> Tensor:
    """Every 0/1 vector once, (2^m, m)."""
    numbers = torch.arange(2**tokens)[:, None]
    digits = torch.arange(tokens - 1, -1, -1)
    return (numbers >> digits & 1).float()


def _subsets_by_shapley_kernel(tokens: int, samples: int, generator: torch.Generator, paired: bool) -> Tensor:
    """The complete text, the empty one, and vectors drawn by the Shapley kernel, in pairs or one by one, (s, m)."""
    sizes = torch.arange(tokens)
    chances = 1 / (sizes * (tokens - sizes))
    chances[0] = 0
    subsets = [torch.ones(tokens), torch.zeros(tokens)]
    while len(subsets) < samples:
        size = int(torch.multinomial(chances, 1, generator=generator))
        values = torch.randn(1, tokens, generator=generator)[0]
        threshold = values.kthvalue(tokens - size).values
        subset = (values > threshold).float()
        subsets.append(subset)
        if paired:
            subsets.append(1 - subset)
    return torch.stack(subsets[:samples])


def _is_end(subsets: Tensor) -> Tensor:
    """Whether each vector (s, m) is the complete or the empty text."""
    return (subsets == subsets[:, :1]).all(1)


def _shapley_kernel(subsets: Tensor) -> Tensor:
    """The weights (s,) under which linear regression on all vectors (s, m) gives Shapley values."""
    m = subsets.shape[1]
    weights = []
    for size in subsets.sum(1).int().tolist():
        if size in (0, m):
            weights.append(_END_WEIGHT)
            continue
        count = math.comb(m, size)  # of subsets of this size
        weights.append((m - 1) / (count * size * (m - size)))
    return torch.tensor(weights)


def _completeness(removal: Removal, scores: Tensor) -> Diagnostics:
    """The output of the baseline, and by how much the sum of scores misses the gain of the text over it."""
    ends = torch.cat([removal.uniform_inclusion(0.0), removal.uniform_inclusion(1.0)])
    baseline_output, output = removal.outputs(ends).cpu().double().tolist()
    delta = float(scores.detach().double().sum()) - (output - baseline_output)
    return {"baseline_output": baseline_output, "convergence_delta": delta}
