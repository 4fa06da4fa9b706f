"""Masked tokens and next tokens: one position, and the whole vocabulary as classes.

    "dog"               the token that the tokenizer would put there, see below; also its number in the vocabulary
    "dog minus cat"     one rather than another, also the tuple `("dog", "cat")`
    "#5", "#5=dog"      of several masks the one that is token 5
    None                the most probable token

`y` is the token's logit, or the difference of two, at the mask, or at the last token for the one that comes next.

The convention this file owns: a string means the token that would stand there **if the text had this word in place**:
"dog" is `Ġdog` after a space to a byte-level tokenizer, and "Dog" is `dog` to one that lower-cases. A next word comes
after a space, unless the text ends with one, the string begins with one, or it is no word ("."). A string that cannot
be read so is looked up in the vocabulary itself ("##ing").
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gaflow.errors import Argument, UnsupportedModelError
from gaflow.inputs.encoding import Encoding
from gaflow.inputs.transformers_types import Tokenizer
from gaflow.tasks.targets import (
    ExplainedOutput,
    Head,
    class_output,
    class_probability,
    contrast_sides,
    logits_on_host,
    target_error,
    two_sides,
    whole_target,
)
from gaflow.tasks.text_inputs import masks_of

_LISTED_TOKENS = 8  # in an error


@dataclass(frozen=True)
class TokenTarget:
    """A target without its text."""

    position: int | None = None  # of the mask; None: the only one
    tokens: tuple[int | str, ...] = ()  # one, or two for a contrast; none: the most probable


class ResolvedTokens(NamedTuple):
    """A target for one text."""

    position: int
    tokens: tuple[int, ...]  # one, or two for a contrast; none: the most probable


@dataclass(frozen=True)
class LanguageModelHead(Head[TokenTarget, ResolvedTokens]):
    """The output of a language model at one position."""

    tokenizer: Tokenizer
    masked: bool  # at a mask; otherwise after the last token
    labels: tuple[str, ...] = ()

    def parse(self, target: object) -> TokenTarget:
        """A mask, a token, or a contrast of two."""
        position = None
        if isinstance(target, ExplainedOutput):
            if self.masked and target.read_positions:
                position = target.read_positions[0]
            target = target.target
        elif isinstance(target, str) and self.masked:
            match = re.fullmatch(r"#(\d+)(?:=(.*))?", target, re.DOTALL)
            if match is not None:
                position = int(match[1])
                target = match[2]
        if target is None:
            return TokenTarget(position)
        tokens = []
        for token in contrast_sides(target):
            if not isinstance(token, str):
                token = whole_target(token, "a word, a token's number, a pair (A, B) or None")
            elif not token:
                raise target_error(" is empty; give a word, or leave it out for the most probable one")
            tokens.append(token)
        return TokenTarget(position, tuple(tokens))

    def resolve(self, target: TokenTarget, encoding: Encoding, name: str) -> ResolvedTokens:
        """The position, and the tokens' numbers."""
        position = self._position(target.position, encoding, name)
        words = target.tokens
        if len(words) == 1 and isinstance(words[0], str):
            words = next(two_sides(words[0]), words)
        tokens = []
        for word in words:
            if isinstance(word, str):
                word = self._find_token(word, encoding, position, name)
            tokens.append(word)
        if len(tokens) == 2 and tokens[0] == tokens[1]:
            raise target_error(f" contrasts {self._text(tokens[0])!r} with itself; give two different words")
        return ResolvedTokens(position, tuple(tokens))

    def output(self, logits: Tensor, encoding: Encoding, target: ResolvedTokens) -> ExplainedOutput:
        """From logits (t, v)."""
        on_host = _logits_at(target.position, logits, encoding)
        for token in target.tokens:
            if not 0 <= token < len(on_host):
                raise target_error(f" {token} is out of range: the model has tokens 0 to {len(on_host) - 1}")
        tokens = target.tokens or (int(on_host.argmax()),)
        return self._output(on_host, target.position, tokens)

    def top_outputs(self, logits: Tensor, encoding: Encoding, count: int) -> list[ExplainedOutput]:
        """The most probable tokens."""
        position = self._position(None, encoding, "text")
        on_host = _logits_at(position, logits, encoding)
        tokens = on_host.topk(min(count, len(on_host))).indices.tolist()
        return [self._output(on_host, position, (token,)) for token in tokens]

    def _output(self, logits: Tensor, position: int, tokens: tuple[int, ...]) -> ExplainedOutput:
        return class_output(logits, tokens, self._text, class_probability(logits, tokens), (position,))

    def _text(self, token: int) -> str:
        """A token as it reads, or, if that is nothing, as the vocabulary writes it."""
        return str(self.tokenizer.decode([token])).strip() or str(self.tokenizer.convert_ids_to_tokens(token))

    def _position(self, mask: int | None, encoding: Encoding, name: str) -> int:
        """The position that is predicted: `mask`, or the only one, or the last token."""
        if not self.masked:
            return len(encoding) - 1
        masks = masks_of(encoding.inputs["input_ids"], self.tokenizer)
        first = masks[0]
        if mask is None and len(masks) == 1:
            return first
        if mask not in masks:
            listed = ", ".join(f"#{k}" for k in masks[:_LISTED_TOKENS])
            advice = f"write '#{first}', or '#{first}=word', or fill in the other masks"
            raise target_error(" must name one of the masks of ", Argument(name), f", {listed}: {advice}")
        return mask

    def _find_token(self, word: str, encoding: Encoding, position: int, name: str) -> int:
        """The number of the token that `word` would be in the text."""
        candidates = self._fill_in(word, encoding, position) if self.masked else self._continue_with(word, encoding)
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        several: list[int] = []  # tokens, if the word is no single one
        for tokens in candidates:
            if len(tokens) == 1 and tokens[0] != unknown:
                return tokens[0]
            several = several or tokens
        vocabulary = self.tokenizer.get_vocab()
        if word in vocabulary:
            return int(vocabulary[word])
        if len(several) > 1:
            listed = ", ".join(map(str, self.tokenizer.convert_ids_to_tokens(several[:_LISTED_TOKENS])))
            advice = "a target is one; give a word that is one token, or one of these"
            raise target_error(f": {word!r} is {len(several)} tokens in ", Argument(name), f" ({listed}), and {advice}")
        raise target_error(f": {word!r} is no token of the model's vocabulary, nor a word that it knows")

    def _fill_in(self, word: str, encoding: Encoding, position: int) -> Iterator[list[int]]:
        """The tokens of `word` in place of a mask, then those of `word` alone."""
        before = encoding.inputs["input_ids"]
        mask_number = masks_of(before, self.tokenizer).index(position)
        sources = [source for source in (encoding.text, encoding.text_pair) if source is not None]
        if encoding.truncated:  # compare all of the text, since truncation may cut it elsewhere with the word in place
            before = self.tokenizer(*sources, verbose=False)["input_ids"]
            position = masks_of(before, self.tokenizer)[mask_number]
        numbers = itertools.count()

        def replace_mask(mask: re.Match[str]) -> str:
            return word if next(numbers) == mask_number else mask[0]

        mask_pattern = re.escape(self.tokenizer.mask_token)
        sources = [re.sub(mask_pattern, replace_mask, source) for source in sources]
        after = self.tokenizer(*sources, verbose=False)["input_ids"]
        count = len(after) - len(before) + 1
        same_start = after[:position] == before[:position]
        same_end = after[position + count :] == before[position + 1 :]
        if count > 0 and same_start and same_end:
            yield after[position : position + count]
        yield self.tokenizer(word, add_special_tokens=False)["input_ids"]

    def _continue_with(self, word: str, encoding: Encoding) -> Iterator[list[int]]:
        """The tokens after the text once `word` follows, after a space if it is a word."""
        text = encoding.text
        before = encoding.inputs["input_ids"]
        separate = word[:1].isalnum() and not text[-1:].isspace()
        for gap in (" ", "") if separate else ("",):
            output = self.tokenizer(text + gap + word, return_special_tokens_mask=True, verbose=False)
            after = output["input_ids"]
            special = output["special_tokens_mask"]
            while special and special.pop():  # special tokens after the text
                after.pop()
            if after[: len(before)] == before:
                yield after[len(before) :]


def _logits_at(position: int, logits: Tensor, encoding: Encoding) -> Tensor:
    """The logits (v,) at one position of one text's (t, v), on the host."""
    if logits.dim() != 2 or len(logits) < len(encoding):
        raise UnsupportedModelError(
            f"the model's output for a text of {len(encoding)} tokens has shape {tuple(logits.shape)}, not the "
            "logits of a vocabulary for each token"
        )
    return logits_on_host(logits[position])
