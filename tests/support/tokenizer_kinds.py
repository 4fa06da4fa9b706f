"""Tokenizers of every kind, fast and slow, and what their tokens stand for. Nothing is downloaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers import models as vocabularies
from transformers import ByT5Tokenizer, CanineTokenizer, EsmTokenizer, PerceiverTokenizer, PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from tests.support.models import CORPUS, LETTERS, byte_bpe, unigram, wordpiece

Surface = Callable[[str], str | None]  # what of a text a token stands for, up to normalisation; None: cannot tell


@dataclass(frozen=True)
class Kind:
    """A kind of tokenizer, and what is known of it."""

    make: Callable[[], Any]
    surface: Surface
    specials: Sequence[str]  # that it puts around texts
    cases: Sequence[tuple[str, list[tuple[str, str]]]]  # text -> (token, its piece of the text), by hand


class Spaced:
    """A slow tokenizer without special tokens: words by spaces."""

    is_fast = False

    def __call__(self, texts: list[str], pairs: list[str] | None = None, **_: Any) -> dict[str, Any]:
        joined = [" ".join(both) for both in zip(texts, pairs, strict=True)] if pairs else texts
        ids = [[ord(word) for word in text.split()] for text in joined]
        return {"input_ids": ids, "special_tokens_mask": [[0] * len(row) for row in ids]}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [chr(k) for k in ids]


def slow_wordpiece() -> Any:
    """BERT's in plain Python."""
    vocabulary = wordpiece().get_vocab()
    return BertTokenizerLegacy(_lines(sorted(vocabulary, key=lambda token: vocabulary[token])))


def residues() -> Any:
    """ESM's: one token for a residue."""
    return EsmTokenizer(str(_lines(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<mask>"])))


def _lines(tokens: Sequence[str]) -> Path:
    path = Path(tempfile.mkdtemp()) / "vocab.txt"
    path.write_text("\n".join(tokens), encoding="utf-8")
    return path


@cache
def metaspace_bpe() -> PreTrainedTokenizerFast:
    """LLaMA's: spaces are letters, a space comes before the text, bytes stand for what is not in the vocabulary."""
    letters = sorted({char for line in CORPUS[:4] for char in line if char != " "} | {"▁"})
    pieces = ["<unk>", "<s>", "</s>", "<pad>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("▁", "▁"), ("o", "g")]
    pieces += [a + b for a, b in merges]
    model = vocabularies.BPE({p: k for k, p in enumerate(pieces)}, merges, byte_fallback=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@cache
def bare_bytes() -> PreTrainedTokenizerFast:
    """GPT-2's: bytes, and no special tokens around the text."""
    tokenizer = Tokenizer.from_str(byte_bpe().backend_tokenizer.to_str())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


@cache
def characters() -> PreTrainedTokenizerFast:
    """One token for a character, spaces too."""
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", *LETTERS, " "]
    tokenizer = Tokenizer(vocabularies.WordLevel({c: k for k, c in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def _known(token: str) -> str | None:
    """Of vocabularies that have a token for unknown words."""
    return None if token in ("[UNK]", "<unk>") else token.removeprefix("##").replace("▁", " ")


def _byte(token: str) -> str | None:
    """Of tokens that are bytes: only those of ASCII are characters."""
    return token if len(token) > 1 or ord(token) < 128 else None


def _decoded(decoder: Any) -> Surface:
    """Of tokens that may hold a part of a character, which no decoder can show."""

    def surface(token: str) -> str | None:
        decoded = decoder.decode([token]).replace("▁", " ")
        return None if "\ufffd" in decoded else decoded

    return surface


SHORT = "Né dog"
KINDS: dict[str, Kind] = {
    "wordpiece": Kind(
        wordpiece,
        _known,
        ("[CLS]", "[SEP]"),
        [("Né dogs", [("n", "N"), ("##e", "é"), ("dog", "dog"), ("##s", "s")]), ("xz!", [("[UNK]", "xz"), ("!", "!")])],
    ),
    "wordpiece, slow": Kind(
        slow_wordpiece,
        _known,
        ("[CLS]", "[SEP]"),
        [("Né dogs", [("n", "N"), ("##e", "é"), ("dog", "dog"), ("##s", "s")]), ("xz!", [("[UNK]", "xz"), ("!", "!")])],
    ),
    "unigram": Kind(
        unigram,
        _known,
        ("<s>", "</s>"),
        [("ﬁn film", [("▁", ""), ("f", "ﬁ"), ("i", "ﬁ"), ("n", "n"), ("▁film", "film")])],
    ),
    "byte-level BPE": Kind(
        byte_bpe,
        _decoded(decoders.ByteLevel()),
        ("<s>", "</s>"),
        [(SHORT, [("N", "N"), ("Ã", "é"), ("©", "é"), ("Ġdog", "dog")])],
    ),
    "byte-level BPE, bare": Kind(
        bare_bytes,
        _decoded(decoders.ByteLevel()),
        (),
        [(SHORT, [("N", "N"), ("Ã", "é"), ("©", "é"), ("Ġdog", "dog")])],
    ),
    "metaspace BPE": Kind(
        metaspace_bpe,
        _decoded(decoders.ByteFallback()),
        ("<s>",),
        [("N dog", [("▁", ""), ("<0x4E>", "N"), ("▁", ""), ("d", "d"), ("og", "og")]), ("the", [("▁the", "the")])],
    ),
    "characters": Kind(
        characters,
        _known,
        ("[CLS]", "[SEP]"),
        [("N do", [("[UNK]", "N"), (" ", ""), ("d", "d"), ("o", "o")])],
    ),
    "CANINE": Kind(
        cache(CanineTokenizer),  # which takes seconds to list all characters there are
        lambda token: token,
        ("\ue000", "\ue001"),
        [("Né\u0301 d", [("N", "N"), ("é", "é"), ("\u0301", "\u0301"), (" ", ""), ("d", "d")])],
    ),
    "ByT5": Kind(
        ByT5Tokenizer,
        _byte,
        ("</s>",),
        [(SHORT, [("N", "N"), ("Ã", "é"), ("©", "é"), (" ", ""), ("d", "d"), ("o", "o"), ("g", "g")])],
    ),
    "Perceiver": Kind(
        PerceiverTokenizer,
        _byte,
        ("[CLS]", "[SEP]"),
        [("👍a", [("ð", "👍"), ("\x9f", "👍"), ("\x91", "👍"), ("\x8d", "👍"), ("a", "a")])],
    ),
    "ESM": Kind(
        residues,
        _known,
        ("<cls>", "<eos>"),
        [
            ("MKTz-A", [("M", "M"), ("K", "K"), ("T", "T"), ("<unk>", "z"), ("-", "-"), ("A", "A")]),
            ("no, not this!", [("<unk>", "no,"), ("<unk>", "not"), ("<unk>", "this!")]),
        ],
    ),
}
