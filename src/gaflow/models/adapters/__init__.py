"""How the attention of each family of models becomes the layers of a network: the one place that names families.

Most models need nothing: they hand out one matrix (b, h, t, t) for each layer, and `OWN` takes it. The others get an
adapter: a function that finds the parts of attention as the model used them and says where they lie (`seen.py`).
`SOFTMAXES` serves models that nobody has written one for: it takes the softmaxes of the pass if there is exactly one
of the right shape for each layer.

The convention this file owns: a model whose tokens are mixed by anything but softmax attention is refused and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gaflow.errors import unsupported
from gaflow.models.adapters.full_attention import encoder, encoder_softmaxes, full_attention, own, softmaxes
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass, watch
from gaflow.models.adapters.pooled_text import canine, funnel, perceiver
from gaflow.models.adapters.sparse_text import big_bird, longformer
from gaflow.models.adapters.vision import hiera, levit, reduced, swin

__all__ = [
    "ADAPTERS",
    "OWN",
    "REFUSED",
    "SOFTMAXES",
    "Adapter",
    "AttentionLayer",
    "ObservedPass",
    "find_adapter",
    "runs_alone",
    "watch",
]


@dataclass(frozen=True)
class Adapter:
    """Where the layers of a family come from."""

    name: str  # in traces, in `gaflow info` and in the table of models; "" for what the model hands out
    read: Callable[[ObservedPass], Sequence[AttentionLayer]]
    watches: bool = True  # whether `read` needs the softmaxes of the pass
    alone: bool = False  # padding changes the answer: only texts of one length may run together
    aligned: bool = True  # whether the hidden states that the model hands out are those of these layers

    def hidden(self, outputs: Any) -> tuple[Tensor, ...]:
        """The hidden states of the layers, as far as the model hands them out."""
        if not self.aligned:
            return ()
        return tuple(getattr(outputs, "encoder_hidden_states", None) or getattr(outputs, "hidden_states", None) or ())


OWN = Adapter("", own, watches=False)
SOFTMAXES = Adapter("softmaxes", softmaxes)
_ENCODER = Adapter("encoder", encoder, watches=False)
_GEMMA = Adapter(
    "encoder", encoder_softmaxes, alone=True, aligned=False
)  # its head reads the place after the last, if there is one
_SWIN = Adapter("shifted windows", swin, aligned=False)
_REDUCED = Adapter("reduced keys", reduced, aligned=False)
_BIG_BIRD = Adapter("block-sparse attention", big_bird, alone=True)  # the last block is special, padding or not
_LONGFORMER = Adapter("windows and global tokens", longformer)

ADAPTERS: dict[str, Adapter] = {  # model type -> adapter
    "big_bird": _BIG_BIRD,
    "bigbird_pegasus": _BIG_BIRD,
    "canine": Adapter("characters and molecules", canine, alone=True, aligned=False),
    "convbert": Adapter("", own, watches=False, alone=True),  # its convolutions read padding
    "cvt": _REDUCED,
    "donut-swin": _SWIN,
    "funnel": Adapter("pooled layers", funnel, alone=True, aligned=False),
    "hiera": Adapter("mask units", hiera, aligned=False),
    "led": _LONGFORMER,
    "levit": Adapter("subsampled layers", levit, aligned=False),
    "longformer": _LONGFORMER,
    "mobilebert": Adapter("", own, watches=False, alone=True),  # every token reads its neighbours' embeddings
    "nystromformer": Adapter("", full_attention, watches=False, alone=True),  # likewise
    "perceiver": Adapter("latents", perceiver, aligned=False),
    "pvt": _REDUCED,
    "pvt_v2": _REDUCED,
    "segformer": _REDUCED,
    "squeezebert": SOFTMAXES,
    "swin": _SWIN,
    "swinv2": _SWIN,
    "t5gemma": _GEMMA,
    "t5gemma2": _GEMMA,
    "wavlm": SOFTMAXES,
    "xlnet": Adapter("softmaxes", softmaxes, alone=True),  # its head reads the last place, padding or not
}

_NO_ATTENTION = "it has no attention"
_CONVOLUTIONS = "it is made of convolutions and has no attention"
REFUSED: dict[str, str] = {  # model type -> why no network can be built
    "bit": _CONVOLUTIONS,
    "convnext": _CONVOLUTIONS,
    "convnextv2": _CONVOLUTIONS,
    "efficientnet": _CONVOLUTIONS,
    "fnet": f"{_NO_ATTENTION}: Fourier transforms mix its tokens",
    "focalnet": f"{_NO_ATTENTION}: focal modulation mixes its patches",
    "hgnet_v2": _CONVOLUTIONS,
    "lxmert": "two stacks of layers, of words and of regions of a picture, read each other",
    "mobilenet_v1": _CONVOLUTIONS,
    "mobilenet_v2": _CONVOLUTIONS,
    "mobilevit": "convolutions mix its patches between the few layers of attention",
    "mobilevitv2": "its attention is linear: no weights between two patches exist",
    "mra": "its attention is approximated at several resolutions: weights between two tokens do not exist",
    "poolformer": f"{_NO_ATTENTION}: averages mix its patches",
    "pp_lcnet": _CONVOLUTIONS,
    "reformer": "its attention is sorted into buckets by random hashes",
    "regnet": _CONVOLUTIONS,
    "resnet": _CONVOLUTIONS,
    "swiftformer": "its attention is additive: no weights between two patches exist",
    "textnet": _CONVOLUTIONS,
    "yoso": "its attention is a random estimate without a softmax",
}
_OTHER_MIXERS = ("linear", "mamba", "recurrent", "conv", "ssm", "hybrid")


def find_adapter(model: Any) -> Adapter:
    """The adapter of a model, by the type that its config names; a model that cannot be traced is refused."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind in REFUSED:
        raise unsupported(model, REFUSED[kind])
    mixers = {m for m in _mixers(config) if any(word in m for word in _OTHER_MIXERS)}
    if mixers:
        raise unsupported(
            model, f"some of its layers mix tokens by {', '.join(sorted(mixers))} instead of softmax attention"
        )
    if kind in ADAPTERS:
        return ADAPTERS[kind]
    return _ENCODER if getattr(config, "is_encoder_decoder", False) else OWN


def runs_alone(model: Any) -> bool:
    """Whether padding would change what a model says, so that only inputs of one length may share a batch."""
    adapter = ADAPTERS.get(getattr(getattr(model, "config", None), "model_type", ""))
    return adapter is not None and adapter.alone


def _mixers(config: Any) -> list[str]:
    """What the config calls the layers, if they differ."""
    inner = getattr(config, "text_config", None)
    named = [getattr(c, name, None) for c in (config, inner) for name in ("layer_types", "layers_block_type")]
    return [str(kind) for kinds in named if isinstance(kinds, list | tuple) for kind in kinds]
