"""Lines on the terminal: labels on the left, wrapped text beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from fathom.report.screen import cells, console_or_default, put

_DOT, _HARD = " · ", "\N{NO-BREAK SPACE}"
LABEL = 10
MARGIN = 1


def show(lines: Iterable[Text], console: Console | None) -> None:
    """Print lines with a margin, cut to the terminal's width."""
    console = console_or_default(console)
    put((_fitted(line, width(console)) for line in lines), console)


def _fitted(line: Text, cells: int) -> Text:
    line.rstrip()
    line.truncate(cells, overflow="ellipsis")
    return Text(" " * MARGIN).append_text(line) if line.plain else line


def width(console: Console | None = None) -> int:
    """Cells of a line between its margins."""
    return cells(console_or_default(console)) - 2 * MARGIN


def size(count: float | None) -> str:
    """Bytes in binary units: 48 KiB, 141 GiB, 2 TiB."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count is not None and count >= scale:
            return f"{count / scale:.4g} {unit}" if count % scale == 0 else f"{count / scale:.3g} {unit}"
    return "unknown" if count is None else f"{count:.0f} B"


def paragraph(label: str, text: str, cells: int, style: str = "") -> Iterator[Text]:
    """`text` wrapped beside its bold label; nothing for an empty text."""
    yield from beside(label, (Text(line, style) for line in wrapped(text, cells - LABEL)))


def wrapped(text: str, cells: int) -> list[str]:
    """Wrap to lines of at most `cells`, keeping the parts between dots intact unless they are long."""
    parts = (part.replace(" ", _HARD) if len(part) < cells // 2 else part for part in text.split(_DOT))
    lines = textwrap.wrap(_DOT.join(parts), cells, break_on_hyphens=False)
    return [line.replace(_HARD, " ") for line in lines]


def beside(label: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Lines unchanged, the first of them beside the label."""
    for number, line in enumerate(lines):
        yield Text.assemble((f"{label if number == 0 else '':<{LABEL}}", "bold"), line)


def joined(*parts: str | None) -> str:
    """The non-empty parts, separated by dots."""
    return _DOT.join(part for part in parts if part)


def spans(numbers: Iterable[int]) -> str:
    """`0–3, 6` for 0, 1, 2, 3, 6."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}–{g[-1]}" for g in groups)
