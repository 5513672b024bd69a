"""Ceilings: limits of this machine that were measured on it, with spread and the moment's conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
    return _records(machine, "ceilings", list[Ceiling], name)


def missing_from(machine: Mapping[str, Any], name: str = "the machine file") -> list[Missing]:
    """What could not be measured, from the same file. Raises MachineFileError."""
    return _records(machine, "missing", list[Missing], name)


def _records(machine: Mapping[str, Any], key: str, kind: Any, name: str) -> Any:
    import msgspec  # only here: reading an inventory must stay light

    try:
        return msgspec.convert(machine.get(key, []), kind)
    except msgspec.ValidationError as error:
        raise MachineFileError(
            f"The ceilings of {name} are damaged ({error}); remove that file, and measure again."
        ) from None


def find(ceilings: Sequence[Ceiling], name: str, device: int | None = None) -> Ceiling | None:
    """The ceiling `name` of `device`; where that GPU was not measured itself, of the first one that was."""
    named = [c for c in ceilings if c.id == name]
    return next((c for c in named if c.device == device), named[0] if named else None)
