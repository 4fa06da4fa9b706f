from typing import Any

import pytest

from gaflow.errors import ArgumentError, ArgumentTypeError
from gaflow.inputs.segmentation import sentence_spans, word_spans


def words_of(text, spans=None):
    """Words when every character that is not a space is a token."""
    spans = spans or [(k, k + 1) for k, char in enumerate(text) if not char.isspace()]
    return [text[w.start : w.end] for w in word_spans(text, spans, range(len(spans)))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("although this dog is not cute, it", ["although", "this", "dog", "is", "not", "cute", ",", "it"]),
        ("don't, I said: l’été!", ["don't", ",", "I", "said", ":", "l’été", "!"]),
        ("3.14 or 3,14. Then", ["3.14", "or", "3,14", ".", "Then"]),
        ("state-of-the-art", ["state", "-", "of", "-", "the", "-", "art"]),
        ("wait... what?!", ["wait", "...", "what", "?!"]),
        ("great👍🏽!", ["great", "👍🏽", "!"]),
        ("👩‍💻 codes ❤️", ["👩‍💻", "codes", "❤️"]),
        ("e\u0301te\u0301 ha", ["e\u0301te\u0301", "ha"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("天気は", ["天", "気", "は"]),
        ("한국어 좋아", ["한국어", "좋아"]),
        ("snake_case 'quoted'", ["snake_case", "'", "quoted", "'"]),
        (" \u00a0 a\tb\n", ["a", "b"]),
    ],
)
def test_words_are_what_a_reader_would_call_so(text, expected):
    assert words_of(text) == expected


def test_words_that_one_token_reaches_into_are_one_word():
    assert words_of("U.S. army", [(0, 4), (5, 9)]) == ["U.S.", "army"]
    assert words_of("a.b.c d", [(0, 5), (2, 3), (4, 5), (6, 7)]) == ["a.b.c", "d"]
    assert words_of("今日は天気", [(0, 2), (2, 3), (3, 5)]) == ["今日", "は", "天気"]


def test_whitespace_tokens_go_with_the_word_that_follows_or_else_the_last():
    words = word_spans("a b ", [(0, 0), (0, 1), (2, 2), (2, 3), (4, 4)], [1, 2, 3, 4, 5])
    assert [w.tokens for w in words] == [(1, 2), (3, 4, 5)]


def test_characters_without_tokens_are_in_no_word():
    words = word_spans("seen cut", [(0, 4)], [7])
    assert [(w.start, w.end, w.tokens) for w in words] == [(0, 4, (7,))]


def test_a_text_of_whitespace_tokens_alone_is_one_word():
    assert [w.tokens for w in word_spans("\u200b", [(0, 0)], [3])] == [(3,)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  ", []),
        ("no end", ["no end"]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("one. two... three", ["one.", "two...", "three"]),  # a text without capitals cannot tell by them
        (
            "Well... maybe. Mr. Baker met J. Doe at 3.5 p.m. today.",
            ["Well... maybe.", "Mr. Baker met J. Doe at 3.5 p.m. today."],
        ),
        (
            "“Why?” he said. “Go!” Then he left (twice.) Done.",
            ["“Why?” he said.", "“Go!”", "Then he left (twice.)", "Done."],
        ),
        ("It was I. You knew.", ["It was I.", "You knew."]),
        ("A title\n\nA text\nthat is wrapped.", ["A title", "A text\nthat is wrapped."]),
        ("これは犬です。猫です！はい", ["これは犬です。", "猫です！", "はい"]),
        ("Visit example.com. It is v1.2.", ["Visit example.com.", "It is v1.2."]),
    ],
)
def test_sentences_end_where_a_reader_would_end_them(text, expected):
    starts = [k for k, char in enumerate(text) if not char.isspace()]
    sentences = sentence_spans(text, [(k, k + 1) for k in starts], starts)
    assert [text[s.start : s.end] for s in sentences if s.tokens] == expected
    assert [k for s in sentences for k in s.tokens] == starts


def test_a_sentence_that_was_not_read_to_its_end_ends_there():
    text = "One two. Three four. Five."
    sentences = sentence_spans(text, [(0, 3), (4, 8), (9, 14)], [1, 2, 3])
    assert [text[s.start : s.end] for s in sentences] == ["One two.", "Three"]


def test_a_token_belongs_to_the_sentence_it_begins_in():
    sentences = sentence_spans("One. Two.", [(0, 4), (3, 9), (5, 5)], [4, 5, 6])
    assert [(s.start, s.end, s.tokens) for s in sentences] == [(0, 4, (4, 5)), (5, 9, (6,))]


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("English", ["See No. 5 of Jan. 2024.", "It is Fig. 3 on p. 7.", "Done!"]),
        ("German", ["„Gehst du?“", "Sie nickte.", "Nr. 5 blieb."]),
        ("French", ["« Vraiment ? »", "Oui…", "D’accord."]),
        ("Russian", ["Кто там?", "Это я.", "Входи!"]),
        ("Greek", ["Ποιος είναι\u037e", "Εγώ."]),
        ("Arabic", ["من أنت؟", "أنا صديق.", "مرحبا!"]),
        ("Urdu", ["یہ کتاب ہے۔", "کیا وہ آیا؟", "ہاں۔"]),
        ("Hindi", ["यह किताब है।", "वह कहाँ है?", "यहाँ॥"]),
        ("Armenian", ["Սա գիրք է։", "Նա եկավ։"]),
        ("Amharic", ["ይህ መጽሐፍ ነው።", "እሱ መጣ፧", "አዎ።"]),
        ("Burmese", ["သူလာသည်။", "ကောင်းသည်။"]),
        ("Khmer", ["នេះជាសៀវភៅ។", "ល្អណាស់។"]),
        ("Tibetan", ["བོད་ཡིག།", "ཡག་པོ།"]),
        ("Korean", ["이것은 책이다.", "좋은가?", "네!"]),
    ],
)
def test_sentences_end_with_the_marks_of_their_script(language, expected):
    text = " ".join(expected)
    starts = [k for k, char in enumerate(text) if not char.isspace()]
    sentences = sentence_spans(text, [(k, k + 1) for k in starts], starts)
    assert [text[s.start : s.end] for s in sentences] == expected


