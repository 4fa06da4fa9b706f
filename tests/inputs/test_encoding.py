import random
import unicodedata

import pytest
from tokenizers import Tokenizer as TokenizersTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from gaflow.errors import TextError
from gaflow.inputs.encoding import check_text, encode
from gaflow.inputs.segmentation import word_spans
from tests.support.models import SENTENCE, TEXTS, byte_bpe, unigram, wordpiece
from tests.support.tokenizer_kinds import KINDS, Spaced


@pytest.fixture
def slow(tmp_path):
    """A tokenizer in plain Python, which reports no offsets."""
    vocabulary = wordpiece().get_vocab()
    lines = sorted(vocabulary, key=lambda token: vocabulary[token])
    (tmp_path / "vocab.txt").write_text("\n".join(lines))
    tokenizer = BertTokenizerLegacy(tmp_path / "vocab.txt")
    assert not tokenizer.is_fast
    return tokenizer


TOKENIZERS = {
    "wordpiece": wordpiece,
    "byte_bpe": byte_bpe,
    "byte_bpe_untrimmed": lambda: byte_bpe(trim_offsets=False),
    "unigram": unigram,
}


def one(tokenizer, text, pair=None, **options):
    return encode(tokenizer, [text if pair is None else (text, pair)], **options)[0]


def pieces(encoding):
    return [
        (encoding.text if s == 0 else encoding.text_pair)[a:b]
        for (a, b), s in zip(encoding.offsets, encoding.segments, strict=True)
        if s >= 0
    ]


