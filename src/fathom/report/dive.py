"""The results of a dive into one kernel as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from fathom.report.screen import cells, console_or_default, put
from fathom.report.units import shorten, significant

if TYPE_CHECKING:
    from fathom.analysis.explaining import Explanation, Fact

_SPOTS = 6


def print_dive(explanation: Explanation, spots: list[dict[str, Any]], console: Console | None = None) -> None:
    """Print the limits of the kernel, heaviest first, then its stalls by line and instruction."""
    console = console_or_default(console)
    put(page(explanation, spots, cells(console)), console)


def page(explanation: Explanation, spots: list[dict[str, Any]], width: int) -> list[Text]:
    """The lines of the page, `width` cells wide."""
    lines = [Text(), Text(f" {shorten(explanation.family, width - 2)}", style="bold"), Text()]
    limits = explanation.limits
    lines.append(Text(" Limits" if limits else " No limit was identified", style="bold"))
    for fact in limits:
        lines += _limit(fact, width)
    lines += _fine(explanation, width)
    for level, title in (("source", "By source line"), ("sass", "By instruction")):
        own = [spot for spot in spots if spot["level"] == level][:_SPOTS]
        if own:
            lines += [Text(), Text(f" {title}: share of samples, stall reasons", style="bold")]
            lines += [_spot(spot, width) for spot in own]
    lines += _unseen(explanation, width)
    return [*lines, Text()]


def _limit(fact: Fact, width: int) -> Iterator[Text]:
    for number, line in enumerate(textwrap.wrap(fact.words, width - 6)):
        yield Text(f"   {'· ' if not number else '  '}{line}")
    for line in textwrap.wrap(fact.remedy, width - 8):
        yield Text(f"       {line}", style="dim")


def _fine(explanation: Explanation, width: int) -> list[Text]:
    fine = [f"{f.title} {significant(f.value)} {f.unit}" for f in explanation.facts if not f.holds]
    if not fine:
        return []
    wrapped = textwrap.wrap(", ".join(fine), width - 4)
    return [Text(), Text(" Not limiting", style="bold"), *(Text(f"   {line}") for line in wrapped)]


def _spot(spot: dict[str, Any], width: int) -> Text:
    reasons = ", ".join(name.replace("_", " ") for name in list(spot["reasons"])[:2])
    waste = "".join(f"; {count:,.0f} {what}" for what, count in spot["waste"].items())
    place = spot["where"] if spot["level"] == "sass" else f"{spot['where']}  {spot['text']}"
    return Text(shorten(f"   {100 * spot['share']:5.1f} %  {place}  ({reasons}{waste})", width))


def _unseen(explanation: Explanation, width: int) -> list[Text]:
    if not explanation.unseen:
        return []
    names = ", ".join(row["what"] for row in explanation.unseen)
    wrapped = textwrap.wrap(f"{names}: their counters were not collected", width - 4)
    return [Text(), Text(" Not analysed", style="bold"), *(Text(f"   {line}") for line in wrapped)]
