"""All kernel families by time, each with what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.analysis.measures.results import Portrait
from fathom.report import units
from fathom.report.kernel.words import GOOD, LABEL, NOT_KNOWN, colour, measure_of, name, paragraph, runs
from fathom.units import US_PER_MS

_COLUMNS = 58  # cells right of the name
_BOUND = 20
_REMEDIES = 4
_HOW = "without counters, launches and work alone tell; `fathom run --depth counters` samples them"


def overview(found: Sequence[Portrait], width: int, top: int | None) -> Iterator[Text]:
    """A line for each family, at most `top`, then what costs most time among the reasons."""
    if not found:
        yield Text("No kernel was recorded in the steps that the ledger uses.", "yellow")
        return
    shown = found if top is None or len(found) == top + 1 else found[:top]
    room = width - _COLUMNS
    head = f"{'ms':>8}{'%':>6}{'runs':>6}{'each':>9}  {'limited by':<{_BOUND}}{'used %':>7}"
    yield Text(f"{'kernel family':<{room}}{head}", "dim underline")
    for one in shown:
        yield _row(one, room)
    if len(found) > len(shown):
        rest = found[len(shown) :]
        time = units.duration(sum(one.ms for one in rest))
        yield Text(f"{len(rest)} other families take {time}; --all lists them", "dim")
    yield from _remedies(found, width)
    yield Text()
    yield from paragraph("counters", _counted(found), width, "dim")
    yield from paragraph("in depth", "fathom kernel SOUNDING PART-OF-A-NAME", width, "dim")


def _row(one: Portrait, room: int) -> Text:
    line = Text(f"{units.shorten(name(one), room - 1):<{room}}{units.significant(one.ms):>8}")
    each = units.duration(one.time_us["mean"] / US_PER_MS)
    line.append(f"{units.share(one.share, 1.0):>6}{runs(one):>6}{each:>9}  ")
    words, style = _bound(one)
    line.append(f"{units.shorten(words, _BOUND - 1):<{_BOUND}}", style)
    return line.append("" if one.used is None else f"{100 * one.used:>7.0f}", colour(one.used))


def _bound(one: Portrait) -> tuple[str, str]:
    """What limits a family, and how that looks; where it is not known, the ceiling that it is nearest to."""
    if one.bound != NOT_KNOWN:
        return one.bound, "bold" if one.used is not None and one.used >= GOOD else ""
    nearest = max(one.roofline, key=lambda level: level.used, default=None)
    return (f"under {nearest.name}" if nearest else NOT_KNOWN), "dim"


def _counted(found: Sequence[Portrait]) -> str:
    counted, whole = (sum(one.ms for one in some) for some in ([o for o in found if o.counted_as], found))
    if not counted:
        return _HOW
    others = sum(one.ms for one in found if one.counted_as not in ("", one.family))
    shared = f", {100 * others / whole:.1f} % as those of more launch shapes or kernels together"
    return f"of {100 * counted / whole:.1f} % of the kernels' time" + (shared if others else "")


def _remedies(found: Sequence[Portrait], width: int) -> Iterator[Text]:
    """The first reason of each family, once, by the time that it stands for."""
    whose: dict[str, list[Portrait]] = {}
    for one in found:
        first = measure_of(one, one.reasons[0]) if one.reasons else None
        if first is not None and first.advice:
            whose.setdefault(first.advice, []).append(one)
    costs = {text: sum(one.ms for one in families) for text, families in whose.items()}
    if costs:
        yield Text()
    for text in sorted(costs, key=lambda text: -costs[text])[:_REMEDIES]:
        first_name = units.shorten(name(whose[text][0]), max(width - LABEL - 30, 20))
        others = f" and {len(whose[text]) - 1} more" if len(whose[text]) > 1 else ""
        yield from paragraph(units.duration(costs[text]), f"{first_name}{others}: {text}", width)
