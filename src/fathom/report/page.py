"""Parts of a page that explains one thing: a title, and indented lines below it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

INDENT = 2


def part(title: str, lines: Sequence[str], style: str = "") -> Iterator[Text]:
    """A title after an empty line, and the lines below it."""
    yield Text()
    yield Text(title, "bold dim")
    for line in lines:
        yield Text(" " * INDENT + line, style)


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text in a part of a page of `width` cells."""
    return textwrap.wrap(text, width - INDENT)
