"""Perturbation methods, by Captum: integrated gradients, KernelSHAP and LIME over the tokens of a text.

All three see the model as `y(p)`, where `p_i` says how much ordinary token `i` is there (`presence.py`):

- integrated gradients (Sundararajan et al. 2017): `∫ dy/dp_i (a, ..., a) da` over [0, 1] by Gauss-Legendre
- KernelSHAP (Lundberg and Lee 2017): Shapley values of `y` over the tokens, as a weighted linear regression on drawn
  0/1 vectors `p`; on all of them, hence exactly, when there are no more than `samples`
- LIME (Ribeiro et al. 2016): ridge regression on 0/1 vectors drawn uniformly, with weights
  `exp(-d² / (2 width²))` where `d` is the cosine distance of `p` to the whole text

Scores of the first two sum to `y(1) - y(0)`; `facts` say how nearly. Special tokens are never taken away: their score
is 0.

The convention this file owns: each text is explained by itself, with its own random numbers (`draws.py`), so that a
batch gives what each text alone gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import MissingExtraError
from gaflow.inputs.encoding import Encoding
from gaflow.methods.base import MethodInfo, Scores, full_name
from gaflow.methods.media_removal import MediaRemoval, removal_for
from gaflow.methods.text_random import TextGenerator
from gaflow.methods.token_removal import TokenRemoval, check_batch_size, check_replacement
from gaflow.models.tracing import Trace

__all__ = ["IntegratedGradients", "KernelShap", "Lime"]

_ERROR = 0.01  # of all scores by which integrated gradients may miss their sum without a warning
_PINNED = 1e6  # weight of the whole and of the empty text in KernelSHAP, in theory infinite: Captum's own

_LIBRARIES = ("captum", "sklearn")  # Captum asks for the second only once everything is computed

Facts = dict[str, float | str]
Tell = Callable[[float], object]
Output = Callable[[Tensor], Tensor]  # presence (s, m) -> y (s,)


@dataclass(frozen=True)
class IntegratedGradients:
    """Integrated gradients along the word embeddings, from a text of absent tokens to the text itself."""

    steps: int = 50  # points of the Gauss-Legendre rule
    replacement: str | int | None = None  # absent tokens: "pad", "mask", "unk", an id; None: the first there is
    batch_size: int | None = None  # points in one pass; None: as many as fit, fewer for long texts

    def __post_init__(self) -> None:
        _check_count("steps", self.steps, 1)
        check_replacement(self.replacement)
        check_batch_size(self.batch_size)

    @property
    def info(self) -> MethodInfo:
        """What its scores mean and cost."""
        passes = f"{self.steps + 2} forward, {self.steps} backward"
        reference = "Sundararajan, Taly and Yan 2017, ICML"
        return MethodInfo("perturbation", True, True, passes, reference, _LIBRARIES, "baselines")

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("ig", self, leave_out=("batch_size",))

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; `facts` hold the convergence delta."""
        return _each_text(trace, self.replacement, self.batch_size, self._score)

    def _score(self, text: TokenRemoval | MediaRemoval, ids: list[int], tell: Tell) -> tuple[Tensor, Facts]:
        captum = _captum()
        done = 0

        def output(presence: Tensor) -> Tensor:
            nonlocal done
            found = text(presence)
            done += len(presence)
            tell(min(1.0, done / self.steps))
            return found

        scores = captum.IntegratedGradients(output).attribute(
            text.vector(1.0),
            text.vector(0.0),
            n_steps=self.steps,
            method="gausslegendre",
            internal_batch_size=min(text.rows, self.steps),
        )
        facts = _completeness(text, scores)
        error = abs(float(facts["convergence_delta"]))
        if error > _ERROR * float(scores.abs().sum()):
            facts["warning"] = f"the integral is off by {error:.2g}; take more than {self.steps} steps"
        return scores[0], facts


