"""The present inventory together with the ceilings measured earlier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fathom.machine.ceilings import from_machine, missing_from
from fathom.machine.inventory import inventory
from fathom.machine.store import MachineFileError, place, remembered

_REMEMBERED = ("ceilings", "missing", "counters", "measured_ns", "tool")


def known_machine(
    read: Callable[[], dict[str, Any]] = inventory,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the inventory with its stored ceilings; a damaged file is reported through `say`."""
    machine = read()
    try:
        before = sound(machine["fingerprint"], folder)
    except MachineFileError as error:
        say(str(error))
        before = {}
    return machine | {name: before[name] for name in _REMEMBERED if name in before}


def sound(fingerprint: str, folder: Path | None = None) -> dict[str, Any]:
    """Return the stored machine file, or {} if there is none. Raises MachineFileError if it is damaged."""
    before = remembered(fingerprint, folder)
    if before is None:
        return {}
    for read in (from_machine, missing_from):
        read(before, str(place(fingerprint, folder)))
    return before
