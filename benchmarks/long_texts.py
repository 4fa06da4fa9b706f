"""Film reviews of any number of tokens, for pages and servers that must bear long texts."""

from __future__ import annotations

from typing import Any

_SENTENCES = (
    "The film begins slowly, with a long walk through a grey town that nobody seems to love.",
    "I did not expect much of it.",
    "Then the daughter comes home, and every scene that follows is better than the one before.",
    "The music is dull and far too loud.",
    "Her father, played with great care, says almost nothing for half an hour, yet you understand him.",
    "Some jokes are cheap.",
    "The camera stays close to the faces, which makes the quarrel in the kitchen hard to watch.",
    "It is not a comedy, whatever the poster says.",
    "The middle part drags a little, and one of the brothers could have been left out.",
    "But the end is wonderful: quiet, honest and completely surprising.",
    "My friends were bored, and I was in tears.",
    "Nobody should miss the last ten minutes.",
    "The second hour has too many dreams and too few people.",
)
_FILLER = "good"  # one token


def review(tokenizer: Any, tokens: int) -> str:
    """A review of exactly so many tokens, special ones included: whole sentences, and a few words at the end."""
    count = len(tokenizer("")["input_ids"])
    text = []
    while True:
        sentence = _SENTENCES[len(text) % len(_SENTENCES)]
        length = len(tokenizer(sentence, add_special_tokens=False)["input_ids"])
        if count + length > tokens:
            break
        text.append(sentence)
        count += length
    text += [_FILLER] * (tokens - count)
    return " ".join(text)
