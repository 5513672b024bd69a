"""Kernel families on a screen: all of them by time, or one in depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from fathom.analysis.measures import NOT_KNOWN, Portrait
from fathom.errors import BadInputError, file_error, no_match
from fathom.report import units
from fathom.report.kernel.depth import GOOD, LABEL, colour, depth, labelled, measure_of, name, runs
from fathom.report.screen import LEAST, MARGIN, grouped, show, within_margins
from fathom.sounding import meant
from fathom.units import US_PER_MS

if TYPE_CHECKING:
    from fathom.analysis.folding import Excerpt


_LISTED, _NAMED = 25, 4


def matching(portraits: Sequence[Portrait], pattern: str | None) -> list[Portrait]:
    """Return the families that match the pattern, as `sounding.meant` does. Raises BadInputError if none."""
    wanted = set(named([portrait.family for portrait in portraits], pattern))
    return [portrait for portrait in portraits if portrait.family in wanted]


def named(families: Sequence[str], pattern: str | None) -> list[str]:
    """Like `matching`, for names."""
    if pattern is None:
        return list(families)
    own = meant(pattern, families)
    if not own:
        raise BadInputError(no_match("kernel family", pattern, families))
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
        title = f"{name(portrait)} on {portrait.label}"
        path.write_text(picture(excerpt, portrait.family, title), encoding="utf-8")
    except OSError as error:
        raise BadInputError(file_error(path, error, "written")) from None


def page(
    portraits: Sequence[Portrait],
    pattern: str | None,
    width: int,
    *,
    every: bool = False,
    counters: bool = False,
) -> Iterator[Text]:
    """Yield the screen, one Text per line of at most `width` cells. Raises BadInputError like `matching`."""
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
    """Return the names of the other families that match."""
    if others:
        names = ", ".join([*map(name, others[:_NAMED]), *(["…"] if len(others) > _NAMED else [])])
        count = "1 other matches" if len(others) == 1 else f"{len(others)} others match"
        yield from labelled("also", f"{count}: {names}", width, "dim")
        yield Text()


_COLUMNS = 58  # cells right of the name
_BOUND = 20
_REMEDIES = 4
_HOW = "none: limits come from launches and work alone; `fathom run --depth counters` samples them"


def overview(portraits: Sequence[Portrait], width: int, top: int | None) -> Iterator[Text]:
    """Yield one line per family, at most `top`, then the reasons that cost most time."""
    if not portraits:
        yield Text("No kernel was recorded in the steps that the ledger uses.", "yellow")
        return
    shown = portraits if top is None or len(portraits) == top + 1 else portraits[:top]
    room = max(width - _COLUMNS, LEAST)
    head = f"{'ms':>8}{'%':>6}{'runs':>6}{'each':>9}  {'limited by':<{_BOUND}}{'used %':>7}"
    yield Text(f"{'kernel family':<{room}}{head}", "dim underline")
    for portrait in shown:
        yield _row(portrait, room)
    if len(portraits) > len(shown):
        rest = portraits[len(shown) :]
        time = units.duration(sum(portrait.ms for portrait in rest))
        yield Text(f"{len(rest)} other families take {time}; --all lists them", "dim")
    yield from _remedies(portraits, width)
    yield Text()
    yield from labelled("counters", _counted(portraits), width, "dim")
    yield from labelled("in depth", "fathom kernel SOUNDING PART-OF-A-NAME", width, "dim")


def _row(portrait: Portrait, room: int) -> Text:
    line = Text(f"{units.shorten(name(portrait), room - 1):<{room}}{units.significant(portrait.ms):>8}")
    each = units.duration(portrait.time_us["mean"] / US_PER_MS)
    line.append(f"{units.share(portrait.share, 1.0):>6}{runs(portrait):>6}{each:>9}  ")
    words, style = _bound(portrait)
    line.append(f"{units.shorten(words, _BOUND - 1):<{_BOUND}}", style)
    return line.append("" if portrait.used is None else f"{100 * portrait.used:>7.0f}", colour(portrait.used))


def _bound(portrait: Portrait) -> tuple[str, str]:
    """Return the limit of a family and its style; the nearest ceiling if the limit is not known."""
    if portrait.bound != NOT_KNOWN:
        return portrait.bound, "bold" if portrait.used is not None and portrait.used >= GOOD else ""
    nearest = max(portrait.roofline, key=lambda level: level.used, default=None)
    return (f"under {nearest.name}" if nearest else NOT_KNOWN), "dim"


def _counted(portraits: Sequence[Portrait]) -> str:
    total = sum(portrait.ms for portrait in portraits)
    counted = sum(portrait.ms for portrait in portraits if portrait.counted_as)
    if not counted:
        return _HOW
    others = sum(portrait.ms for portrait in portraits if portrait.counted_as not in ("", portrait.family))
    shared = f", {100 * others / total:.1f} % shared by several launch shapes or kernels"
    return f"of {100 * counted / total:.1f} % of the kernels' time" + (shared if others else "")


def _remedies(portraits: Sequence[Portrait], width: int) -> Iterator[Text]:
    """Yield the distinct first reasons of the families, sorted by the time of their families."""
    with_reasons = (portrait for portrait in portraits if portrait.reasons)
    firsts = ((measure_of(portrait, portrait.reasons[0]), portrait) for portrait in with_reasons)
    whose = grouped((first.advice, portrait) for first, portrait in firsts if first and first.advice)
    costs = {text: sum(portrait.ms for portrait in families) for text, families in whose.items()}
    if costs:
        yield Text()
    for text in sorted(costs, key=lambda text: -costs[text])[:_REMEDIES]:
        first_name = units.shorten(name(whose[text][0]), max(width - LABEL - 30, 20))
        others = f" and {len(whose[text]) - 1} more" if len(whose[text]) > 1 else ""
        yield from labelled(units.duration(costs[text]), f"{first_name}{others}: {text}", width)
