"""Texts, pictures and sounds as tokens with offsets, and batches of them."""

from gaflow.inputs.batch import Batch, Padding, batches, collate, neutral_tokens
from gaflow.inputs.encoding import Encoding, Text, check_text, encode
from gaflow.inputs.media import Image, Media, Sound, media_from_array
from gaflow.inputs.offsets import search_spans, tidy_spans
from gaflow.inputs.segmentation import Span, TokenGroup, sentence_spans, word_spans

__all__ = [
    "Batch",
    "Encoding",
    "Image",
    "Media",
    "Padding",
    "Sound",
    "Span",
    "Text",
    "TokenGroup",
    "batches",
    "check_text",
    "collate",
    "encode",
    "media_from_array",
    "neutral_tokens",
    "search_spans",
    "sentence_spans",
    "tidy_spans",
    "word_spans",
]
