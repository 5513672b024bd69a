"""The first lines of a report: what bounds the step, the first thing to do, and what that saves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import Examination, Finding
from fathom.report import money, units

MOST = 4  # lines
NOTHING = "No remedy is known for this bound."


def section(examination: Examination, width: int) -> Iterator[Text]:
    """The verdict in at most MOST lines; nothing without a verdict."""
    verdict = examination.verdict
    if verdict is None:
        return
    lines = textwrap.wrap(verdict.headline, width)
    yield from (Text(line, "bold") for line in lines)
    left = textwrap.wrap(advice(examination), width, max_lines=max(MOST - len(lines), 1), placeholder=" …")
    yield from (Text(line, "bold green" if verdict.action else "dim") for line in left)


def advice(examination: Examination) -> str:
    """The first thing to do and its saving; empty without a verdict."""
    verdict = examination.verdict
    if verdict is None:
        return ""
    chosen = next((finding for finding in examination.findings if finding.id == verdict.finding), None)
    return " ".join(filter(None, (verdict.action or NOTHING, _saves(chosen))))


def _saves(finding: Finding | None) -> str:
    """`Saves 3.2 ms (2.1 to 4.3), 12 % of the step.`"""
    if finding is None or finding.gain_ms is None or finding.low_ms is None or finding.high_ms is None:
        return ""
    low, high = units.significant(finding.low_ms, 2), units.significant(finding.high_ms, 2)
    share = f", {100 * finding.share:.0f} % of the step" if finding.share is not None else ""
    worth = f", {money.a_day(finding)}" if finding.saves_per_day else ""
    word = "May save" if units.perhaps(finding.gain_ms, finding.low_ms, finding.high_ms) else "Saves"
    return f"{word} {units.significant(finding.gain_ms, 2)} ms ({low} to {high}){share}{worth}."
