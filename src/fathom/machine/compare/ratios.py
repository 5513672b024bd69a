"""Ratios between the ceilings of two machines."""

from __future__ import annotations

from typing import Literal

from fathom.machine.ceilings import Ceiling
from fathom.machine.compare.facts import Facts
from fathom.machine.compare.results import Ratio, Unknown


def ratios(a: Facts, b: Facts, name_a: str, name_b: str) -> tuple[list[Ratio], list[Unknown]]:
    """Return a row for each ceiling that both measured on their first GPU or host, and the unmatched ones."""
    one, other = _first(a), _first(b)
    bare = [name for name, found in ((name_a, one), (name_b, other)) if not found]
    if bare:
        why = "; `fathom machine measure` measures them"
        names = [*dict.fromkeys(bare)]
        who = f"{' and '.join(names)} {'have' if len(names) > 1 else 'has'} none"
        return [], [Unknown(what="ceilings", why=who + why)]
    shared = [
        (one[name], other[name]) for name in one if name in other and one[name].unit == other[name].unit
    ]
    alone = [_only(one, other, name_a), _only(other, one, name_b)]
    return [_ratio(x, y) for x, y in shared], [found for found in alone if found]


def _first(machine: Facts) -> dict[str, Ceiling]:
    """Return the ceilings of the host and of the first measured GPU, by id."""
    ordered = sorted(machine.ceilings, key=lambda c: -1 if c.device is None else c.device, reverse=True)
    latest = {ceiling.id: ceiling for ceiling in ordered}
    return {c.id: latest[c.id] for c in machine.ceilings}


def _only(one: dict[str, Ceiling], other: dict[str, Ceiling], name: str) -> Unknown | None:
    ids = [i for i in one if i not in other or one[i].unit != other[i].unit]
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