def fold(text):
    """Text without case, accents, compatibility forms, joiners and spaces."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in plain if not c.isspace() and c != "\u200d" and unicodedata.category(c)[0] != "M")


def assert_covers(encoding):
    """Spans are trimmed, in order, and leave out nothing but whitespace."""
    covered = set()
    last = 0
    for (start, end), segment in zip(encoding.offsets, encoding.segments, strict=True):
        if segment < 0:
            assert (start, end) == (0, 0)
            continue
        piece = encoding.text[start:end]
        assert piece == piece.strip()
        assert start >= last or start == end
        last = start
        covered.update(range(start, end))
    missed = [c for k, c in enumerate(encoding.text) if k not in covered and not c.isspace()]
    assert missed == []


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", TEXTS)
def test_offsets_cover_the_original_text(name, text):
    encoding = one(TOKENIZERS[name](), text)
    assert_covers(encoding)
    assert len(encoding.tokens) == len(encoding.offsets) == len(encoding.segments)
    assert encoding.tokens[0] in ("[CLS]", "<s>")
    assert encoding.segments[0] == encoding.segments[-1] == -1


@pytest.mark.parametrize("name", TOKENIZERS)
def test_offsets_cover_texts_of_any_characters(name):
    generator = random.Random(0)
    alphabet = "ab Zé'.,\u0301\u00a0ß今は👍🏽\u200d❤\ufe0f12\n"
    for _ in range(60):
        text = "".join(generator.choices(alphabet, k=generator.randint(1, 12))) + "a"
        encoding = one(TOKENIZERS[name](), text)
        for (start, end), segment in zip(encoding.offsets, encoding.segments, strict=True):
            assert 0 <= start <= end <= len(text)
            piece = text[start:end]
            assert piece == piece.strip()
            assert segment == 0 or piece == ""
        letters = {k for k, c in enumerate(text) if c.isalnum()}
        assert letters <= {k for a, b in encoding.offsets for k in range(a, b)}


@pytest.mark.parametrize("text", TEXTS)
def test_wordpiece_tokens_are_their_pieces_of_text(text):
    encoding = one(wordpiece(), text)
    tokens = [t for t, s in zip(encoding.tokens, encoding.segments, strict=True) if s >= 0]
    for token, piece in zip(tokens, pieces(encoding), strict=True):
        if token not in ("[UNK]", "[SEP]"):
            assert fold(token.removeprefix("##")) == fold(piece)


def test_an_unknown_word_keeps_its_place_in_the_text():
    encoding = one(wordpiece(), "the Zebra!")
    assert pieces(encoding)[-2:] == ["Zebra", "!"]
    assert encoding.tokens[-3] == "[UNK]"


@pytest.mark.parametrize("trim", [True, False])
def test_bytes_of_one_character_share_its_span_and_spaces_are_left_out(trim):
    encoding = one(byte_bpe(trim), "is 👩 dog")
    surfaces = pieces(encoding)
    assert surfaces[0] == "is"
    assert surfaces[-1] == "dog"
    assert len(surfaces) > 3
    assert set(surfaces[1:-1]) <= {"👩", ""}
    assert encoding.offsets[-2] == (5, 8)


def test_a_special_token_that_the_user_typed_is_text():
    encoding = one(wordpiece(), "the [SEP] dog")
    assert encoding.tokens.count("[SEP]") == 2
    assert pieces(encoding)[-2:] == ["[SEP]", "dog"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_each_half_of_a_pair_has_its_own_offsets(name):
    encoding = one(TOKENIZERS[name](), "this dog is smart", "is not cute")
    for segment, text in enumerate(("this dog is smart", "is not cute")):
        spans = [o for o, s in zip(encoding.offsets, encoding.segments, strict=True) if s == segment]
        assert "".join(text[a:b] for a, b in spans) == text.replace(" ", "")


def test_a_tokenizer_without_offsets_gives_the_same_encoding(slow):
    for text in TEXTS[:5]:
        fast, plain = one(wordpiece(), text), one(slow, text)
        assert plain.tokens == fast.tokens
        assert plain.offsets == fast.offsets
        assert plain.segments == fast.segments
    pair = one(slow, "this dog", "is Çute")
    assert pair.segments == (-1, 0, 0, -1, 1, 1, -1)
    assert pieces(pair) == ["this", "dog", "is", "Çute"]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", [*TEXTS, "MKTAYIAK QRQ", "été\u200d a", "naïve " * 3])
def test_whatever_the_tokenizer_its_tokens_are_pieces_of_the_text_and_in_one_word_each(name, text):
    kind = KINDS[name]
    encoding = one(kind.make(), text)
    assert_covers(encoding)
    ordinary = [k for k, s in enumerate(encoding.segments) if s >= 0]
    for k in ordinary:
        start, end = encoding.offsets[k]
        surface = kind.surface(encoding.tokens[k])
        piece = fold(text[start:end])
        shared = end - start == 1 and surface is not None and fold(surface) in piece  # ﬁ is f and i
        assert surface is None or shared or piece == fold(surface), encoding.tokens[k]
    words = word_spans(text, [encoding.offsets[k] for k in ordinary], ordinary)
    assert sorted(k for word in words for k in word.tokens) == ordinary
    assert "".join(text[w.start : w.end] for w in words) == "".join(text.split())


@pytest.mark.parametrize("name", KINDS)
def test_whatever_the_tokenizer_each_half_of_a_pair_has_its_own_offsets(name):
    kind = KINDS[name]
    texts = "this Café is smart", "is not cute"
    encoding = one(kind.make(), *texts)
    assert [k for k, s in enumerate(encoding.segments) if s < 0] == [
        k for k, token in enumerate(encoding.tokens) if token in kind.specials
    ]
    for segment, text in enumerate(texts):
        spans = [o for o, s in zip(encoding.offsets, encoding.segments, strict=True) if s == segment]
        covered = {k for start, end in spans for k in range(start, end)}
        assert "".join(text[k] for k in sorted(covered)) == text.replace(" ", "")


@pytest.mark.parametrize(("name", "text", "expected"), [(n, *case) for n, kind in KINDS.items() for case in kind.cases])
def test_tokens_lie_where_a_reader_would_put_them(name, text, expected):
    encoding = one(KINDS[name].make(), text)
    tokens = [t for t, s in zip(encoding.tokens, encoding.segments, strict=True) if s >= 0]
    assert list(zip(tokens, pieces(encoding), strict=True)) == expected


@pytest.mark.parametrize("name", KINDS)
def test_whatever_the_tokenizer_truncation_keeps_the_beginning_and_says_so(name):
    tokenizer = KINDS[name].make()
    text = "Café naïve dog. " * 20
    full, cut = one(tokenizer, text), one(tokenizer, text, limit=12, truncation=True)
    assert not full.truncated
    assert cut.truncated
    assert len(cut) == 12
    beginning = [(t, o) for t, o, s in zip(cut.tokens, cut.offsets, cut.segments, strict=True) if s >= 0]
    complete = [(t, o) for t, o, s in zip(full.tokens, full.offsets, full.segments, strict=True) if s >= 0]
    assert beginning == complete[: len(beginning)]
    with pytest.raises(TextError, match=r"12.*truncation=True"):
        one(tokenizer, text, limit=12)


def test_a_pair_that_nothing_holds_apart_is_refused():
    assert pieces(one(Spaced(), "a b")) == ["a", "b"]
    with pytest.raises(TextError, match=r"Spaced.*pair.*offsets"):
        one(Spaced(), "a b", "c")


def test_texts_and_pairs_mix_in_one_list():
    encodings = encode(wordpiece(), ["this dog", ("this dog", "is cute"), "is"])
    assert [e.text_pair for e in encodings] == [None, "is cute", None]
    assert [len(e) for e in encodings] == [4, 7, 3]
    assert encodings[1].inputs["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("empty", ["", "  \n\t", "\u00a0"])
def test_an_empty_text_is_refused(empty):
    with pytest.raises(TextError, match=r"text.*(empty|whitespace)"):
        check_text(empty)
    with pytest.raises(TextError, match=r"texts\[3\]\[1\] is"):
        check_text(("a", empty), "texts[3]")


@pytest.mark.parametrize("item", [None, 3, b"bytes", ["a", "b"], {"text": "a"}, float("nan")])
def test_what_is_no_string_is_a_type_error_that_names_it(item):
    with pytest.raises(TypeError, match=type(item).__name__):
        check_text(item)


@pytest.mark.parametrize("item", [("a",), ("a", "b", "c"), ()])
def test_a_tuple_is_a_pair_or_an_error(item):
    with pytest.raises(TypeError, match=r"one \(text, pair\)"):
        check_text(item)


@pytest.mark.parametrize("character", ["\ud800", "\0"])
def test_a_character_that_no_tokenizer_reads_is_refused_with_its_position(character):
    for text, name in ((f"ab{character}c", "text"), (("ab", f"ab{character}"), "text[1]")):
        with pytest.raises(TextError, match="at 2") as caught:
            check_text(text)
        assert caught.value.argument == name


def test_a_text_that_the_tokenizer_drops_entirely_is_refused():
    with pytest.raises(TextError, match=r"texts\[0\] holds nothing"):
        one(wordpiece(), "\u200b\u200b")


def test_a_text_that_is_too_long_says_by_how_much_and_what_to_do():
    with pytest.raises(TextError, match=r"texts\[0\].*12.*8.*truncation=True"):
        one(wordpiece(), "dog " * 10, limit=8)


def test_truncation_keeps_the_beginning_and_says_so():
    long, short = encode(wordpiece(), ["dog " * 10, "dog"], limit=8, truncation=True)
    assert len(long) == 8
    assert long.truncated
    assert long.tokens[-1] == "[SEP]"
    assert long.offsets[1:-1] == tuple((4 * k, 4 * k + 3) for k in range(6))
    assert not short.truncated
    assert one(wordpiece(), "dog " * 6, limit=8).truncated is False


def test_truncation_of_a_pair_keeps_both(slow):
    for tokenizer in (wordpiece(), slow):
        encoding = one(tokenizer, "dog " * 10, "is " * 10, limit=9, truncation=True)
        assert encoding.segments == (-1, 0, 0, 0, -1, 1, 1, 1, -1)
        assert encoding.truncated


def test_encoding_asks_nothing_of_the_texts_around_it():
    alone = one(wordpiece(), SENTENCE)
    assert encode(wordpiece(), ["x", SENTENCE])[1] == alone


def chat_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """A tokenizer that puts <bos> before every text, with markers that a chat template writes."""
    special = ["<bos>", "<|user|>", "<|end|>"]
    words = ["[UNK]", *special, "hello", "you"]
    model = WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = TokenizersTokenizer(model)
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", unk_token="[UNK]")
    fast.add_special_tokens({"additional_special_tokens": special[1:]})
    fast.chat_template = template
    return fast


def test_a_text_that_begins_with_the_bos_gets_no_second_one():
    tokenizer = chat_tokenizer("{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}")
    text = str(tokenizer.apply_chat_template([{"role": "user", "content": "hello you"}], tokenize=False))
    assert text == "<bos><|user|>hello you<|end|>"
    (encoding,) = encode(tokenizer, [text])
    assert encoding.tokens == ("<bos>", "<|user|>", "hello", "you", "<|end|>")
    assert encoding.inputs["input_ids"] == tokenizer(text, add_special_tokens=False)["input_ids"]
    assert encoding.segments == (-1, -1, 0, 0, -1)
    assert encoding.offsets[2:4] == ((13, 18), (19, 22))


def test_a_text_without_the_bos_gets_one():
    (encoding,) = encode(chat_tokenizer(None), ["hello you"])
    assert encoding.tokens == ("<bos>", "hello", "you")
    assert encoding.segments == (-1, 0, 0)


def test_without_a_template_markers_are_text():
    (encoding,) = encode(chat_tokenizer(None), ["<bos>hello<|end|>"])
    assert encoding.tokens == ("<bos>", "hello", "<|end|>")
    assert encoding.segments == (-1, 0, 0)
