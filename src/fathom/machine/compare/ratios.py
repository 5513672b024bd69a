"""Ratios between the ceilings of two machines."""

from __future__ import annotations

from typing import Literal

from fathom.machine.ceilings import Ceiling
from fathom.machine.compare.facts import Facts
from fathom.machine.compare.results import Ratio, Unknown


def ratios(a: Facts, b: Facts, name_a: str, name_b: str) -> tuple[list[Ratio], list[Unknown]]:
    """Return a row for each ceiling that both measured on their first GPU or host, and the unmatched ones."""
    of_a, of_b = _first(a), _first(b)
    bare = [name for name, ceilings in ((name_a, of_a), (name_b, of_b)) if not ceilings]
    if bare:
        why = "; `fathom machine measure` measures them"
        names = [*dict.fromkeys(bare)]
        who = f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} none"
        return [], [Unknown(what="ceilings", why=who + why)]
    shared = [
        (of_a[name], of_b[name]) for name in of_a if name in of_b and of_a[name].unit == of_b[name].unit
    ]
    unmatched = [_only(of_a, of_b, name_a), _only(of_b, of_a, name_b)]
    return [_ratio(x, y) for x, y in shared], [ceilings for ceilings in unmatched if ceilings]


def _first(machine: Facts) -> dict[str, Ceiling]:
    """Return the ceilings of the host and of the first measured GPU, by id."""
    ordered = sorted(machine.ceilings, key=lambda c: -1 if c.device is None else c.device, reverse=True)
    latest = {ceiling.id: ceiling for ceiling in ordered}
    return {c.id: latest[c.id] for c in machine.ceilings}


def _only(ceilings: dict[str, Ceiling], other: dict[str, Ceiling], name: str) -> Unknown | None:
    ids = [i for i in ceilings if i not in other or ceilings[i].unit != other[i].unit]
    return Unknown(what=", ".join(ids), why=f"measured on {name} only") if ids else None


def _ratio(a: Ceiling, b: Ceiling) -> Ratio:
    low, high = b.low / a.high, b.high / a.low
    verdict: Literal["same", "faster", "slower"] = "same"
    if not low <= 1 <= high:
        more = low > 1
        verdict = "faster" if more != (a.unit == "s") else "slower"
    return Ratio(
        id=a.id,
        unit=a.unit,
        a=a.value,
        b=b.value,
        ratio=b.value / a.value,
        low=low,
        high=high,
        verdict=verdict,
    )