@dataclass(frozen=True)
class KernelShap:
    """KernelSHAP: Shapley values of the tokens, estimated from texts of which some tokens are absent."""

    samples: int = 500  # texts drawn; a text with no more subsets of tokens than this gets exact values
    seed: int = 0  # other seeds draw others
    replacement: str | int | None = None  # absent tokens: "pad", "mask", "unk", an id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts

    def __post_init__(self) -> None:
        _check_count("samples", self.samples, 2)
        _check_count("seed", self.seed, 0)
        check_replacement(self.replacement)
        check_batch_size(self.batch_size)

    @property
    def info(self) -> MethodInfo:
        """What its scores mean and cost."""
        reference = "Lundberg and Lee 2017, NeurIPS"
        return MethodInfo("perturbation", True, True, f"{self.samples} forward", reference, _LIBRARIES, "baselines")

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("kernel_shap", self, leave_out=("batch_size",))

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch; `facts` hold by how much their sum misses `y(1) - y(0)`."""
        return _each_text(trace, self.replacement, self.batch_size, self._score)

    def _score(self, text: TokenRemoval | MediaRemoval, ids: list[int], tell: Tell) -> tuple[Tensor, Facts]:
        captum, draws = _captum(), TextGenerator(self.seed, ids)
        if len(text) < self.samples.bit_length():  # 2^m <= samples
            regression = _linear_models().SkLearnLinearRegression()
            scores = _fit(
                lambda output: captum.Lime(output, regression, _shapley_kernel, _all_subsets),
                text,
                2 ** len(text),
                draws,
                tell,
            )
            return scores, _completeness(text, scores)
        scores = _fit(captum.KernelShap, text, self.samples, draws, tell)
        return scores, _completeness(text, scores) | _doubt(self.samples, len(text))


@dataclass(frozen=True)
class Lime:
    """LIME: a ridge regression of the output on which tokens are there, near the whole text."""

    samples: int = 500  # texts drawn, each token there or absent with equal chance
    seed: int = 0  # other seeds draw others
    width: float = 1.0  # of the kernel that gives texts nearer to the whole more weight
    alpha: float = 1.0  # strength of the ridge penalty
    replacement: str | int | None = None  # absent tokens: "pad", "mask", "unk", an id; None: the first there is
    batch_size: int | None = None  # texts in one pass; None: as many as fit, fewer for long texts

    def __post_init__(self) -> None:
        _check_count("samples", self.samples, 2)
        _check_count("seed", self.seed, 0)
        _check_positive("width", self.width)
        _check_positive("alpha", self.alpha)
        check_replacement(self.replacement)
        check_batch_size(self.batch_size)

    @property
    def info(self) -> MethodInfo:
        """What its scores mean and cost."""
        reference = "Ribeiro, Singh and Guestrin 2016, KDD"
        return MethodInfo("perturbation", True, True, f"{self.samples} forward", reference, _LIBRARIES, "baselines")

    @property
    def name(self) -> str:
        """Name and settings that are not the defaults."""
        return full_name("lime", self, leave_out=("batch_size",))

    def __call__(self, trace: Trace) -> Scores:
        """Scores of a traced batch."""
        return _each_text(trace, self.replacement, self.batch_size, self._score)

    def _score(self, text: TokenRemoval | MediaRemoval, ids: list[int], tell: Tell) -> tuple[Tensor, Facts]:
        from captum.attr._core.lime import get_exp_kernel_similarity_function

        kernel = get_exp_kernel_similarity_function("cosine", self.width)
        regression = _linear_models().SkLearnRidge(alpha=self.alpha)
        captum, draws = _captum(), TextGenerator(self.seed, ids)
        scores = _fit(lambda output: captum.Lime(output, regression, kernel), text, self.samples, draws, tell)
        return scores, _doubt(self.samples, len(text))


Score = Callable[[TokenRemoval | MediaRemoval, list[int], Tell], tuple[Tensor, Facts]]


def _each_text(trace: Trace, replacement: str | int | None, batch_size: int | None, score: Score) -> Scores:
    """Scores of a batch from the scores (m,) of the ordinary tokens of each text."""
    _captum()
    traced_model = trace.require_model()
    b = len(traced_model.batch.encodings)
    values = torch.zeros(trace.mask.shape, dtype=torch.float64)
    facts: list[Facts] = []
    for item, encoding in enumerate(traced_model.batch.encodings):
        text = removal_for(traced_model, item, replacement, batch_size)
        known: Facts = {"replacement": text.replacement}
        if len(text):
            ids = _ids(encoding)
            found, more = score(text, ids, _part(traced_model.report, item, b))
            values[item, text.places.cpu()] = found.detach().cpu().double()
            known |= more
        facts.append(known)
    return Scores(values, diagnostics=tuple(facts))


def _ids(encoding: Encoding) -> list[int]:
    """What decides the random numbers of an input: the input alone."""
    if encoding.media is None:
        return [int(token) for token in encoding.inputs["input_ids"]]
    return list(blake2b(encoding.media.tensor.numpy().tobytes(), digest_size=16).digest())


def _part(report: Tell, item: int, count: int) -> Tell:
    """What part of a text is done, told as the part of the whole batch."""
    return lambda part: report((item + part) / count)


def _fit(
    method: Callable[[Output], Any], text: TokenRemoval | MediaRemoval, samples: int, draws: TextGenerator, tell: Tell
) -> Tensor:
    """The coefficients (m,) that a Captum method finds for `y` on `samples` 0/1 vectors."""

    def output(presence: Tensor) -> Tensor:
        with draws.suspended():
            return text.values(presence, tell).cpu()

    whole, nothing = torch.ones(1, len(text)), torch.zeros(1, len(text))
    with draws:  # `output` gets all samples at once, and takes as many passes as it needs
        return method(output).attribute(whole, nothing, n_samples=samples, perturbations_per_eval=samples)[0]


def _all_subsets(_whole: Tensor, num_interp_features: int, **_: Any) -> Iterator[Tensor]:
    """Every 0/1 vector (1, m) once, as Captum asks for them."""
    for subset in product((0, 1), repeat=num_interp_features):
        yield torch.tensor([subset])


def _shapley_kernel(_whole: Tensor, _changed: Tensor, subset: Tensor, **_: Any) -> float:
    """The weight under which linear regression gives Shapley values, as Captum asks for it."""
    m, k = subset.shape[1], int(subset.sum())
    return _PINNED if k in (0, m) else (m - 1) / (math.comb(m, k) * k * (m - k))


def _completeness(text: TokenRemoval | MediaRemoval, scores: Tensor) -> Facts:
    """What the scores should sum to, and by how much they miss it."""
    nothing, whole = text.values(torch.cat([text.vector(0.0), text.vector(1.0)])).cpu().double().tolist()
    delta = float(scores.detach().double().sum()) - (whole - nothing)
    return {"baseline_output": nothing, "convergence_delta": delta}


def _doubt(samples: int, tokens: int) -> Facts:
    """A word of warning where the regression has more unknowns than equations."""
    if samples > tokens:
        return {}
    return {"warning": f"{samples} samples are too few for {tokens} tokens; take more than {tokens}"}


def _captum() -> Any:
    try:
        import captum.attr
        import sklearn.linear_model  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"ig, kernel_shap and lime need Captum and scikit-learn ({error}); run: pip install 'gaflow[baselines]'"
        ) from error
    return captum.attr


def _linear_models() -> Any:
    import captum._utils.models.linear_model

    return captum._utils.models.linear_model


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, not {value!r}")


def _check_positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0, not {value!r}")
