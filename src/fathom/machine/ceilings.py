"""Ceilings: limits of this machine that were measured on it, with spread and the moment's conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any

from fathom.machine.store import MachineFileError


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """One measured limit.

    `id` names what was measured (`hbm.copy`, `matmul.bf16`, `latency.launch`); `value` is the median in
    `unit` (`B/s`, `FLOP/s`, `1/s` or `s`), `low` and `high` the quartiles of `samples` repetitions. `device`
    is the GPU's index, None for the host. `at` is the size or shape that `value` belongs to, `series` every
    one tried. `conditions` are clocks, power and throttle reasons of the moment, `flags` reasons to doubt it.
    """

    id: str
    value: float
    unit: str
    low: float
    high: float
    samples: int
    device: int | None = None
    at: dict[str, Any] = field(default_factory=dict)
    series: list[dict[str, Any]] = field(default_factory=list)
    conditions: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A ceiling that could not be measured here, and why, in one clause."""

    id: str
    why: str
    device: int | None = None


def to_records(ceilings: Iterable[Ceiling | Missing]) -> list[dict[str, Any]]:
    """Plain dicts for a machine file."""
    return [asdict(c) for c in ceilings]


def from_machine(machine: Mapping[str, Any], name: str = "the machine file") -> list[Ceiling]:
    """The ceilings of a machine file or of a sounding's `machine.json`; [] where none were measured.

    Raises MachineFileError, about `name`, where the file holds something else in their place.
    """
    return _records(machine, "ceilings", Ceiling, name)


def missing_from(machine: Mapping[str, Any], name: str = "the machine file") -> list[Missing]:
    """What could not be measured, from the same file. Raises MachineFileError."""
    return _records(machine, "missing", Missing, name)


# By hand, because a target that records raw has no library that checks types.
_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "why": (str,),
    "unit": (str,),
    **dict.fromkeys(("value", "low", "high"), (int, float)),
    "samples": (int,),
    "device": (int, type(None)),
    **dict.fromkeys(("at", "conditions"), (dict,)),
    **dict.fromkeys(("series", "flags"), (list,)),
}


def _records(machine: Mapping[str, Any], key: str, kind: Any, name: str) -> Any:
    rows = machine.get(key, [])
    try:
        if not isinstance(rows, list):
            raise TypeError(f"`{key}` is no list")
        return [kind(**_checked(row, {field.name for field in fields(kind)})) for row in rows]
    except TypeError as error:
        raise MachineFileError(
            f"The ceilings of {name} are damaged ({error}); remove that file, and measure again."
        ) from None


def _checked(row: Any, known: set[str]) -> dict[str, Any]:
    """The known fields of a record; others are from another version. Raises TypeError."""
    if not isinstance(row, dict):
        raise TypeError("a record is no object")
    for name in known & row.keys():
        value = row[name]
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise TypeError(f"`{name}` is a {type(value).__name__}")
        if isinstance(value, float) and not isfinite(value):
            raise TypeError(f"`{name}` is not finite")
    return {name: row[name] for name in known & row.keys()}


def find(ceilings: Sequence[Ceiling], name: str, device: int | None = None) -> Ceiling | None:
    """The ceiling `name` of `device`; where that GPU was not measured itself, of the first one that was."""
    named = [c for c in ceilings if c.id == name]
    return next((c for c in named if c.device == device), named[0] if named else None)
