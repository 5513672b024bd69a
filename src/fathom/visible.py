"""Keep control characters of traces and soundings from terminals, pictures and pages.

A kernel's name may come from anyone. Escape sequences would move the cursor or set the window's title,
directional marks would reorder a line, and lone surrogates cannot be encoded.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
_FORMATS = (
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
)
_INVISIBLE = rf"\x00-\x08\x0b-\x1f\x7f-\x9f{_FORMATS}\ud800-\udfff\U000e0000-\U000e007f"
_IN_TEXT = re.compile(f"[{_INVISIBLE}]")
_IN_LINE = re.compile(rf"[\t\n{_INVISIBLE}]")


def visible(text: str) -> str:
    """Return `text` with each control character but line ends and tabs replaced by one `REPLACEMENT`."""
    return text if text.isascii() and text.isprintable() else _IN_TEXT.sub(REPLACEMENT, text)


def visible_line(text: str) -> str:
    """Return `text` as one line, of the same length, without control characters."""
    return text if text.isascii() and text.isprintable() else _IN_LINE.sub(REPLACEMENT, text)


def escaped(json: str) -> str:
    """Return the same JSON with control characters in its strings as escapes like \\u009b."""
    return json if json.isascii() else _IN_TEXT.sub(_escape, json)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))