@pytest.mark.parametrize("expected", [["这是书。", "好吗？", "“好！”", "走吧"], ["यह है।", "वह है।"]])
def test_marks_that_mean_nothing_else_need_no_space(expected):
    text = "".join(expected)
    sentences = sentence_spans(text, [(k, k + 1) for k in range(len(text))], range(len(text)))
    assert [text[s.start : s.end] for s in sentences if s.tokens] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("น้ำดี", ["น้ำ", "ดี"]),  # sara am is a letter that continues a cluster
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8 \u110c\u1169", ["\u1112\u1161\u11ab\u1100\u116e\u11a8", "\u110c\u1169"]),
    ],
)
def test_words_do_not_tear_clusters_apart(text, expected):
    assert words_of(text) == expected


def test_a_splitter_of_ones_own_decides():
    text = "one two. three; four"
    spans = [(0, 3), (4, 8), (9, 15), (16, 20)]
    sentences = sentence_spans(text, spans, range(4), lambda text: text.split(";"))
    assert [(s.start, s.end, s.tokens) for s in sentences] == [(0, 14, (0, 1, 2)), (16, 20, (3,))]
    with pytest.raises(ArgumentError, match="split returned 'ONE"):
        sentence_spans(text, spans, range(4), lambda text: [text.upper()])


@pytest.mark.parametrize("result", ["a text", None, 3, [1], [None, "a"]])
def test_a_splitter_returns_a_list_of_strings(result):
    splitter: Any = lambda _: result  # noqa: E731
    with pytest.raises(ArgumentTypeError) as caught:
        sentence_spans("a text", [(0, 6)], range(1), splitter)
    assert caught.value.argument == "split"
