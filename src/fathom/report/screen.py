"""Lines of text on a terminal: width, margins, labelled paragraphs, and glyphs that every terminal shows."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from fathom.visible import visible_line

K = TypeVar("K")
V = TypeVar("V")
NARROW, PIPED, BROAD = 80, 100, 120
MARGIN = 1
INDENT = 2
LEAST = 20  # cells of a paragraph beside its label
SEPARATOR = " · "
_ASCII = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌▍▎▏", "#"), **dict(zip("▓▒░·–±µ…✗°×≈→●", "=-.,-~u.xox~>*", strict=True))}
)


def cells(console: Console) -> int:
    """Return the cells per line: the terminal's width, limited to 80 to 120; 100 if the output is piped."""
    width = console.width if console.is_terminal or console.record else PIPED
    return min(max(width, NARROW), BROAD)


def show(page: Callable[[int], Iterable[Text]], console: Console | None = None) -> None:
    """Print the lines that `page` returns for the console's width; in plain ASCII without Unicode.

    Control characters are replaced here, for all pages. The default is standard output without rich's own
    colours and wrapping.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    for line in page(cells(console)):
        line.plain = visible_line(line.plain)
        if console.options.ascii_only:
            line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
        console.print(line, no_wrap=True, crop=False, overflow="ignore", highlight=False)


def within_margins(lines: Iterable[Text], width: int) -> Iterator[Text]:
    """Indent the lines by the margin and truncate them to `width` cells beside it; empty lines stay empty."""
    for line in lines:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        yield Text(" " * MARGIN).append_text(line) if line.plain else line


def paragraph(
    label: str, text: str, width: int, style: str = "", *, label_style: str = "bold", hyphens: bool = True
) -> Iterator[Text]:
    """Yield `text` wrapped to the right of `label`, whose length is the indent; nothing for an empty text.

    `hyphens`: whether words may break, at hyphens or because they are too long for a line.
    """
    room = max(width - len(label), LEAST)
    lines = textwrap.wrap(text, room, break_on_hyphens=hyphens, break_long_words=hyphens)
    return beside(label, (Text(line, style) for line in lines), label_style)


def beside(label: str, lines: Iterable[Text], style: str = "bold") -> Iterator[Text]:
    """Yield lines unchanged, the first beside the label, the others indented by the label's length."""
    for number, line in enumerate(lines):
        yield Text.assemble((label if number == 0 else " " * len(label), style), line)


def unknown(text: str, width: int) -> Iterator[Text]:
    """Yield a line about something that lacked data, wrapped with a deeper indent."""
    for number, line in enumerate(textwrap.wrap(text, width - 5, break_on_hyphens=False)):
        yield Text.assemble(("?? " if number == 0 else "     ", "yellow"), (line, "dim"))


def part(title: str, lines: Sequence[str], style: str = "") -> Iterator[Text]:
    """Yield a part of an explanatory page: an empty line, its title and its lines; nothing without lines."""
    if lines:
        yield from (Text(), Text(title, "bold dim"))
    for line in lines:
        yield Text(" " * INDENT + line, style)


def wrapped(text: str, width: int) -> list[str]:
    """Return the text wrapped for a part of a page of `width` cells."""
    return textwrap.wrap(text, width - INDENT)


def joined(*parts: str | None) -> str:
    """Join the non-empty parts with dots."""
    return SEPARATOR.join(part for part in parts if part)


def reasons_of(pairs: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a reason and a name as text, with the names that share a reason before it."""
    groups = grouped(pairs).items()
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {why}" for why, names in groups)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by key, as names by reason, in the order of the first pair of each key."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
