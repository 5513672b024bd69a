"""Kinds of counters, told by their names; the rules are in `kinds.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from fathom.data import load

OVER_TIME = "a mean over time, because its denominator was not sampled with it"


class Kind(NamedTuple):
    """`kind` is mean, sum or ratio; `unit` that of the folded value; `weight` a ratio's denominator."""

    kind: str
    unit: str
    weight: str | None = None


@lru_cache(maxsize=1 << 14)
def bare(name: str) -> str:
    """A counter's name without the prefixes of its set: `SM_A.TriageCompute.sm__x.avg` is `sm__x.avg`."""
    parts = name.split(".")
    return ".".join(parts[next((i for i, part in enumerate(parts) if "__" in part), 0) :])


@lru_cache(maxsize=1 << 14)
def base(name: str) -> str:
    """A counter's name without prefixes and without what is counted of it: `sm__x`."""
    return bare(name).partition(".")[0]


def kind_of(name: str) -> Kind | None:
    """How the counter folds, or None for a name whose meaning nobody described."""
    found = next((row for row in _rules()["suffixes"] if name.endswith(row["ends"])), None)
    return found and Kind(found["kind"], found["unit"], _weight(name, found))


def _weight(name: str, row: dict[str, Any]) -> str | None:
    """What the counter is a ratio of: a share of elapsed cycles is one of the cycles of its unit's clock."""
    if row["kind"] == "ratio":
        return _rules()["weights"].get(base(name))
    clocks = _rules()["clocks"].items() if row.get("cycles") else ()
    return next((clock for unit, clock in clocks if base(name).startswith(unit)), None)


def is_share(name: str) -> bool:
    """Whether the counter is a ratio of a part to its whole."""
    kind = kind_of(name)
    return bool(kind and kind.kind == "ratio" and base(name).startswith(tuple(_rules()["shares"])))


def denominators(names: Sequence[str]) -> list[int | None]:
    """For each name the place among `names` of what it is a ratio of; None where that is not among them."""
    place = {base(name): number for number, name in reversed(list(enumerate(names)))}
    kinds = [kind_of(name) for name in names]
    return [place.get(kind.weight) if kind and kind.weight else None for kind in kinds]


def activity(names: Sequence[str]) -> int | None:
    """The place of the counter that tells best whether anything runs."""
    bases = [base(name) for name in names]
    return next((bases.index(known) for known in _rules()["activity"] if known in bases), None)


def telling(names: Sequence[str]) -> list[int]:
    """The places of the counters of units that only kernels keep busy."""
    units = tuple(_rules()["telling"])
    return [place for place, name in enumerate(names) if base(name).startswith(units)]


@cache
def _rules() -> dict[str, Any]:
    return load(__package__, "kinds")
