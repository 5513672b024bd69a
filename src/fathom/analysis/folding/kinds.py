"""The kind of each counter, which decides how it folds, from its name; the rules are in `kinds.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from fathom.data import load


class CounterKind(NamedTuple):
    """`kind` is mean, sum or ratio; `unit` belongs to the folded value; `weight` is a ratio's denominator."""

    kind: str
    unit: str
    weight: str | None = None


@lru_cache(maxsize=1 << 14)
def bare(name: str) -> str:
    """Return a counter's name without its set's prefixes: `sm__x.avg` for `SM_A.TriageCompute.sm__x.avg`."""
    parts = name.split(".")
    return ".".join(parts[next((i for i, part in enumerate(parts) if "__" in part), 0) :])


@lru_cache(maxsize=1 << 14)
def base(name: str) -> str:
    """Return a counter's name without prefixes and suffixes, as `sm__x`."""
    return bare(name).partition(".")[0]


def kind_of(name: str) -> CounterKind | None:
    """Return the kind of a counter, or None if no rule matches its name."""
    row = next((row for row in _RULES.suffixes if name.endswith(row.ends)), None)
    return CounterKind(row.kind, row.unit, _weight(name, row)) if row else None


def _weight(name: str, row: _Suffix) -> str | None:
    """Return the denominator of a ratio; for a share of elapsed cycles, the clock of its unit."""
    if row.kind == "ratio":
        return _RULES.weights.get(base(name))
    clocks = _RULES.clocks.items() if row.cycles else ()
    return next((clock for unit, clock in clocks if base(name).startswith(unit)), None)


def is_share(name: str) -> bool:
    """Return whether the counter is a share between 0 and 1."""
    kind = kind_of(name)
    return bool(kind and kind.kind == "ratio" and base(name).startswith(_RULES.shares))


def denominators(names: Sequence[str]) -> list[int | None]:
    """Return the index in `names` of each counter's denominator; None if it is not among them."""
    place = {base(name): number for number, name in reversed(list(enumerate(names)))}
    kinds = [kind_of(name) for name in names]
    return [place.get(kind.weight) if kind and kind.weight else None for kind in kinds]


def activity(names: Sequence[str]) -> int | None:
    """Return the index of the counter that best shows whether anything runs, or None."""
    bases = [base(name) for name in names]
    return next((bases.index(known) for known in _RULES.activity if known in bases), None)


def informative(names: Sequence[str]) -> list[int]:
    """Return the indices of counters of units that only kernels keep busy."""
    return [place for place, name in enumerate(names) if base(name).startswith(_RULES.informative)]


class _Suffix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ends: str
    kind: str
    unit: str
    cycles: bool = False


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of kinds.yaml, which explains the fields."""

    suffixes: list[_Suffix]
    weights: dict[str, str]
    shares: tuple[str, ...]
    clocks: dict[str, str]
    informative: tuple[str, ...]
    activity: list[str]


_RULES = msgspec.convert(load(__package__, "kinds"), _Rules)
