"""Tiny random classifiers of several families, each with a real tokenizer. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as vocabularies
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    LongformerConfig,
    LongformerForSequenceClassification,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

SENTENCE = "although this dog is not cute, it is very smart."
CORPUS = [
    SENTENCE,
    "Café naïve façade, don't you think? 3.14 is not 3,14!",
    "the quick brown fox jumps over the lazy dog",
    "a good film and a bad one; the best of all",
    "今日は良い天気です。 ünïcode straße 👍🏽",
]
LETTERS = "abcdefghijklmnopqrstuvwy0123456789"  # no x or z, so that there are unknown words
WORDS = [*SENTENCE.strip(".").replace(",", "").split(), "cafe", "naive", "don", "and", "good", "bad", "film"]
TEXTS = [
    SENTENCE,
    "Café NAÏVE, don't stop!",
    "x",
    "  two   spaces\tand a\nline ",
    "zebra 👍🏽 👩‍💻 e\u0301t\u00e9 ❤️!!",
    "今日は良い天気です。",
    "\u00a0Straße ﬁne 3.14 (ok)...",
    "the [SEP] dog",
]
SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


@cache
def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's: lower-cases, strips accents, splits punctuation off, [UNK] for what it does not know."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *".,;!?'", "##ing", "##te"]
    vocabulary = {piece: k for k, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(vocabularies.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@cache
def byte_bpe(trim_offsets: bool = True) -> PreTrainedTokenizerFast:
    """RoBERTa's: bytes, a space belongs to the word after it."""
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(vocabularies.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=trim_offsets, add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


@cache
def unigram() -> PreTrainedTokenizerFast:
    """SentencePiece's: compatibility forms folded, spaces written as a mark at the beginning of words."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    chars = sorted({char for line in CORPUS for char in line if char not in "S() "})
    pieces = {"▁": -3.0} | {f"▁{word}": -4.0 for word in WORDS[::2]} | dict.fromkeys(["th", "gh", *chars], -5.0)
    vocabulary = [*((special, 0.0) for special in specials), *pieces.items()]
    tokenizer = Tokenizer(vocabularies.Unigram(vocabulary, unk_id=3))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace("\n", " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
    )


def bert(**changes: Any) -> tuple[Any, Any]:
    return _make(BertConfig, wordpiece(), {**SIZE, **changes})


def roberta(**changes: Any) -> tuple[Any, Any]:
    return _make(RobertaConfig, byte_bpe(), {**SIZE, "pad_token_id": 1, "max_position_embeddings": 66, **changes})


def distilbert(**changes: Any) -> tuple[Any, Any]:
    size = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}
    return _make(DistilBertConfig, wordpiece(), {**size, **changes})


def electra(**changes: Any) -> tuple[Any, Any]:
    return _make(ElectraConfig, wordpiece(), {**SIZE, "embedding_size": 16, **changes})


def albert(**changes: Any) -> tuple[Any, Any]:
    return _make(AlbertConfig, unigram(), {**SIZE, "embedding_size": 16, "pad_token_id": 1, **changes})


def mpnet(**changes: Any) -> tuple[Any, Any]:
    size = {**SIZE, "pad_token_id": 1, "max_position_embeddings": 66}
    return _make(MPNetConfig, byte_bpe(), {**size, **changes})


def deberta(**changes: Any) -> tuple[Any, Any]:
    extra = {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 16,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pooler_hidden_size": 32,
        "pad_token_id": 1,
    }
    return _make(DebertaV2Config, unigram(), {**SIZE, **extra, **changes})


def modernbert(**changes: Any) -> tuple[Any, Any]:
    extra = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
    extra |= {"global_attn_every_n_layers": 2, "local_attention": 16}
    return _make(ModernBertConfig, byte_bpe(), {**SIZE, **extra, **changes})


def gpt2(**changes: Any) -> tuple[Any, Any]:
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 2}
    return _make(GPT2Config, byte_bpe(), {**size, "pad_token_id": 1, **changes})


FAMILIES: dict[str, Callable[..., tuple[Any, Any]]] = {
    "bert": bert,
    "roberta": roberta,
    "distilbert": distilbert,
    "electra": electra,
    "albert": albert,
    "mpnet": mpnet,
    "deberta": deberta,
    "modernbert": modernbert,
    "gpt2": gpt2,
}


def longformer() -> tuple[Any, Any]:
    """A model whose residual stream is not found."""
    config = LongformerConfig(
        vocab_size=len(wordpiece()), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        attention_window=8, max_position_embeddings=80, pad_token_id=0,
    )  # fmt: skip
    return LongformerForSequenceClassification(config).eval(), wordpiece()


def _make(kind: Any, tokenizer: Any, settings: dict[str, Any]) -> tuple[Any, Any]:
    defaults: dict[str, Any] = {"initializer_range": 0.3, "vocab_size": len(tokenizer)}
    if "num_labels" not in settings and "id2label" not in settings:
        defaults["id2label"] = {0: "negative", 1: "positive", 2: "neutral"}
        defaults["label2id"] = {"negative": 0, "positive": 1, "neutral": 2}
    config = kind(**{**defaults, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)
        with torch.no_grad():
            for weight in model.parameters():  # a fresh model predicts the same class everywhere
                if weight.dim() > 1:
                    weight.normal_(0, 0.25)
    return model.eval(), tokenizer
