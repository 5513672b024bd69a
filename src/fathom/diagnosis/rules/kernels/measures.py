"""Families with unhealthy measures: rows of measures.yaml, and rules for sampled counters in sampled.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from fathom.data import load
from fathom.diagnosis.rules.candidates import in_family, ms_of
from fathom.diagnosis.rules.kernels.sampled import SAMPLED, SAMPLED_NEEDS
from fathom.diagnosis.rules.rule import Candidate, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Family, Signals

MOST = 0.5  # of the time of large families: with less of it measured, the kind is not analysed
ABSENT = "its kernels have no value for {}; `fathom dive` measures more counters of a kernel"


@cache
def table() -> list[dict[str, Any]]:
    """Rows of measures.yaml."""
    return load(__package__, "measures")


@rule(*dict.fromkeys(row["kind"] for row in table()))
def measures(signals: Signals) -> Outcomes:
    """Report each family once, by the first row that matches; kinds whose measures are missing are not
    analysed.
    """
    families = [family for family in signals["kernels.counted"] if family.name]
    for family in families:
        candidate = next(filter(None, _candidates(signals, family)), None)
        if candidate is not None:
            yield candidate
    for kind in dict.fromkeys(row["kind"] for row in table()):
        rows = [row for row in table() if row["kind"] == kind]
        if missing := _missing(rows, families, signals["step.timeline_ms"]):
            yield NotAnalysed(kind, ABSENT.format(" or ".join(missing)))


def _missing(rows: list[dict[str, Any]], families: list[Family], step: float) -> list[str]:
    """Return the measures that a kind's rows need, if they are missing for most of the families' time."""
    large = [family for family in families if any(_about(row, family, step) for row in rows)]
    seen = ms_of(family for family in large if _measured(rows, family))
    if not large or seen >= MOST * ms_of(large):
        return []
    sampled = [", ".join(names) for kind, names in SAMPLED_NEEDS.items() if kind == rows[0]["kind"]]
    return [*(row["measure"].rstrip("_") for row in rows), *sampled]


def _measured(rows: list[dict[str, Any]], family: Family) -> bool:
    """Return whether the family has the measures that any of the rows, or the sampled rule, needs."""
    names = family.measures.keys()
    sampled = SAMPLED_NEEDS.get(rows[0]["kind"])
    by_rows = any(
        any(name.startswith(row["measure"]) for name in names)
        and row.get("when", row["measure"]) in {*names, row["measure"]}
        for row in rows
    )
    return by_rows or (sampled is not None and names >= set(sampled))


def _about(row: dict[str, Any], family: Family, step: float) -> bool:
    """Return whether the row applies to the family: it is large enough, and not excluded by name."""
    left_out = row.get("not") and re.search(row["not"], family.name)
    return bool(family.ms >= row["share"] * step and not left_out)


def _candidates(signals: Signals, family: Family) -> Iterator[Candidate | None]:
    yield from (_fits(row, family, signals["step.timeline_ms"]) for row in table())
    yield from (look(signals, family) for look in SAMPLED)


def _fits(row: dict[str, Any], family: Family, step: float) -> Candidate | None:
    if not _about(row, family, step):
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
    """Return the share of its time that the family takes once fixed."""
    if "factor" in row:
        return float(row["factor"])
    plus = row.get("plus", 0.0)
    now, then = value + plus, row["ideal"] + plus
    return min(now / then if "below" in row else then / now, 1.0)


def _candidate(row: dict[str, Any], family: Family, value: float) -> Candidate:
    evidence = [
        Evidence(row["says"], value, row.get("unit", "")),
        Evidence("time of this family", family.ms, "ms per step"),
    ]
    look = "fathom kernel"
    return in_family(
        row["kind"], family, _factor(row, value), evidence, doubt=0.5, confidence=0.75, check=look
    )
