"""Amounts of money as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import Cost, Finding
from fathom.report import units


def amount(value: float, currency: str) -> str:
    """`22.7 USD`, `0.0000109 USD`."""
    return f"{units.significant(value)} {currency}"


def a_day(finding: Finding) -> str:
    """`22.7 USD per day and GPU`; empty without a price or a gain."""
    saved = finding.saves_per_day
    return "" if saved is None else f"{amount(saved.amount, saved.currency)} per day and GPU"


def section(cost: Cost | None, width: int) -> Iterator[Text]:
    """The cost of a step, a million tokens and a million samples."""
    if cost is None:
        return
    several = f" · {cost.devices} devices" if cost.devices > 1 else ""
    parts = [f"{amount(cost.price_per_hour, cost.currency)} per GPU-hour{several}"]
    for words, value in (
        ("a step", cost.per_step),
        ("a million tokens", cost.per_million_tokens),
        ("a million samples", cost.per_million_samples),
    ):
        parts += [] if value is None else [f"{words} {amount(value, cost.currency)}"]
    for number, line in enumerate(textwrap.wrap(" · ".join(parts), width - 10)):
        yield Text.assemble((f"{'cost' if number == 0 else '':<10}", "bold"), line)
