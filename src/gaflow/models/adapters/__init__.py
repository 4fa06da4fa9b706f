"""How the attention of each family of models becomes the layers of a network: the one place that names families.

Most models need nothing: they return one matrix (b, h, t, t) for each layer, and `RETURNED` takes it. The others get
an adapter: a function that finds the parts of attention as the model used them, and how they make a matrix
(`observed.py`). `SOFTMAXES` serves models without an adapter: it takes the softmaxes of the pass if there is exactly
one of the right shape for each layer.

The convention this file owns: a model that mixes tokens by anything but softmax attention is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from gaflow.errors import unsupported
from gaflow.inputs.transformers_types import ModelOutput, PretrainedModel
from gaflow.models.adapters.full_attention import (
    encoder_attention,
    encoder_softmaxes,
    full_nystrom_attention,
    returned_attention,
    softmaxes,
)
from gaflow.models.adapters.observed import AttentionLayer, ObservedPass
from gaflow.models.adapters.pooled_text import canine, funnel, perceiver
from gaflow.models.adapters.sparse_text import big_bird, longformer
from gaflow.models.adapters.vision import hiera, levit, reduced_keys, swin
from gaflow.plugins import Registry

__all__ = ["ADAPTERS", "REFUSED", "RETURNED", "SOFTMAXES", "Adapter", "find_adapter", "runs_alone"]


@dataclass(frozen=True)
class Adapter:
    """Where the layers of a family come from."""

    name: str  # in traces, in `gaflow info` and in the table of models; "" for weights that the model returns
    read: Callable[[ObservedPass], Sequence[AttentionLayer]]
    needs_softmaxes: bool = True  # whether `read` needs the softmaxes of the pass
    alone: bool = False  # padding changes the output: only texts of one length may run together
    aligned: bool = True  # whether the hidden states that the model returns are those of these layers
    part: str | None = None  # of the model whose attention may be streamed: "encoder", or "" for all of it

    def hidden(self, outputs: ModelOutput) -> tuple[Tensor, ...]:
        """The hidden states of the layers, as far as the model returns them."""
        if not self.aligned:
            return ()
        return tuple(getattr(outputs, "encoder_hidden_states", None) or getattr(outputs, "hidden_states", None) or ())


RETURNED = Adapter("", returned_attention, needs_softmaxes=False, part="")
SOFTMAXES = Adapter("softmaxes", softmaxes)
_RETURNED_ALONE = Adapter("", returned_attention, needs_softmaxes=False, alone=True)
_ENCODER = Adapter("encoder", encoder_attention, needs_softmaxes=False, part="encoder")
_GEMMA = Adapter("encoder", encoder_softmaxes, alone=True, aligned=False)  # its head reads one position past the last
_SWIN = Adapter("shifted windows", swin, aligned=False)
_REDUCED = Adapter("reduced keys", reduced_keys, aligned=False)
_BIG_BIRD = Adapter("block-sparse attention", big_bird, alone=True)  # the last block is special, padding or not
_LONGFORMER = Adapter("windows and global tokens", longformer)

_OWN: dict[str, Adapter] = {  # model type -> adapter
    "big_bird": _BIG_BIRD,
    "bigbird_pegasus": _BIG_BIRD,
    "canine": Adapter("characters and molecules", canine, alone=True, aligned=False),
    "convbert": _RETURNED_ALONE,  # its convolutions read padding
    "cvt": _REDUCED,
    "donut-swin": _SWIN,
    "funnel": Adapter("pooled layers", funnel, alone=True, aligned=False),
    "hiera": Adapter("mask units", hiera, aligned=False),
    "led": _LONGFORMER,
    "levit": Adapter("subsampled layers", levit, aligned=False),
    "longformer": _LONGFORMER,
    "mobilebert": _RETURNED_ALONE,  # every token reads its neighbours' embeddings
    "nystromformer": Adapter("", full_nystrom_attention, needs_softmaxes=False, alone=True),  # likewise
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
    "xlnet": Adapter("softmaxes", softmaxes, alone=True),  # its head reads the last position, padding or not
}

_CONVOLUTIONAL = [
    "bit",
    "convnext",
    "convnextv2",
    "efficientnet",
    "hgnet_v2",
    "mobilenet_v1",
    "mobilenet_v2",
    "pp_lcnet",
    "regnet",
    "resnet",
    "textnet",
]
REFUSED: dict[str, str] = {  # model type -> reason why no network can be built
    **dict.fromkeys(_CONVOLUTIONAL, "it is made of convolutions and has no attention"),
    "fnet": "it has no attention: Fourier transforms mix its tokens",
    "focalnet": "it has no attention: focal modulation mixes its patches",
    "lxmert": "two stacks of layers, of words and of regions of a picture, read each other",
    "mobilevit": "convolutions mix its patches between the few layers of attention",
    "mobilevitv2": "its attention is linear: no weights between two patches exist",
    "mra": "its attention is approximated at several resolutions: weights between two tokens do not exist",
    "poolformer": "it has no attention: averages mix its patches",
    "reformer": "its attention is sorted into buckets by random hashes",
    "swiftformer": "its attention is additive: no weights between two patches exist",
    "yoso": "its attention is a random estimate without a softmax",
}


def _check_plugin(_name: str, adapter: object) -> None:
    if not isinstance(adapter, Adapter):
        raise TypeError("it is no gaflow.models.adapters.Adapter")


ADAPTERS: Registry[Adapter] = Registry(_OWN, "gaflow.adapters", _check_plugin, reserved=REFUSED)
_OTHER_MIXERS = ("linear", "mamba", "recurrent", "conv", "ssm", "hybrid")  # in the names of types of layers


def find_adapter(model: PretrainedModel) -> Adapter:
    """The adapter of a model, by the model type in its config; a model that cannot be traced is refused."""
    config = getattr(model, "config", None)
    model_type = getattr(config, "model_type", None)
    if model_type in REFUSED:
        raise unsupported(model, REFUSED[model_type])
    layer_types = set()
    for part in (config, getattr(config, "text_config", None)):
        for name in ("layer_types", "layers_block_type"):
            types_of_part = getattr(part, name, None)
            if isinstance(types_of_part, list | tuple):
                layer_types.update(map(str, types_of_part))
    mixers = sorted(mixer for mixer in layer_types if any(word in mixer for word in _OTHER_MIXERS))
    if mixers:
        raise unsupported(model, f"some of its layers mix tokens by {', '.join(mixers)} instead of softmax attention")
    adapter = ADAPTERS.get(str(model_type))
    if adapter is not None:
        return adapter
    return _ENCODER if getattr(config, "is_encoder_decoder", False) else RETURNED


def runs_alone(model: PretrainedModel) -> bool:
    """Whether padding changes the output of a model, so that only inputs of one length may share a batch."""
    adapter = ADAPTERS.get(getattr(getattr(model, "config", None), "model_type", ""))
    return adapter is not None and adapter.alone
