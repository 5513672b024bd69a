"""A comparison of two machines as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

from fathom.machine.compare import CeilingRatio, Difference, MachineComparison, ResultKind
from fathom.report import units
from fathom.report.machine.ceilings import value
from fathom.report.machine.words import labelled
from fathom.report.screen import joined, reasons_of

_LOOK = {
    "does not carry over": ("✗", "red"),
    "check again": ("?", "yellow"),
    "carries over": ("✓", "green"),
    "slower": ("", "red"),
    "faster": ("", "green"),
    "same": ("", "dim"),
}
_KIND, _WHAT = 44, 38


def lines(comparison: MachineComparison, cells: int) -> Iterator[Text]:
    """Yield the headline, kinds of results, differences, ceilings, and comparisons that lacked data."""
    yield Text()
    yield from (Text(line, "bold") for line in textwrap.wrap(comparison.headline, cells))
    yield Text()
    yield from labelled("from", joined(comparison.a.name, comparison.a.summary), cells)
    yield from labelled("to", joined(comparison.b.name, comparison.b.summary), cells)
    yield Text()
    if comparison.settings:
        yield from _kinds(comparison.settings, "setting")
        yield Text()
    yield from _kinds(comparison.kinds)
    yield Text()
    yield from _differences(comparison.differences, cells)
    yield from _ceilings(comparison.ceilings)
    if comparison.abstained:
        yield Text()
    unknown = reasons_of((entry.why, entry.what) for entry in comparison.abstained)
    yield from labelled("unknown", unknown, cells, "dim")
    yield Text()


def _kinds(kinds: Sequence[ResultKind], head: str = "result") -> Iterator[Text]:
    yield Text(f"  {head:<{_KIND}}because of", "dim underline")
    for kind in kinds:
        sign, colour = _LOOK[kind.severity]
        because = ", ".join(kind.because) or ("unknown: " + ", ".join(kind.unknown) if kind.unknown else "")
        yield Text.assemble((f"{sign} ", colour), f"{kind.what:<{_KIND}}", (because, "dim"))


def _differences(differences: Sequence[Difference], cells: int) -> Iterator[Text]:
    """Yield the differences, worst first, with the reason why they matter; harmless ones on one line."""
    for severity in ("does not carry over", "check again"):
        for difference in differences:
            if difference.severity == severity:
                yield from _difference(difference, cells)
    differ = [d.what for d in differences if d.severity == "carries over" and d.a != d.b]
    alike = [d.what for d in differences if d.a == d.b]
    yield from labelled("harmless", ", ".join(differ), cells, "dim")
    yield from labelled("alike", ", ".join(alike), cells, "dim")


def _difference(difference: Difference, cells: int) -> Iterator[Text]:
    sign, colour = _LOOK[difference.severity]
    yield Text.assemble(
        (f"{sign} ", colour),
        (f"{units.shorten(difference.what, _WHAT - 1):<{_WHAT}}", "bold"),
        f"{difference.a} → {difference.b}",
    )
    for line in textwrap.wrap(f"{difference.id}: {difference.why}", cells - 2):
        yield Text(f"  {line}", "dim")


def _ceilings(ratios: Sequence[CeilingRatio]) -> Iterator[Text]:
    if not ratios:
        return
    yield Text()
    yield Text(f"  {'ceiling':<28}{'from':>14}{'to':>14}{'ratio':>8}   {'spread':<16}", "dim underline")
    for ratio in ratios:
        spread = f"{ratio.low:.3f} to {ratio.high:.3f}"
        yield Text.assemble(
            f"  {units.shorten(ratio.id, 27):<28}",
            f"{value(ratio.a, ratio.unit):>14}{value(ratio.b, ratio.unit):>14}{ratio.ratio:>8.2f}   ",
            (f"{spread:<16}", "dim"),
            (ratio.verdict, _LOOK[ratio.verdict][1]),
        )
