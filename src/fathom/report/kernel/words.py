"""Names, numbers and paragraphs shared by the screens about kernels."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.measures import Measure, Portrait, Reason
from fathom.analysis.results import LedgerRow
from fathom.report import ledger, units
from fathom.report.screen import paragraph

LABEL = 12  # cells of a paragraph's label
GOOD, FAIR = 0.8, 0.5  # of a ceiling
NOT_KNOWN = "not known"
_SCALED = ("B", "B/s", "Hz", "/s")


def name(portrait: Portrait) -> str:
    """Return the family's name as shown in a line."""
    return ledger.name(LedgerRow("", portrait.family, portrait.ms))


def colour(used: float | None) -> str:
    """Return the style for a share of a ceiling."""
    if used is None:
        return "dim"
    return "green" if used >= GOOD else "yellow" if used >= FAIR else "red"


def labelled(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    """`text` wrapped to the right of its label; nothing for an empty text."""
    return paragraph(f"{label:<{LABEL}}", text, width, style)


def measure_of(portrait: Portrait, reason: Reason) -> Measure | None:
    """The measure behind a reason."""
    return next((measure for measure in portrait.measures if measure.name == reason.measure), None)


def number(value: float, unit: str) -> str:
    """Return a measure's value as text, without a unit that is printed separately."""
    if unit == "s":
        return units.duration(value * 1e3)
    if unit in _SCALED:
        return units.scaled(value, unit)
    return f"{value:.1f}" if unit == "%" else units.significant(value)


def value(measure: Measure) -> str:
    """A measure's value and unit."""
    unit = "" if measure.unit in (*_SCALED, "s") else {"x": "×"}.get(measure.unit, measure.unit)
    return f"{number(measure.value, measure.unit)} {unit}".rstrip()


def error(measure: Measure) -> str:
    """A measure's standard error, in the unit of its value."""
    if measure.unit in (*_SCALED, "s"):
        return number(measure.error, measure.unit)
    if measure.error >= 0.001:
        return units.significant(measure.error, 2)
    return "<0.001" if measure.error else "0"


def runs(portrait: Portrait) -> str:
    """Launches per step."""
    if portrait.launches is None:
        return ""
    return f"{portrait.launches:.0f}" if portrait.launches >= 10 else units.significant(portrait.launches, 2)
