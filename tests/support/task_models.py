"""One tiny random model for each task, with what reads its input. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    BertConfig,
    EsmConfig,
    GPT2Config,
    PreTrainedTokenizerFast,
    RobertaConfig,
    ViTConfig,
    Wav2Vec2Config,
    Wav2Vec2FeatureExtractor,
)

import gaflow
from gaflow.tasks import TASKS
from tests.support.models import SENTENCE, SIZE, byte_bpe, wordpiece

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
QUESTION = ("is this dog cute?", "although this dog is not cute, it is very smart.")
PROTEIN = "MKTAYIAKQRQISFVKSHFSRQ"


@dataclass(frozen=True)
class Case:
    """A model of one task, inputs for it, and targets that hold for all of them."""

    task: str
    make: Callable[[], tuple[Any, Any]]
    inputs: tuple[Any, ...]  # the longest first
    one: Any  # a target
    other: Any  # a different one
    contrast: tuple[Any, Any] | None  # A minus B, and B minus A; None where there is no such thing

    @property
    def text(self) -> bool:
        return self.task not in ("image-classification", "audio-classification")


def make(task: str, config: Any, tokenizer: Any) -> tuple[Any, Any]:
    """A model of random weights whose output differs from input to input."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, TASKS[task].loader).from_config(config)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, 0.25)
    return model.eval(), tokenizer


