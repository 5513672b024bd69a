"""The results of a dive into one kernel as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from fathom.report.screen import paragraph, show
from fathom.report.units import shorten, significant

if TYPE_CHECKING:
    from fathom.analysis.explaining import Explanation
    from fathom.sounding import HotSpot

_SPOTS = 6


def print_dive(explanation: Explanation, spots: list[HotSpot]) -> None:
    """Print the limits of the kernel, heaviest first, then its stalls by line and instruction."""
    show(lambda width: _page(explanation, spots, width))


def dive_content(explanation: Explanation, spots: list[HotSpot]) -> dict[str, object]:
    """Return the content of `print_dive` for JSON."""
    import msgspec

    return {**msgspec.to_builtins(explanation), "hot_spots": msgspec.to_builtins(spots)}


def _page(explanation: Explanation, spots: list[HotSpot], width: int) -> Iterator[Text]:
    yield from (Text(), Text(f" {shorten(explanation.family, width - 2)}", style="bold"), Text())
    yield Text(" Limits" if explanation.limits else " No limit was identified", style="bold")
    for fact in explanation.limits:
        yield from paragraph("   · ", fact.words, width - 1, label_style="")
        yield from paragraph("       ", fact.remedy, width - 1, "dim")
    fine = (fact for fact in explanation.facts if not fact.holds)
    named = ", ".join(f"{fact.title} {significant(fact.value)} {fact.unit}" for fact in fine)
    yield from _part("Not limiting", paragraph("   ", named, width - 1))
    for level, title in (("source", "By source line"), ("sass", "By instruction")):
        own = [_spot(spot, width) for spot in spots if spot.level == level][:_SPOTS]
        yield from _part(f"{title}: share of samples, stall reasons", own)
    unseen = ", ".join(row["what"] for row in explanation.unseen)
    text = f"{unseen}: their counters were not collected" if unseen else ""
    yield from _part("Not analysed", paragraph("   ", text, width - 1))
    yield Text()


def _part(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield the lines under their title; nothing without lines."""
    for number, line in enumerate(lines):
        yield from () if number else (Text(), Text(f" {title}", style="bold"))
        yield line


def _spot(spot: HotSpot, width: int) -> Text:
    reasons = ", ".join(name.replace("_", " ") for name in list(spot.reasons)[:2])
    waste = "".join(f"; {count:,.0f} {what}" for what, count in spot.waste.items())
    place = spot.where if spot.level == "sass" else f"{spot.where}  {spot.text}"
    return Text(shorten(f"   {100 * spot.share:5.1f} %  {place}  ({reasons}{waste})", width))
