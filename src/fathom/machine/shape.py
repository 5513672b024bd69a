"""The shape of a machine's inventory, so that damaged or hostile files are refused before they are used."""

from __future__ import annotations

from math import isfinite
from typing import Any, cast

import msgspec

from fathom.machine.ceilings import from_machine, missing_from
from fathom.machine.model import Machine
from fathom.machine.store import MachineFileError

MOST_DEVICES = 4096
_LARGEST = 2**63
_SECTIONS = ("fingerprint", "host", "versions", "gpus", "ceilings", "missing")
_CHECKED_BY_READERS = ("ceilings", "missing", "counters", "checks")


def require_machine(machine: Any, name: str) -> Machine:
    """Return `machine`, called `name`, without null sections. Raises MachineFileError if misshapen."""
    try:
        kept = _without_null(msgspec.convert(machine, dict[str, object]))
        checked = {part: value for part, value in kept.items() if part not in _CHECKED_BY_READERS}
        shape = msgspec.convert(checked, Machine)
    except msgspec.ValidationError as error:
        raise MachineFileError(f"{name} is damaged: {error}; record or measure again.") from None
    indices = [gpu.get("index", -1) for gpu in shape.get("gpus", [])]
    if len(indices) > MOST_DEVICES or len(set(indices)) < len(indices) or min(indices, default=0) < 0:
        raise MachineFileError(f"{name} is damaged: its GPUs are not distinct; record or measure again.")
    if not _finite(machine):
        raise MachineFileError(f"{name} is damaged: it has an impossible number; record or measure again.")
    for read in (from_machine, missing_from):
        read(kept, name)
    return kept


def _without_null(machine: dict[str, object]) -> Machine:
    """Return the machine without sections that are null, which are then absent for all readers."""
    kept = {part: value for part, value in machine.items() if value is not None or part not in _SECTIONS}
    if isinstance(host := kept.get("host"), dict) and host.get("cpu", host) is None:
        kept["host"] = {part: value for part, value in host.items() if part != "cpu"}
    return cast(Machine, kept)


def _finite(value: Any) -> bool:
    """Return whether all numbers are finite and fit into 64 bits."""
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, float):
        return isfinite(value)
    return not isinstance(value, int) or abs(value) <= _LARGEST
