"""Families whose measures lie beyond what is healthy: rows of measures.yaml, and what takes several."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fathom.data import load
from fathom.diagnosis.rules.kernels.spilling import spilling
from fathom.diagnosis.rules.kernels.strided import strided
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, rule
from fathom.diagnosis.signals import Family, Signals

SAMPLED = (strided, spilling)  # of the same kinds, where only samples tell


@cache
def table() -> list[dict[str, Any]]:
    """Rows of measures.yaml."""
    return load(__package__, "measures")


@rule(*dict.fromkeys(row["kind"] for row in table()))
def measures(signals: Signals) -> Found:
    """A family is told of once, by the first that fits."""
    for family in filter(lambda one: one.name, signals["kernels.counted"]):
        found = next(filter(None, _candidates(signals, family)), None)
        if found is not None:
            yield found


def _candidates(signals: Signals, family: Family) -> Iterator[Candidate | None]:
    step = signals["step.timeline_ms"]
    yield from (_fits(row, family, step) for row in table())
    yield from (look(signals, family) for look in SAMPLED)


def _fits(row: dict[str, Any], family: Family, step: float) -> Candidate | None:
    if family.ms < row["share"] * step or (row.get("not") and re.search(row["not"], family.name)):
        return None
    if "when" in row and family.measures.get(row["when"], 0.0) <= row["over"]:
        return None
    values = [value for name, value in family.measures.items() if name.startswith(row["measure"])]
    if not values:
        return None
    worst = min(values) if "below" in row else max(values)
    beyond = worst < row["below"] if "below" in row else worst > row["above"]
    return _candidate(row, family, worst) if beyond else None


def _factor(row: dict[str, Any], value: float) -> float:
    """Of its time, once mended."""
    if "factor" in row:
        return float(row["factor"])
    plus = row.get("plus", 0.0)
    now, then = value + plus, row["ideal"] + plus
    return min(now / then if "below" in row else then / now, 1.0)


def _candidate(row: dict[str, Any], family: Family, value: float) -> Candidate:
    factor = _factor(row, value)
    return Candidate(
        kind=row["kind"],
        claims=[Claim("compute", family.name, (1 - factor) * family.ms)],
        evidence=[
            Evidence(row["says"], value, row.get("unit", "")),
            Evidence("it takes", family.ms, "ms a step"),
        ],
        changes=(f"family:{family.name}={factor:.6f}",),
        doubt=0.5,
        confidence=0.75,
        check=f"fathom kernel SOUNDING '{family.name[:40]}'",
        family=family.name,
    )
