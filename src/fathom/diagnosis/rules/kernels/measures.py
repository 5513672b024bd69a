"""Families with unhealthy `measures` of kinds, and rules for sampled counters in sampled.py."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import msgspec

from fathom.diagnosis.kinds import declared
from fathom.diagnosis.rules.candidates import in_family, ms_of
from fathom.diagnosis.rules.kernels.sampled import SAMPLED, SAMPLED_NEEDS
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Family, Signals

MOST = 0.5  # of the time of large families: with less of it measured, the kind is not analysed
ABSENT = "its kernels have no value for {}; `fathom dive` measures more counters of a kernel"


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An unhealthy measure of a family. `measure`: its name or prefix (the worst value counts).

    `below` or `above`: the threshold; `share`: the least share of the step; `ideal`: the value once fixed,
    after which the family takes value / ideal of its time (above: ideal / value, both plus `plus`), or
    `factor`; `when`: a measure that must be `over` a value; `not`: pattern of names that are excluded.
    """

    measure: str
    share: float
    says: str
    below: float | None = None
    above: float = math.inf
    ideal: float = 0.0
    plus: float = 0.0
    factor: float | None = None
    when: str = ""
    over: float = 0.0
    excluded: str = msgspec.field(name="not", default="")


ROWS = msgspec.convert(declared("measures"), dict[str, list[Row]])


@rule(*ROWS)
def measures(signals: Signals) -> Outcomes:
    """Report each family once, by the first row that matches; kinds that lack measures are not analysed."""
    families = [family for family in signals["kernels.counted"] if family.name]
    for family in families:
        candidate = next(filter(None, _candidates(signals, family)), None)
        if candidate is not None:
            yield candidate
    for kind, rows in ROWS.items():
        if missing := _missing(kind, rows, families, signals["step.timeline_ms"]):
            yield NotAnalysed(ABSENT.format(" or ".join(missing)), kind)


def _missing(kind: str, rows: list[Row], families: list[Family], step: float) -> list[str]:
    """Return the measures that a kind's rows need, if they are missing for most of the families' time."""
    large = [family for family in families if any(_about(row, family, step) for row in rows)]
    seen = ms_of(family for family in large if _measured(kind, rows, family))
    if not large or seen >= MOST * ms_of(large):
        return []
    sampled = [", ".join(SAMPLED_NEEDS[kind])] if kind in SAMPLED_NEEDS else []
    return [*(row.measure.rstrip("_") for row in rows), *sampled]


def _measured(kind: str, rows: list[Row], family: Family) -> bool:
    """Return whether the family has the measures that any of the rows, or the sampled rule, needs."""
    names = family.measures.keys()
    sampled = SAMPLED_NEEDS.get(kind)
    by_rows = any(
        any(name.startswith(row.measure) for name in names) and (not row.when or row.when in names)
        for row in rows
    )
    return by_rows or (sampled is not None and names >= set(sampled))


def _about(row: Row, family: Family, step: float) -> bool:
    """Return whether the row applies to the family: it is large enough, and not excluded by name."""
    excluded = row.excluded and re.search(row.excluded, family.name)
    return family.ms >= row.share * step and not excluded


def _candidates(signals: Signals, family: Family) -> Iterator[Candidate | None]:
    step = signals["step.timeline_ms"]
    yield from (_fits(kind, row, family, step) for kind, rows in ROWS.items() for row in rows)
    yield from (look(signals, family) for look in SAMPLED)


def _fits(kind: str, row: Row, family: Family, step: float) -> Candidate | None:
    if not _about(row, family, step) or (row.when and family.measures.get(row.when, 0.0) <= row.over):
        return None
    values = [value for name, value in family.measures.items() if name.startswith(row.measure)]
    if not values:
        return None
    worst = max(values) if row.below is None else min(values)
    beyond = worst > row.above if row.below is None else worst < row.below
    return _candidate(kind, row, family, worst) if beyond else None


def _factor(row: Row, value: float) -> float:
    """Return the share of its time that the family takes once fixed."""
    if row.factor is not None:
        return row.factor
    now, then = value + row.plus, row.ideal + row.plus
    return min(then / now if row.below is None else now / then, 1.0)


def _candidate(kind: str, row: Row, family: Family, value: float) -> Candidate:
    evidence = [Evidence(row.says, value, ""), Evidence("time of this family", family.ms, "ms per step")]
    look = "fathom kernel"
    return in_family(family, _factor(row, value), evidence, kind=kind, doubt=0.5, confidence=0.75, check=look)
