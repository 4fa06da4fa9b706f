"""Masked tokens and next tokens: one position, and the whole vocabulary as classes.

    "dog"               the token that the tokenizer would put there, see below; also its number in the vocabulary
    "dog minus cat"     one rather than another, also the tuple `("dog", "cat")`
    "#5", "#5=dog"      of several masks the one that is token 5
    None                the most probable token

`y` is the token's logit, or the difference of two, at the mask, or at the last token for what comes next.

The convention this file owns: a string means the token that would stand there **if the text had this word in place**:
"dog" is `Ġdog` after a space to a byte-level tokenizer, and "Dog" is `dog` to one that lower-cases. A next word is
taken to come after a space, unless the text ends with one, the string begins with one, or it is no word ("."). Only
what cannot be read so is looked up in the vocabulary itself ("##ing").
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gaflow.errors import TargetError, UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.tasks.targets import ExplainedOutput, LogitTerm, as_integer, check_finite, two_sides
from gaflow.tasks.text_inputs import masks_of

__all__ = ["LanguageModelHead"]

_SHOWN = 8  # tokens listed in an error


@dataclass(frozen=True)
class TokenTarget:
    """A target: which mask (None: the only one), and one token or two (none: the most probable)."""

    place: int | None
    tokens: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class LanguageModelHead:
    """The output of a language model at one position."""

    tokenizer: Any
    masked: bool  # at a mask; otherwise after the last token
    labels: tuple[str, ...] = ()

    def parse(self, target: Any) -> TokenTarget | None:
        """A mask, a token, or a contrast of two."""
        if isinstance(target, ExplainedOutput):
            target, places = target.target, target.read_positions
            tokens = target if isinstance(target, tuple) else (target,)
            return TokenTarget(places[0] if self.masked and places else None, tokens)
        if target is None:
            return None
        place = None
        if isinstance(target, str) and self.masked and (match := re.fullmatch(r"#(\d+)(?:=(.*))?", target, re.DOTALL)):
            place, target = int(match[1]), match[2]
        tokens = () if target is None else target if isinstance(target, tuple) else (target,)
        if len(tokens) > 2:
            raise TargetError(f"target {target!r}: a contrast is a pair (A, B), meaning A minus B")
        for token in tokens:
            if not isinstance(token, str) and as_integer(token) is None:
                raise TypeError(
                    f"target must be a word, a token's number, a pair (A, B) or None, not {type(token).__name__}"
                )
            if isinstance(token, str) and not token:
                raise TargetError("target is empty; give a word, or leave it out for the most probable one")
        return TokenTarget(place, tuple(token if isinstance(token, str) else operator.index(token) for token in tokens))

    def resolve(self, target: TokenTarget | None, encoding: Encoding, name: str) -> tuple[int, tuple[int, ...]]:
        """The position, and the tokens' numbers."""
        place = self._position(target, encoding, name)
        if target is None:
            return place, ()
        tokens = target.tokens
        if len(tokens) == 1 and isinstance(tokens[0], str):
            return place, self._one_or_two(tokens[0], encoding, place, name)
        found = tuple(t if isinstance(t, int) else self._token(t, encoding, place, name) for t in tokens)
        return place, self._different(found, name)

    def outputs(self, logits: Tensor, encodings: Sequence[Encoding], fitted: Sequence[Any]) -> list[ExplainedOutput]:
        """One aim for each text, from logits (b, t, v)."""
        found = []
        for z, encoding, (place, tokens) in zip(logits, encodings, fitted, strict=True):
            row = self._check(z, encoding, place)
            for token in tokens:
                if not 0 <= token < len(row):
                    raise TargetError(f"target {token} is out of range: the model has tokens 0 to {len(row) - 1}")
            found.append(self._aim(row, place, tokens or (int(row.argmax()),)))
        return found

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The most probable tokens."""
        place = self._position(None, encoding, "the text")
        row = self._check(logits, encoding, place)
        return [self._aim(row, place, (k,)) for k in row.topk(min(count, len(row))).indices.tolist()]

    def _check(self, logits: Tensor, encoding: Encoding, place: int) -> Tensor:
        """The logits (v,) that are read of one text's (t, v), on the host."""
        if logits.dim() != 2 or len(logits) < len(encoding):
            raise UnsupportedModelError(
                f"the model's output for a text of {len(encoding)} tokens has shape {tuple(logits.shape)}, not the "
                "logits of a vocabulary for each token"
            )
        row = logits[place].detach().cpu().double()
        check_finite(row)
        return row

    def _aim(self, logits: Tensor, place: int, tokens: tuple[int, ...]) -> ExplainedOutput:
        terms: tuple[LogitTerm, ...] = tuple((w, (place, k)) for w, k in zip((1.0, -1.0), tokens, strict=False))
        y = logits[tokens[0]] if len(tokens) == 1 else logits[tokens[0]] - logits[tokens[1]]
        chance = logits.softmax(0)[tokens[0]] if len(tokens) == 1 else torch.sigmoid(y)
        return ExplainedOutput(
            target=tokens[0] if len(tokens) == 1 else (tokens[0], tokens[1]),
            label=" minus ".join(self._text(k) for k in tokens),
            probability=chance.item(),
            prediction=self._text(int(logits.argmax())),
            terms=terms,
            read_positions=(place,),
        )

    def _text(self, token: int) -> str:
        """A token as it reads, or as the vocabulary writes it if that is nothing."""
        name = str(self.tokenizer.convert_ids_to_tokens(token))
        return str(self.tokenizer.decode([token])).strip() or name

    def _position(self, target: TokenTarget | None, encoding: Encoding, name: str) -> int:
        if not self.masked:
            return len(encoding) - 1
        masks = masks_of(encoding, self.tokenizer)
        asked = None if target is None else target.place
        listed = ", ".join(f"#{k}" for k in masks[:_SHOWN])
        if asked is not None and asked not in masks:
            raise TargetError(f"{name}: token {asked} is no mask; the masks are {listed}")
        if asked is None and len(masks) > 1:
            raise TargetError(
                f"{name} has {len(masks)} masks, tokens {listed}: say which one by target='#{masks[0]}' or "
                f"'#{masks[0]}=word', or fill in the others"
            )
        return masks[0] if asked is None else asked

    def _one_or_two(self, given: str, encoding: Encoding, place: int, name: str) -> tuple[int, ...]:
        """A word, or else a contrast of two."""
        for one, other in two_sides(given):
            return self._different(tuple(self._token(word, encoding, place, name) for word in (one, other)), name)
        return (self._token(given, encoding, place, name),)

    def _different(self, tokens: tuple[int, ...], name: str) -> tuple[int, ...]:
        if len(tokens) == 2 and tokens[0] == tokens[1]:
            raise TargetError(f"{name}: the target contrasts {self._text(tokens[0])!r} with itself; give two words")
        return tokens

    def _token(self, word: str, encoding: Encoding, place: int, name: str) -> int:
        """The number of the token that `word` would be in the text."""
        several: list[int] = []
        for inserted in self._filled(word, encoding, place) if self.masked else self._continued(word, encoding):
            if len(inserted) == 1 and inserted[0] != getattr(self.tokenizer, "unk_token_id", None):
                return inserted[0]
            several = several or inserted
        known = self.tokenizer.get_vocab()
        if word in known:
            return int(known[word])
        if len(several) > 1:
            pieces = self.tokenizer.convert_ids_to_tokens(several[:_SHOWN])
            raise TargetError(
                f"{name}: {word!r} is {len(several)} tokens there ({', '.join(map(str, pieces))}), and a target is "
                "one; give a word that is one token, or one of these"
            )
        raise TargetError(f"{name}: {word!r} is no token of the model's vocabulary, nor a word that it knows")

    def _filled(self, word: str, encoding: Encoding, place: int) -> Iterator[list[int]]:
        """The tokens in place of the mask, once it is `word`."""
        mask, before = self.tokenizer.mask_token, list(encoding.inputs["input_ids"])
        number = masks_of(encoding, self.tokenizer).index(place)
        sources = [encoding.text, encoding.text_pair]
        if encoding.truncated:  # all of the text, since a word in place may cut it elsewhere
            before = self._ids(sources)
            place = [k for k, token in enumerate(before) if token == self.tokenizer.mask_token_id][number]
        for k, source in enumerate(sources):
            parts = (source or "").split(mask)
            if number < len(parts) - 1:
                sources[k] = mask.join(parts[: number + 1]) + word + mask.join(parts[number + 1 :])
                break
            number -= len(parts) - 1
        after = self._ids(sources)
        count = len(after) - len(before) + 1
        if count > 0 and after[:place] == before[:place] and after[place + count :] == before[place + 1 :]:
            yield after[place : place + count]
        yield list(self.tokenizer(word, add_special_tokens=False)["input_ids"])

    def _ids(self, sources: Sequence[str | None]) -> list[int]:
        return list(self.tokenizer(*(s for s in sources if s is not None), verbose=False)["input_ids"])

    def _continued(self, word: str, encoding: Encoding) -> Iterator[list[int]]:
        """The tokens after the text, once `word` follows."""
        text, before = encoding.text, encoding.inputs["input_ids"]
        apart = word[:1].isalnum() and not text[-1:].isspace()
        for gap in (" ", "") if apart else ("",):
            after = self.tokenizer(text + gap + word, return_special_tokens_mask=True, verbose=False)
            ids, special = list(after["input_ids"]), list(after["special_tokens_mask"])
            while special and special.pop():  # what the tokenizer puts after a text
                ids.pop()
            if ids[: len(before)] == before:
                yield ids[len(before) :]
