"""Launch shapes of one function that are each too rare to be told, and so are told together.

A cache that grows with every token is copied in ever new grids: none has samples enough, or it ran while
one group of counters was sampled and never again. Together they do what a family does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fathom.analysis.folding.results import Pool

Counts = Mapping[str, int]  # counters by family


def rare_of(told: Counts, ran: Counts) -> set[str]:
    """The families that less than half of the counters tell."""
    most = max(ran.values(), default=0)
    return {family for family in ran if 2 * told.get(family, 0) < most}


def passing_of(ran: Counts) -> set[str]:
    """The families that did not run while some of the counters were sampled."""
    most = max(ran.values(), default=0)
    return {family for family, count in ran.items() if count < most}


def pools_of(
    functions: Mapping[str, tuple[str, str]], rare: set[str], passing: set[str], device: int
) -> list[Pool]:
    """The pools of one device: of each function (kind, name) with rare shapes, these and the passing ones."""
    shapes: dict[tuple[str, str], list[str]] = {}
    for family, function in functions.items():
        if family in rare | passing:
            shapes.setdefault(function, []).append(family)
    names = [name for _, name in shapes]
    return [
        Pool(device, f"{name}, {len(own)} launch shapes", tuple(own))
        for (_, name), own in shapes.items()
        if len(own) > 1 and rare.intersection(own) and names.count(name) == 1
    ]


def by_family(pools: Sequence[Pool], device: int | None) -> dict[str, str]:
    """The label under which each pooled family of a device is told."""
    return {family: pool.label for pool in pools if pool.device == device for family in pool.families}


def facts_of(pools: Sequence[Pool]) -> list[dict[str, Any]]:
    """Pools as a sounding without samples keeps them among the facts of a rank."""
    return [pool._asdict() for pool in pools]


def recorded(facts: object) -> list[Pool]:
    """The same, read; what is none is left out."""
    rows = [row for row in facts if isinstance(row, dict)] if isinstance(facts, list) else []
    found = [(row.get("device"), row.get("label"), row.get("families")) for row in rows]
    return [
        Pool(device, label, tuple(name for name in families if isinstance(name, str)))
        for device, label, families in found
        if isinstance(device, int) and isinstance(label, str) and isinstance(families, list | tuple)
    ]