def amino() -> PreTrainedTokenizerFast:
    """One token for each amino acid, as protein models have."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWC", "<mask>"]
    tokenizer = Tokenizer(models.WordLevel({letter: k for k, letter in enumerate(letters)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<cls> $A <eos>", special_tokens=[("<cls>", 0), ("<eos>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<cls>",
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


def picture_processor() -> Any:
    """The image processor of ViT that needs Pillow and no torchvision: it has two names."""
    try:
        from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil
    except ImportError:  # transformers before 5.4
        from transformers.models.vit.image_processing_vit import ViTImageProcessor as ViTImageProcessorPil
    return ViTImageProcessorPil


def viewer() -> tuple[Any, Any]:
    size = {name: SIZE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    config = ViTConfig(**size, intermediate_size=48, image_size=32, patch_size=8, **named(("cat", "dog", "fish")))
    return make("image-classification", config, picture_processor()(size={"height": 32, "width": 32}))


def listener() -> tuple[Any, Any]:
    size = {name: SIZE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    convolutions: dict[str, Any] = {"conv_dim": (16, 16), "conv_stride": (10, 8), "conv_kernel": (10, 8)}
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "classifier_proj_size": 16}
    config = Wav2Vec2Config(
        **size,
        **convolutions,
        **positions,
        intermediate_size=48,
        **named(("yes", "no", "up")),
    )
    return make("audio-classification", config, Wav2Vec2FeatureExtractor(sampling_rate=8000))


def picture(height: int = 40, width: int = 50, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def sound(count: int, seed: int = 0) -> tuple[np.ndarray, int]:
    return np.random.default_rng(seed).normal(size=count).astype(np.float32), 8000


def named(labels: tuple[str, ...]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: k for k, label in enumerate(labels)}}


def bert(task: str, **changes: Any) -> tuple[Any, Any]:
    return make(task, BertConfig(**SIZE, vocab_size=len(wordpiece()), **changes), wordpiece())


def tagger() -> tuple[Any, Any]:
    return bert("token-classification", **named(TAGS))


def reader() -> tuple[Any, Any]:
    return bert("question-answering")


def filler() -> tuple[Any, Any]:
    return bert("fill-mask")


def byte_filler() -> tuple[Any, Any]:
    size = {**SIZE, "pad_token_id": 1, "max_position_embeddings": 66}
    return make("fill-mask", RobertaConfig(**size, vocab_size=len(byte_bpe())), byte_bpe())


def writer() -> tuple[Any, Any]:
    size: dict[str, Any] = {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    config = GPT2Config(**size, vocab_size=len(byte_bpe()), pad_token_id=1)
    return make("text-generation", config, byte_bpe())


def protein(task: str, **changes: Any) -> tuple[Any, Any]:
    tokenizer = amino()
    size = {**SIZE, "pad_token_id": 1, "mask_token_id": 24, "max_position_embeddings": 66, "vocab_size": len(tokenizer)}
    settings: dict[str, Any] = {
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "emb_layer_norm_before": False,
    }
    return make(task, EsmConfig(**size, **settings, **changes), tokenizer)


def sentence_encoder(pooling: Any = "mean", **changes: Any) -> tuple[gaflow.SentenceEncoder, Any]:
    """An encoder that reads the two texts of a pair one by one."""
    encoder, tokenizer = bert("similarity")
    return gaflow.SentenceEncoder(encoder, pooling, **changes), tokenizer


CASES: dict[str, Case] = {
    "sentences": Case(
        "similarity",
        sentence_encoder,
        ((SENTENCE, "a smart dog"), ("this dog is not bad", "a good film and a cute dog"), ("dog", "film")),
        "cosine",
        "dot",
        None,
    ),
    "tagger": Case(
        "token-classification",
        tagger,
        (SENTENCE, "this dog is not bad", "dog"),
        ("dog", "B-PER"),
        ("dog", "I-LOC"),
        (("dog", "B-PER minus O"), ("dog", "O minus B-PER")),
    ),
    "reader": Case(
        "question-answering",
        reader,
        (QUESTION, ("smart?", "this dog is very smart."), ("is it?", "dog is smart")),
        "dog",
        "is",
        ("dog minus is", "is minus dog"),
    ),
    "filler": Case(
        "fill-mask",
        filler,
        (SENTENCE.replace("cute", "[MASK]"), "a [MASK] film", "[MASK]!"),
        "dog",
        "good",
        ("dog minus good", "good minus dog"),
    ),
    "byte filler": Case(
        "fill-mask",
        byte_filler,
        (SENTENCE.replace("cute", "<mask>"), "a <mask> film", "<mask>!"),
        260,
        270,
        ((260, 270), (270, 260)),
    ),
    "writer": Case(
        "text-generation",
        writer,
        ("although this dog is not cute, it is very", "a good film", "the"),
        260,
        270,
        ((260, 270), (270, 260)),
    ),
    "viewer": Case(
        "image-classification",
        viewer,
        (picture(), picture(32, 32, seed=1), picture(64, 20, seed=2)),
        "cat",
        "dog",
        ("cat minus dog", "dog minus cat"),
    ),
    "listener": Case(
        "audio-classification",
        listener,
        (sound(960), sound(960, seed=1), sound(700, seed=2)),
        "yes",
        "no",
        ("yes minus no", "no minus yes"),
    ),
    "protein": Case(
        "text-classification",
        lambda: protein("text-classification", **named(("soluble", "bound"))),
        (PROTEIN, "MKTAY", "MK"),
        "soluble",
        "bound",
        ("soluble minus bound", "bound minus soluble"),
    ),
    "protein tagger": Case(
        "token-classification",
        lambda: protein("token-classification", **named(("H", "E", "C"))),
        (PROTEIN, "MKTAY", "MK"),
        (1, "H"),
        (1, "E"),
        ((1, "H minus E"), (1, "E minus H")),
    ),
    "protein filler": Case(
        "fill-mask",
        lambda: protein("fill-mask"),
        ("MKTAY<mask>AKQRQISFVKSHFSRQ", "MK<mask>AY", "<mask>K"),
        "L",
        "A",
        ("L minus A", "A minus L"),
    ),
}


LABELS = named(("cat", "dog", "fish"))


BODY = {name: SIZE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}


def spectator():
    """A model that cuts a spectrogram into patches."""
    size = {"num_mel_bins": 16, "max_length": 20, "patch_size": 4, "frequency_stride": 4, "time_stride": 2}
    config = ASTConfig(**BODY, intermediate_size=48, **size, **LABELS)  # type: ignore[arg-type]
    extractor = ASTFeatureExtractor(num_mel_bins=16, max_length=20, sampling_rate=8000)
    return make("audio-classification", config, extractor)
