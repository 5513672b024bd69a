"""The first lines of a report: what bounds the step, the first thing to do, and what that saves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import Examination, Finding
from fathom.report import money, units

MOST = 4  # lines
NOTHING = "No remedy is known for what bounds it."


def section(examination: Examination, width: int) -> Iterator[Text]:
    """At most MOST lines; none without a verdict."""
    verdict = examination.verdict
    if verdict is None:
        return
    lines = textwrap.wrap(verdict.headline, width)
    yield from (Text(line, "bold") for line in lines)
    found = next((one for one in examination.findings if one.id == verdict.finding), None)
    text = " ".join(filter(None, (verdict.action or NOTHING, _saves(found))))
    left = textwrap.wrap(text, width, max_lines=max(MOST - len(lines), 1), placeholder=" …")
    yield from (Text(line, "bold green" if verdict.action else "dim") for line in left)


def _saves(one: Finding | None) -> str:
    """`Saves 3.2 ms (2.1 to 4.3), 12 % of the step.`"""
    if one is None or one.gain_ms is None or one.low_ms is None or one.high_ms is None:
        return ""
    low, high = units.significant(one.low_ms, 2), units.significant(one.high_ms, 2)
    share = f", {100 * one.share:.0f} % of the step" if one.share is not None else ""
    worth = f", {money.a_day(one)}" if one.saves_per_day else ""
    word = "May save" if units.perhaps(one.gain_ms, one.low_ms, one.high_ms) else "Saves"
    return f"{word} {units.significant(one.gain_ms, 2)} ms ({low} to {high}){share}{worth}."
