"""Lines of text on a terminal: width, margins, labelled paragraphs, and glyphs that every terminal shows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from fathom.visible import visible_line

K = TypeVar("K")
V = TypeVar("V")
NARROW, USUAL, PIPED, BROAD = 40, 80, 100, 120
MARGIN = 1
INDENT = 2
LEAST = 20  # cells of a paragraph beside its label, and of a table's first column
SEPARATOR = " · "
_GAP = re.compile(r"  +")  # between columns
_ASCII = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌▍▎▏", "#"), **dict(zip("▓▒░·–±µ…✗°×≈→●", "=-.,-~u.xox~>*", strict=True))}
)


def cells(console: Console) -> int:
    """Return the cells per line: the terminal's width, limited to 40 to 120; 100 if the output is piped."""
    return min(max(console.width if _on_screen(console) else PIPED, NARROW), BROAD)


def _on_screen(console: Console) -> bool:
    return console.is_terminal or console.record


def show(page: Callable[[int], Iterable[Text]], console: Console | None = None) -> None:
    """Print the lines that `page` returns for the console's width; in plain ASCII without Unicode.

    Control characters are replaced here, for all pages. Lines wider than a terminal are folded. The default
    is standard output without rich's own colours and wrapping.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    for line in page(cells(console)):
        line.plain = visible_line(line.plain)
        if console.options.ascii_only:
            line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
        for part in folded(line, console.width or NARROW) if _on_screen(console) else [line]:
            console.print(part, no_wrap=True, crop=False, overflow="ignore", highlight=False)


def folded(line: Text, width: int) -> Iterator[Text]:
    """Yield the line, in parts if it is wider than `width` cells: a table's row has its figures below.

    If a row begins with a figure, its last column is below.
    """
    if line.cell_len <= width:
        yield line
        return
    indent = min(_indent(line) + 2 * INDENT, width // 2)
    gaps = list(_GAP.finditer(line.plain))
    for gap in reversed(gaps) if _indent(line) > 2 * INDENT else gaps:
        head, rest = line.divide([gap.end()])
        head.rstrip()
        if rest.cell_len <= width - indent and head.cell_len <= width and _indent(line) < gap.start():
            yield head
            table = _GAP.search(rest.plain.rstrip())
            yield Text(" " * (width - rest.cell_len if table else indent)).append_text(rest)
            return
    yield from _wrapped(line, width, indent)


def _wrapped(line: Text, width: int, indent: int) -> Iterator[Text]:
    line.rstrip()
    while line.cell_len > width:
        fits = max(len(chop_cells(line.plain, width)[0]), _indent(line) + 1)  # at least one character
        space = line.plain.rfind(" ", _indent(line), fits + 1)
        head, line = line.divide([space if space > _indent(line) else fits])
        head.rstrip()
        yield head
        line = Text(" " * indent).append_text(line.divide([_indent(line)])[-1])
    yield line


def _indent(line: Text) -> int:
    return len(line.plain) - len(line.plain.lstrip())


def columns_within(columns: Mapping[K, int], width: int) -> dict[K, int]:
    """Return the first columns with their widths, as many as leave LEAST of `width` cells for a name."""
    room = width - LEAST
    return {name: cell for name, cell in columns.items() if (room := room - cell) >= 0}


def show_within_margins(page: Callable[[int], Iterable[Text]], console: Console | None = None) -> None:
    """Print the lines that `page` returns for the width between the margins."""
    show(lambda width: within_margins(page(width - 2 * MARGIN), width - 2 * MARGIN), console)


def within_margins(lines: Iterable[Text], width: int) -> Iterator[Text]:
    """Indent the lines by the margin and truncate them to `width` cells beside it; empty lines stay empty.

    On a narrow terminal they are folded instead, because little of them would be left.
    """
    for line in lines:
        parts = folded(line, width) if width < USUAL - 2 * MARGIN else [line]
        for part in parts:
            part.rstrip()
            part.truncate(width, overflow="ellipsis")
            yield Text(" " * MARGIN).append_text(part) if part.plain else part


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
