"""Kinds that are recognised by ops or kernel names: rows of patterns.yaml."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fathom.data import load
from fathom.diagnosis.rules.rule import (
    Candidate,
    Candidates,
    Evidence,
    claims_of,
    family_totals,
    rule,
    shrink,
    site,
)
from fathom.diagnosis.signals import Signals, Work


@cache
def table() -> list[dict[str, Any]]:
    """Rows of patterns.yaml."""
    return load(__package__, "patterns")


@rule(*(row["kind"] for row in table()))
def patterns(signals: Signals) -> Candidates:
    """Assign each piece of work to the first row that matches."""
    works = signals["kernels.work"]
    total, left = family_totals(works), list(works)
    for row in table():
        mine = [work for work in left if _fits(row, work)]
        left = [work for work in left if work not in mine]
        if mine:
            yield _candidate(row, mine, total)


def _fits(row: dict[str, Any], work: Work) -> bool:
    if row.get("not") and re.search(row["not"], work.path):
        return False
    if row.get("same_dtype") and len(set(work.types[:2])) != 1:
        return False
    fields = {"path": work.path, "family": work.family}
    return all(re.search(row[name], value) for name, value in fields.items() if name in row)


def _candidate(row: dict[str, Any], works: list[Work], total: dict[str, float]) -> Candidate:
    ms, count, factor = (
        sum(work.ms for work in works),
        sum(work.count for work in works),
        float(row["factor"]),
    )
    return Candidate(
        kind=row["kind"],
        claims=claims_of(works, 1.0 - factor),
        evidence=[
            Evidence(row["says"], ms, "ms per step"),
            Evidence("number of these kernels", count, "per step"),
        ],
        changes=shrink(works, total, factor),
        doubt=row.get("doubt", 0.2),
        check=row["check"],
        **site(works, "source", "module", "region", "family"),
    )
