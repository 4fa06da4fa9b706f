"""Characters that control a screen or hide in a text, written as escapes.

The convention this file owns: **what comes from outside is displayed, never obeyed**, wherever gaflow writes it: pages,
figures, terminal and error messages. Emoji sequences stay as they are, also flags that consist of invisible tags.
"""

from __future__ import annotations

import re

# A black flag with the tags of a region, such as that of Scotland, or one of: C0 but tab and newline, DEL, C1, line
# separators, bidirectional controls, deprecated format controls, annotations, lone surrogates, non-characters, tags
_FLAG_OR_CONTROL = re.compile(
    "(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u206f\ud800-\udfff\ufdd0-\ufdef"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
)


def visible(text: str) -> str:
    """`text` with control characters written as escapes; newlines (of any system) and tabs stay."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _FLAG_OR_CONTROL.sub(lambda match: match[1] or escape(match[0]), lines)


def escape(character: str) -> str:
    """A character as Python writes it: \\\\x1b, \\\\u202e, \\\\U000e0041."""
    code = ord(character)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
