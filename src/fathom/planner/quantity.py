"""Quantities with an interval and their provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace

MEASURED, CALIBRATED, DATASHEET, ASSUMED = "measured here", "calibrated", "datasheet", "assumed"


@dataclass(frozen=True)
class Quantity:
    """A value in `unit` with the interval that should hold the truth, and where it comes from.

    `provenance` is `measured here`, `calibrated`, `datasheet` or `assumed`; `extrapolated` marks a value
    beyond the range for which its source has measurements.
    """

    value: float
    unit: str
    provenance: str
    source: str
    low: float | None = None
    high: float | None = None
    extrapolated: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """Return the low and high end; the value itself where the source gives no spread."""
        return (
            self.value if self.low is None else self.low,
            self.value if self.high is None else self.high,
        )

    def times(self, factor: float) -> Quantity:
        """Return the quantity and its interval multiplied by a factor."""
        low, high = self.interval
        return replace(self, value=self.value * factor, low=low * factor, high=high * factor)


def spread(value: float, share: float, unit: str, provenance: str, source: str) -> Quantity:
    """Return a quantity whose interval is `share` (0.1 is 10 %) to both sides of its value."""
    return Quantity(value, unit, provenance, source, value * (1 - share), value * (1 + share))
