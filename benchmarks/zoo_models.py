"""A tiny random model of every type that transformers maps to a task, and inputs for it. Nothing is downloaded.

A configuration is the type's default with every known size made small; what then does not fit together is put right
in `OVERRIDES`. Weights are random, larger than a fresh model's, so that attention is far from uniform.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from gaflow.inputs.batch import Batch
from gaflow.models.forward import forward
from gaflow.models.restore import borrow
from gaflow.models.tracing import Trace, backward
from gaflow.tasks.targets import LogitTerm

__all__ = ["TASKS", "build", "classes", "make_batch", "read_output", "trace_output"]

TASKS = {
    "text-classification": "SEQUENCE_CLASSIFICATION",
    "token-classification": "TOKEN_CLASSIFICATION",
    "question-answering": "QUESTION_ANSWERING",
    "fill-mask": "MASKED_LM",
    "image-classification": "IMAGE_CLASSIFICATION",
    "audio-classification": "AUDIO_CLASSIFICATION",
}
_SMALL = {
    32: "hidden_size d_model n_embd dim emb_dim embedding_size pooler_hidden_size word_embed_proj_dim d_latents "
    "input_embedding_size output_embedding_size prediction_head_size entity_emb_size classifier_proj_size "
    "attention_hidden_size output_hidden_size projection_dim image_size true_hidden_size intra_bottleneck_size "
    "pronunciation_embed_dim shape_embed_dim embed_dim out_hidden_size output_dim input_size conv_pos_dim "
    "num_latents tdnn_dim xvector_output_dim",
    2: "num_hidden_layers n_layers n_layer num_layers encoder_layers decoder_layers num_decoder_layers "
    "num_key_value_heads n_kv_heads num_experts_per_tok depth num_self_attends_per_block l_layers r_layers x_layers",
    4: "num_attention_heads n_heads n_head num_heads encoder_attention_heads decoder_attention_heads num_kv_heads "
    "num_self_attention_heads num_cross_attention_heads num_experts num_local_experts n_routed_experts "
    "linear_num_key_heads linear_num_value_heads index_n_heads num_conv_pos_embedding_groups num_query_groups "
    "moe_num_experts",
    8: "head_dim d_kv d_head kv_channels attention_head_size attention_head_dim qk_nope_head_dim qk_rope_head_dim "
    "v_head_dim rotary_dim query_pre_attn_scalar linear_key_head_dim linear_value_head_dim index_head_dim patch_size "
    "global_head_dim",
    48: "intermediate_size d_ff d_inner hidden_dim n_inner ffn_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size dff "
    "feed_forward_size",
    16: "moe_intermediate_size shared_expert_intermediate_size q_lora_rank kv_lora_rank num_conv_pos_embeddings "
    "coordinate_size shape_size",
    64: "max_position_embeddings n_positions n_ctx max_seq_len max_source_positions max_target_positions "
    "max_2d_position_embeddings max_encoder_position_embeddings max_decoder_position_embeddings",
    99: "vocab_size pronunciation_vocab_size shape_vocab_size entity_vocab_size num_hash_buckets",
}
SIZES = {name: size for size, names in _SMALL.items() for name in names.split()}
_TOKENS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 3}
_EVEN: dict[str, Any] = {"num_key_value_heads": 4}  # as many keys as queries
_HEAD: dict[str, Any] = {"head_dim": 8}
_WINDOWS: dict[str, Any] = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
_UNITS: dict[str, Any] = {"masked_unit_size": [4, 4], "num_query_pool": 2}
_LEVIT: dict[str, Any] = {
    "hidden_sizes": [16, 24, 32],
    "num_attention_heads": [2, 3, 4],
    "depths": [1, 1, 1],
    "key_dim": [4] * 3,
}
_PYRAMID: dict[str, Any] = {
    "depths": [1, 2, 1, 1],
    "hidden_sizes": [8, 16, 16, 32],
    "num_attention_heads": [1, 2, 2, 4],
}
_ROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
_ROPE |= {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64}
OVERRIDES: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {"max_length": 48, "num_mel_bins": 32},
    "axk1": {**_EVEN, "n_group": 2, "topk_group": 1},
    "axk2": _EVEN,
    "big_bird": {"block_size": 4, "num_random_blocks": 1},
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 1},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "bros": {"hidden_size": 64},
    "cvt": {"embed_dim": [8, 16, 24], "num_heads": [1, 2, 3], "depth": [1, 2, 3]},
    "deepseek_v2": {**_EVEN, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2},
    "deepseek_v3": {**_EVEN, "n_group": 2, "topk_group": 1},
    "esm": {"vocab_size": 99, "mask_token_id": 4},
    "donut-swin": _WINDOWS,
    "esmc": {**_EVEN, "vocab_size": 99},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "hiera": {"embed_dim": 16, "depths": [1, 2, 1], "num_heads": [1, 2, 4], "image_size": [64, 64], **_UNITS},
    "hunyuan_v1_dense": _HEAD,
    "hunyuan_v1_moe": _HEAD,
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8},
    "led": {"attention_window": 4},
    "levit": {"image_size": 128, "patch_size": 16, **_LEVIT},
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": 4},
    "minicpm3": _EVEN,
    "ministral": _HEAD,
    "mistral4": {**_EVEN, "rope_parameters": _ROPE},
    "nemotron": {**_HEAD, "num_key_value_heads": 2},
    "neomme": {"head_dim": 16},
    "perceiver": {"num_latents": 8, "image_size": 12, "num_blocks": 1},
    "pvt": {"image_size": 64, **_PYRAMID, "sequence_reduction_ratios": [4, 2, 2, 1], "mlp_ratios": [2, 2, 2, 2]},
    "pvt_v2": {"image_size": 64, **_PYRAMID},
    "reformer": {"axial_pos_embds": False},
    "segformer": {"image_size": 64, **_PYRAMID, "decoder_hidden_size": 16},
    "shieldgemma2": {"text_config": {"vocab_size": 11000}},  # its answer is one of two tokens
    "swin": _WINDOWS,
    "swinv2": _WINDOWS,
    "t5": {"decoder_start_token_id": 0},
    "zamba": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"]},
}

SCALES = {"mobilebert": 0.1}  # of random weights; without norms, larger ones grow from layer to layer


def classes(task: str) -> dict[str, str]:
    """The class of every model type that transformers maps to a task."""
    class_names = getattr(modeling_auto, f"MODEL_FOR_{TASKS[task]}_MAPPING_NAMES")
    return {kind: name if isinstance(name, str) else name[0] for kind, name in sorted(class_names.items())}


def build(kind: str, task: str, **changes: Any) -> nn.Module:
    """A tiny model in evaluation mode."""
    config = shrink(CONFIG_MAPPING[kind], OVERRIDES.get(kind, {}) | changes)
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 1
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = getattr(transformers, classes(task)[kind])(config)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() > 1:
                    weight.normal_(0, SCALES.get(kind, 0.25))
    if kind == "xmod":
        model.set_default_language("en_XX")
    return model.eval()


def shrink(kind: Any, changes: dict[str, Any]) -> Any:
    """A small configuration of a class; `changes` of the configurations within it are dictionaries."""
    default = kind()
    inner = dict(default.sub_configs or {})
    settings: dict[str, Any] = {}
    for name, value in default.to_dict().items():
        if name.endswith("_token_id") and name not in inner:
            settings[name] = _TOKENS.get(name, 4)
        elif name in SIZES and name not in inner and isinstance(value, int) and value > SIZES[name]:
            settings[name] = SIZES[name]
    for name in inner:
        part = getattr(default, name, None)
        if part is not None and not isinstance(part, dict):
            settings[name] = shrink(type(part), changes.get(name, {})).to_dict()
    return kind(**settings | {name: value for name, value in changes.items() if name not in inner})


def make_batch(model: Any, kind: str, task: str, lengths: list[int]) -> Batch:
    """Random inputs; those of text have these lengths, and padding on the right."""
    draw = torch.Generator().manual_seed(0)
    b, t = len(lengths), max(lengths)
    if kind == "siglip2":
        shape = (b, 4, 3 * model.config.vision_config.patch_size**2)
        inputs = {"pixel_values": torch.randn(*shape, generator=draw), "spatial_shapes": torch.full((b, 2), 2)}
        inputs["pixel_attention_mask"] = torch.ones(b, 4, dtype=torch.long)
        return Batch(inputs, torch.ones(b, 0, dtype=torch.bool), False, ())
    if task == "image-classification" and kind not in ("imagegpt", "shieldgemma2"):
        size = getattr(getattr(model.config, "vision_config", model.config), "image_size", 32)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        pixels = torch.randn(b, 3, height, width, generator=draw)
        return Batch({"pixel_values": pixels}, torch.ones(b, 0, dtype=torch.bool), False, ())
    if task == "audio-classification":
        return Batch(_sounds(model, kind, b, draw), torch.ones(b, 0, dtype=torch.bool), False, ())
    ids = torch.stack([torch.randint(5, 98, (t,), generator=torch.Generator().manual_seed(k)) for k in range(b)])
    mask = torch.arange(t) < torch.tensor(lengths)[:, None]
    ids[:, 0] = 0
    for k, n in enumerate(lengths):
        ids[k, n - 1] = 2  # encoder-decoders read their answer at the end of the text
        ids[k, n:] = 1
    inputs = {"input_ids": ids, "attention_mask": mask.long(), **_further(kind, task, ids)}
    return Batch(inputs, mask, min(lengths) < t, ())


def _further(kind: str, task: str, ids: Tensor) -> dict[str, Tensor]:
    """What some models want beside a text."""
    if kind == "bros":
        return {"bbox": torch.rand(*ids.shape, 8, generator=torch.Generator().manual_seed(1))}
    if kind == "longformer" and task == "question-answering":
        return {"global_attention_mask": (torch.arange(ids.shape[1]) < 3).long().expand_as(ids)}
    return {}


def _sounds(model: Any, kind: str, b: int, draw: torch.Generator) -> dict[str, Tensor]:
    config = model.config
    if kind == "audio-spectrogram-transformer":
        return {"input_values": torch.randn(b, config.max_length, config.num_mel_bins, generator=draw)}
    if kind in ("whisper", "wav2vec2-bert"):
        bins = config.num_mel_bins if kind == "whisper" else config.feature_projection_input_dim
        length = 2 * config.max_source_positions if kind == "whisper" else 12
        shape = (b, bins, length) if kind == "whisper" else (b, length, bins)
        return {"input_features": torch.randn(*shape, generator=draw)}
    return {"input_values": torch.randn(b, 4000, generator=draw)}


def read_output(logits: Tensor) -> Tensor:
    """The explained scalar of every input, (b,): the first class, at the fourth position where there are several."""
    return logits[:, 0] if logits.dim() == 2 else logits[:, min(3, logits.shape[1] - 1), 0]


def trace_output(model: Any, batch: Batch) -> Trace:
    """The trace of that scalar."""
    with borrow(model):
        forward_pass = forward(model, batch)
        logits = forward_pass.logits
        position = (0,) if logits.dim() == 2 else (min(3, logits.shape[1] - 1), 0)
        return backward(forward_pass, [(LogitTerm(1.0, position),)] * len(logits))
