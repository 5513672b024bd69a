"""Kernel families on a screen: all of them by time, or one in depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.analysis.measures import Portrait
from fathom.errors import BadInputError
from fathom.report.kernel.depth import depth
from fathom.report.kernel.overview import overview
from fathom.report.kernel.words import labelled, name
from fathom.report.screen import MARGIN, show, within_margins
from fathom.sounding import meant

if TYPE_CHECKING:
    from fathom.analysis.folding import Excerpt

__all__ = ["matching", "named", "page", "print_kernels", "save_samples"]

_LISTED, _NAMED = 25, 4


def matching(portraits: Sequence[Portrait], pattern: str | None) -> list[Portrait]:
    """The families that match the pattern, by the rules of `sounding.meant`.

    Raises BadInputError if none does.
    """
    wanted = set(named([portrait.family for portrait in portraits], pattern))
    return [portrait for portrait in portraits if portrait.family in wanted]


def named(families: Sequence[str], pattern: str | None) -> list[str]:
    """Like `matching`, for names."""
    if pattern is None:
        return list(families)
    own = meant(pattern, families)
    if not own:
        raise BadInputError(f"No kernel family matches '{pattern}'; leave the name out to list all.")
    return own


def print_kernels(
    portraits: Sequence[Portrait],
    pattern: str | None,
    console: Console | None = None,
    *,
    every: bool = False,
    counters: bool = False,
) -> None:
    """Print all families by time; with a pattern, the first family that matches in depth, or `every` one.

    Raises BadInputError if none matches.
    """
    show(lambda width: page(portraits, pattern, width, every=every, counters=counters), console)


def save_samples(excerpt: Excerpt, portrait: Portrait, path: Path) -> None:
    """Draw the samples around a launch of the family as SVG. Raises BadInputError for the path."""
    from fathom.report.kernel.picture import picture

    if path.suffix != ".svg":
        raise BadInputError(f"{path} is not an .svg file; give a file name that ends in .svg.")
    try:
        path.write_text(
            picture(excerpt, portrait.family, f"{name(portrait)} on {portrait.device}"), encoding="utf-8"
        )
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}.") from None


def page(
    portraits: Sequence[Portrait],
    pattern: str | None,
    width: int,
    *,
    every: bool = False,
    counters: bool = False,
) -> Iterator[Text]:
    """The whole screen, one Text per line of at most `width` cells. Raises BadInputError like `matching`."""
    chosen = matching(portraits, pattern)
    width -= 2 * MARGIN
    lines = [Text()]
    if pattern is None:
        lines += [*overview(chosen, width, None if every else _LISTED), Text()]
    else:
        for portrait in chosen if every else chosen[:1]:
            lines += [*depth(portrait, width, every=every, counters=counters), Text()]
        lines += [] if every else _also(chosen[1:], width)
    yield from within_margins(lines, width)


def _also(others: Sequence[Portrait], width: int) -> Iterator[Text]:
    """Names of the other families that match."""
    if others:
        names = ", ".join([*map(name, others[:_NAMED]), *(["…"] if len(others) > _NAMED else [])])
        count = "1 other matches" if len(others) == 1 else f"{len(others)} others match"
        yield from labelled("also", f"{count}: {names}", width, "dim")
        yield Text()
