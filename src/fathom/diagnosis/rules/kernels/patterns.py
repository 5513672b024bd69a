"""Kinds that are recognised by ops or kernel names: rows of patterns.yaml."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fathom.data import load
from fathom.diagnosis.rules.candidates import PLACE, mended, ms_of, number_of_kernels
from fathom.diagnosis.rules.rule import Candidates, Evidence, rule
from fathom.diagnosis.signals import Signals, Work


@cache
def table() -> list[dict[str, Any]]:
    """Rows of patterns.yaml."""
    return load(__package__, "patterns")


@rule(*(row["kind"] for row in table()))
def patterns(signals: Signals) -> Candidates:
    """Assign each piece of work to the first row that matches."""
    left = list(signals["kernels.work"])
    for row in table():
        mine = [work for work in left if _fits(row, work)]
        left = [work for work in left if work not in mine]
        if mine:
            yield mended(
                signals,
                row["kind"],
                (mine, float(row["factor"])),
                place=PLACE,
                evidence=[Evidence(row["says"], ms_of(mine), "ms per step"), number_of_kernels(mine)],
                doubt=row.get("doubt", 0.2),
                check=row["check"],
            )


def _fits(row: dict[str, Any], work: Work) -> bool:
    if row.get("not") and re.search(row["not"], work.path):
        return False
    if row.get("same_dtype") and len(set(work.types[:2])) != 1:
        return False
    fields = {"path": work.path, "family": work.family}
    return all(re.search(row[name], value) for name, value in fields.items() if name in row)
