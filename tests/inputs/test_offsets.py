import pytest

from gaflow.inputs.offsets import search_spans, tidy_spans


def pieces(text, spans):
    return [text[a:b] for a, b in spans]


def test_tidy_spans_drop_outer_spaces_and_take_in_dropped_accents():
    text = " the cafe\u0301 \n"
    assert pieces(text, tidy_spans(text, [(0, 4), (4, 9)], ["Ġthe", "Ġcafe"])) == ["the", "cafe\u0301"]
    assert tidy_spans(text, [(0, 1), (11, 12)], ["Ġ", "Ċ"]) == [(1, 1), (12, 12)]


def test_a_mark_that_has_its_own_token_is_left_to_it():
    text = "e\u0301"
    assert tidy_spans(text, [(0, 1), (1, 2)], ["e", "Ì"]) == [(0, 1), (1, 2)]


def test_a_space_put_before_the_text_does_not_claim_its_first_letter():
    assert tidy_spans("ab", [(0, 1), (0, 2)], ["▁", "ab"]) == [(0, 0), (0, 2)]
    assert tidy_spans("▁b", [(0, 1), (1, 2)], ["▁", "b"]) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("The Café, naïve", ["the", "cafe", ",", "nai", "##ve"], ["The", "Café", ",", "naï", "ve"]),
        ("a zzz b", ["a", "[UNK]", "b"], ["a", "zzz", "b"]),
        ("日本 xyz", ["[UNK]", "x@@", "yz"], ["日本", "x", "yz"]),
        ("hello there", ["hel", "lo</w>", "there</w>"], ["hel", "lo", "there"]),
        ("ﬁne day", ["fine", "▁day"], ["ﬁne", "day"]),
        ("end zzz", ["end", "<unk>"], ["end", "zzz"]),
        ("zebra yak a", ["[UNK]", "[UNK]", "a"], ["zebra", "yak", "a"]),
        ("go to yaks", ["<unk>", "yaks"], ["go to", "yaks"]),
        ("a ▁ b", ["a", "▁", "b"], ["a", "", "b"]),
        ("né!", ["n", "Ã", "©", "!"], ["n", "é", "é", "!"]),  # bytes, written as characters
        ("ne\u0301 ©", ["n", "e", "\u0301", " ", "©"], ["n", "e", "\u0301", "", "©"]),
        ("né cut off", ["n", "Ã"], ["n", "é"]),
        ("it's: odd!", ["<unk>", "<unk>"], ["it's:", "odd!"]),  # words by spaces alone
        ("ab", ["a", "", "b"], ["a", "", "b"]),
    ],
)
def test_search_finds_tokens_in_the_original_text(text, tokens, expected):
    assert pieces(text, search_spans(text, tokens)) == expected
