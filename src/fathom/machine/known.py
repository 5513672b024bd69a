"""This machine with what is remembered of it: the inventory of now, the ceilings of before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fathom.machine.inventory import inventory
from fathom.machine.store import MachineFileError, remembered

_REMEMBERED = ("ceilings", "missing", "measured_ns", "tool")


def known_machine(
    read: Callable[[], dict[str, Any]] = inventory,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The inventory, with the ceilings that are remembered under its fingerprint; a damaged file is told."""
    machine = read()
    try:
        before = remembered(machine["fingerprint"], folder) or {}
    except MachineFileError as error:
        say(str(error))
        before = {}
    return machine | {name: before[name] for name in _REMEMBERED if name in before}
