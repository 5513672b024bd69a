"""Ceilings: limits measured on this machine, with their spread and the conditions at the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, cast

from fathom.machine.model import CeilingRecord, Conditions, Machine, Setting
from fathom.machine.store import MachineFileError

BUSY = 0.25  # share of the processors; a ceiling measured while other processes used more is too low


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """One measured limit.

    `id` names the quantity (`hbm.copy`, `matmul.bf16`, `latency.launch`). `value` is the median in `unit`
    (`B/s`, `FLOP/s`, `1/s` or `s`), and `low` and `high` are the quartiles of `samples` samples. `device` is
    the GPU's index, or None for the host. `at` is the size or shape that gave `value`; `series` has every
    size tried. `conditions` has the clocks, power and throttle reasons during the measurement; on the host,
    `others` is the share of the processors that other processes used. `flags` are reasons to doubt the value.
    """

    id: str
    value: float
    unit: str
    low: float
    high: float
    samples: int
    device: int | None = None
    at: Setting = field(default_factory=Setting)
    series: list[Setting] = field(default_factory=list)
    conditions: Conditions = field(default_factory=Conditions)
    flags: list[str] = field(default_factory=list)

    @property
    def is_bound(self) -> bool:
        """Return whether the value bounds work; False if other processes used over BUSY of the processors."""
        return not _was_busy(self.conditions)


def _was_busy(conditions: object) -> bool:
    others = conditions.get("others") if isinstance(conditions, dict) else None
    return isinstance(others, (int, float)) and others > BUSY


def is_doubtful(record: CeilingRecord) -> bool:
    """Return whether a record's ceiling bounds nothing, because the machine was busy when it was measured."""
    return isinstance(record, dict) and _was_busy(record.get("conditions"))


def renewed(machine: Machine, by: Machine) -> Machine:
    """Return `machine` with its doubtful ceilings replaced by those of `by`; `machine` if there are none."""
    better = {(c["id"], c.get("device")): c for c in by.get("ceilings") or () if not is_doubtful(c)}
    ceilings = machine.get("ceilings") or []
    new = [better.get((c["id"], c.get("device")), c) if is_doubtful(c) else c for c in ceilings]
    return machine if new == ceilings else {**machine, "ceilings": new}


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A ceiling that could not be measured here; `why` is the reason in one clause."""

    id: str
    why: str
    device: int | None = None


def to_records(ceilings: Iterable[Ceiling | Missing]) -> list[CeilingRecord]:
    """Return the records of a machine file."""
    return [cast(CeilingRecord, asdict(c)) for c in ceilings]


def from_machine(machine: Machine, name: str = "the machine file") -> list[Ceiling]:
    """Return the ceilings of a machine file or of a sounding's `machine.json`; [] if none were measured.

    Raises MachineFileError, which names the file `name`, if its ceilings are damaged.
    """
    return _records(machine, "ceilings", Ceiling, name)


def missing_from(machine: Machine, name: str = "the machine file") -> list[Missing]:
    """Return the ceilings that could not be measured, with reasons; errors as for `from_machine`."""
    return _records(machine, "missing", Missing, name)


RATES = ("value", "low", "high")
# Checked without msgspec, which a machine that only records may lack.
_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "why": (str,),
    "unit": (str,),
    **dict.fromkeys(RATES, (int, float)),
    "samples": (int,),
    "device": (int, type(None)),
    **dict.fromkeys(("at", "conditions"), (dict,)),
    **dict.fromkeys(("series", "flags"), (list,)),
}


MOST = 20_000  # ceilings, of all devices


def _records(machine: Machine, key: str, kind: Any, name: str) -> Any:
    rows = machine.get(key, [])
    try:
        if not isinstance(rows, list):
            raise TypeError(f"`{key}` is not a list")
        if len(rows) > MOST:
            raise TypeError(f"`{key}` has {len(rows):,} rows")
        known = {field.name for field in fields(kind)}
        return [kind(**_checked(row, known)) for row in rows]
    except TypeError as error:
        raise MachineFileError(
            f"The machine file {name} has damaged ceilings ({error}); remove it, and measure again."
        ) from None


def _checked(row: Any, known: set[str]) -> dict[str, object]:
    """Return a record's known fields, without newer ones. Raises TypeError for wrong or infinite values."""
    if not isinstance(row, dict):
        raise TypeError("a record is not an object")
    for name in known & row.keys():
        value = row[name]
        if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
            raise TypeError(f"`{name}` is a {type(value).__name__}")
        if isinstance(value, float) and not isfinite(value):
            raise TypeError(f"`{name}` is not finite")
    return {name: _number(name, row[name]) for name in known & row.keys()}


def _number(name: str, value: Any) -> Any:
    """Return a rate as a float: an edited file may hold whole numbers, whose mixture no column takes."""
    try:
        return float(value) if name in RATES else value
    except OverflowError:
        raise TypeError(f"`{name}` is not finite") from None


def find_ceiling(ceilings: Sequence[Ceiling], name: str, device: int | None = None) -> Ceiling | None:
    """Return the ceiling `name` of `device`, else the first one of that name; None if there is none."""
    named = [c for c in ceilings if c.id == name]
    return next((c for c in named if c.device == device), named[0] if named else None)
