"""An extension of griffe: the comment behind an attribute or a parameterless field is its description."""

from __future__ import annotations

import re
from typing import Any

import griffe

_COMMENT = re.compile(r"\s# (.+)$")
_MORE = re.compile(r"^\s*# (.+)$")


class Comments(griffe.Extension):
    """Gives attributes without a docstring the comment behind them, and those on the lines below."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Read the comment from the attribute's line."""
        if attr.docstring or attr.lineno is None or attr.endlineno is None:
            return
        lines = attr.lines_collection[attr.filepath]
        if match := _COMMENT.search(lines[attr.endlineno - 1]):
            words = [match[1], *_below(lines[attr.endlineno :])]
            attr.docstring = griffe.Docstring(" ".join(words), lineno=attr.lineno, parent=attr)


def _below(lines: list[str]) -> list[str]:
    words = []
    for line in lines:
        if not (match := _MORE.match(line)):
            break
        words.append(match[1])
    return words
