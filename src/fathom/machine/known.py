"""This machine's current inventory, with the ceilings measured earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fathom.machine import disks
from fathom.machine.ceilings import from_machine, missing_from
from fathom.machine.store import MachineFileError, place, remembered
from fathom.machine.survey import inventory

_REMEMBERED = ("ceilings", "missing", "counters", "measured_ns", "tool")


def known_machine(
    read: Callable[[], dict[str, Any]] = inventory,
    folder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the current inventory with the stored ceilings and counters of this machine.

    If the stored file is damaged, `say` gets the message and the inventory comes without them.
    """
    machine = read()
    try:
        before = stored_machine(machine["fingerprint"], folder)
    except MachineFileError as error:
        say(str(error))
        before = {}
    return machine | {name: before[name] for name in _REMEMBERED if name in before}


def stored_machine(fingerprint: str, folder: Path | None = None) -> dict[str, Any]:
    """Return the stored machine file, or {} if there is none. Raises MachineFileError if it is damaged."""
    before = remembered(fingerprint, folder)
    if before is None:
        return {}
    for read in (from_machine, missing_from):
        read(before, str(place(fingerprint, folder)))
    return before


def described(folders: Sequence[Path] = (), machine: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe this machine, including the file systems of `folders`.

    Damaged stored data is left out; `abstained` has the reason.
    """
    present = inventory() if machine is None else dict(machine)
    present["host"]["filesystems"] += filter(None, map(disks.filesystem, folders))
    why: list[str] = []
    known = known_machine(lambda: present, say=why.append)
    return known | {"abstained": [{"what": "ceilings", "why": reason} for reason in why]}


def with_datasheet(machine: dict[str, Any]) -> dict[str, Any]:
    """Add the published figure to each ceiling as `datasheet`, or None if there is none."""
    if "ceilings" not in machine:
        return machine
    from fathom.machine.datasheet import beside, find, find_host  # imported late, because it reads YAML

    sheets = {gpu["index"]: find(gpu) for gpu in machine["gpus"]} | {None: find_host(machine["host"])}
    figures = [beside(c, sheets.get(c.device)) for c in from_machine(machine)]
    pairs = zip(machine["ceilings"], figures, strict=True)
    return {**machine, "ceilings": [{**record, "datasheet": figure} for record, figure in pairs]}
