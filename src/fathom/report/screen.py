"""Lines of text on a terminal: their width, and replacements for glyphs that it cannot show."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

NARROW, PIPED, BROAD = 80, 100, 120
_ASCII = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌▍▎▏", "#"), **dict(zip("▓▒░·–±µ…✗°×≈→", "=-.,-~u.xox~>", strict=True))}
)


def console_or_default(console: Console | None) -> Console:
    """The console given, or standard output without rich's own colours and wrapping."""
    return console or Console(highlight=False, soft_wrap=True)


def cells(console: Console) -> int:
    """Cells per line: the terminal's width within 80 to 120; 100 if the output is piped."""
    width = console.width if console.is_terminal or console.record else PIPED
    return min(max(width, NARROW), BROAD)


def put(lines: Iterable[Text], console: Console) -> None:
    """Print the lines unchanged; in plain ASCII on terminals without Unicode."""
    for line in lines:
        if console.options.ascii_only:
            line.plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode()
        console.print(line, no_wrap=True, crop=False, overflow="ignore", highlight=False)
