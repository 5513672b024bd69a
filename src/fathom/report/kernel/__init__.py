"""Kernel families on a screen: all of them by time, or one in depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.analysis.measures.results import Portrait
from fathom.errors import BadInputError
from fathom.report.kernel.depth import depth
from fathom.report.kernel.overview import overview
from fathom.report.kernel.words import name, paragraph
from fathom.report.screen import cells, console_or_default, put
from fathom.sounding import meant

if TYPE_CHECKING:
    from fathom.analysis.folding import Stretch

__all__ = ["matching", "named", "page", "print_kernels", "save_picture"]

MARGIN = 1
_LISTED, _NAMED = 25, 4


def matching(found: Sequence[Portrait], pattern: str | None) -> list[Portrait]:
    """The families that the pattern names, as `sounding.meant` says.

    Raises BadInputError where it names none.
    """
    wanted = set(named([one.family for one in found], pattern))
    return [one for one in found if one.family in wanted]


def named(families: Sequence[str], pattern: str | None) -> list[str]:
    """The same, of names alone."""
    if pattern is None:
        return list(families)
    own = meant(pattern, families)
    if not own:
        raise BadInputError(f"No kernel family is named like '{pattern}'; without a name all are listed.")
    return own


def print_kernels(
    found: Sequence[Portrait],
    pattern: str | None,
    console: Console | None = None,
    *,
    every: bool = False,
    counters: bool = False,
) -> None:
    """Print all families by time, or with a pattern the first one that it names in depth, `every`: each.

    Raises BadInputError where the pattern names none.
    """
    console = console_or_default(console)
    put(page(found, pattern, cells(console), every=every, counters=counters), console)


def save_picture(stretch: Stretch, one: Portrait, path: Path) -> None:
    """Draw the samples of `stretch` around a launch of the family. Raises BadInputError for the file."""
    from fathom.report.kernel.picture import picture

    if path.suffix != ".svg":
        raise BadInputError(f"{path} is no .svg file; name one that ends in .svg.")
    try:
        path.write_text(picture(stretch, one.family, f"{name(one)} on {one.device}"), encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}.") from None


def page(
    found: Sequence[Portrait], pattern: str | None, width: int, *, every: bool = False, counters: bool = False
) -> Iterator[Text]:
    """The whole screen, one Text a line, each at most `width` cells. Raises BadInputError like `matching`."""
    chosen = matching(found, pattern)
    width -= 2 * MARGIN
    lines = [Text()]
    if pattern is None:
        lines += [*overview(chosen, width, None if every else _LISTED), Text()]
    else:
        for one in chosen if every else chosen[:1]:
            lines += [*depth(one, width, every=every, counters=counters), Text()]
        lines += [] if every else _also(chosen[1:], width)
    for line in lines:
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        yield Text(" " * MARGIN).append_text(line)


def _also(others: Sequence[Portrait], width: int) -> Iterator[Text]:
    """Other families that the pattern names."""
    if others:
        names = ", ".join(name(one) for one in others[:_NAMED]) + (", …" if len(others) > _NAMED else "")
        count = "1 other matches" if len(others) == 1 else f"{len(others)} others match"
        yield from paragraph("also", f"{count}: {names}", width, "dim")
        yield Text()
