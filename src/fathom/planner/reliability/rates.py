"""How often jobs fail: rates by component, from published logs or as the user states them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import msgspec

from fathom.data import load
from fathom.errors import BadInputError, nearest
from fathom.planner.quantity import ASSUMED, CALIBRATED, Quantity

HOURS_PER_DAY, SHORTEST_H = 24.0, 1e-9
_CLUSTERS = 0.35  # spread of the rate between clusters of one chip, in the logarithm
_OTHER_CHIP = 0.6


@dataclass(frozen=True)
class Failures:
    """Failures per GPU hour by component, with the uncertainty of their sum."""

    by_component: Mapping[str, float]
    spread: float
    provenance: str
    source: str

    @property
    def rate(self) -> float:
        """Return all failures per GPU hour."""
        return sum(self.by_component.values())

    def mtbf_h(self, gpus: int) -> Quantity:
        """Return the mean hours between failures of a job on `gpus`."""
        value = 1 / (self.rate * gpus)
        wide = math.exp(1.645 * self.spread)
        return Quantity(value, "h", self.provenance, self.source, value / wide, value * wide)


class Log(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published failure log: interruptions by component, over GPUs and days."""

    name: str
    chips: list[str]
    gpus: int
    days: float
    source: str
    counts: dict[str, int]


@cache
def logs() -> dict[str, Log]:
    """Return the published logs by name."""
    return {log.name: log for log in msgspec.convert(load(__package__, "logs"), list[Log])}


def failures_of(chip: str, log: str | None = None, mtbf_h: float | None = None, gpus: int = 1) -> Failures:
    """Return the failures of a chip: of its log, of another chip's, or by a stated time between them."""
    if mtbf_h is not None:
        if not SHORTEST_H <= mtbf_h < math.inf:
            raise BadInputError(f"A time between failures of {mtbf_h:g} h is impossible; give hours above 0.")
        return Failures({"stated": 1 / mtbf_h / gpus}, 0.1, ASSUMED, "given by the user")
    if log is not None and log not in logs():
        raise BadInputError(f"{log!r} is not a failure log; {nearest(log, logs())}.")
    mine = next((row for row in logs().values() if chip in row.chips), None)
    row = logs()[log] if log else mine or next(iter(logs().values()))
    known = chip in row.chips
    hours = row.gpus * row.days * HOURS_PER_DAY
    counts = {name: count / hours for name, count in row.counts.items()}
    spread = math.hypot(_CLUSTERS if known else _OTHER_CHIP, 1 / math.sqrt(sum(row.counts.values())))
    source = row.source if known else f"of another chip: {row.source}"
    return Failures(counts, spread, CALIBRATED if known else ASSUMED, source)
