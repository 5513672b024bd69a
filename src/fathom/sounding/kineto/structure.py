"""Find the structure of a piece of JSON token by token, which is slower than decoding but always exact."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# A whole string, a bracket, or a quote whose string does not end within the piece.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}"]', re.DOTALL)
BETWEEN = b", \t\r\n"
_SEPARATOR = re.compile(rb"\s*,?\s*")


class MalformedError(ValueError):
    """The piece is not a list of JSON objects."""


@dataclass
class Structure:
    """The `spans` of complete objects in a piece of a list, and the index at which the list is `closed`.

    `closed` is None if the list does not end in this piece.
    """

    spans: list[tuple[int, int]] = field(default_factory=list)
    closed: int | None = None


def scan(piece: bytes) -> Structure:
    """Find the objects in `piece`, a part of a list's text. Raises MalformedError."""
    structure = Structure()
    depth = end = start = 0
    for token in _TOKEN.finditer(piece):
        mark = token[0]
        if mark == b'"':
            break
        if mark in b"{[":
            if depth == 0:
                _nothing_between(piece, end, token.start())
                if mark != b"{":
                    raise MalformedError("its list of events has other entries than events")
                start = token.start()
            depth += 1
        elif mark in b"]}":
            if depth == 0:
                _nothing_between(piece, end, token.start())
                structure.closed = token.start() if mark == b"]" else None
                break
            depth -= 1
            if depth == 0:
                end = token.end()
                structure.spans.append((start, end))
    return structure


def _nothing_between(piece: bytes, end: int, start: int) -> None:
    if not _SEPARATOR.fullmatch(piece, end, start):
        raise MalformedError("there is text between its events")
