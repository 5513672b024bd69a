"""Parts of an explanatory page: a title with indented lines below it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

INDENT = 2


def part(title: str, lines: Sequence[str], style: str = "") -> Iterator[Text]:
    """A title after an empty line, then its lines."""
    yield Text()
    yield Text(title, "bold dim")
    for line in lines:
        yield Text(" " * INDENT + line, style)


def wrapped(text: str, width: int) -> list[str]:
    """The text wrapped for a part of a page of `width` cells."""
    return textwrap.wrap(text, width - INDENT)
