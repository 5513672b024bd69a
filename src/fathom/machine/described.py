"""This machine in full: its inventory, with the ceilings that are remembered under its fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fathom.errors import FathomError
from fathom.machine import disks, store
from fathom.machine.ceilings import Ceiling, Missing, from_machine
from fathom.machine.datasheet import beside, find, find_host
from fathom.machine.inventory import inventory

KEPT = ("ceilings", "missing", "measured_ns")


def described(folders: Sequence[Path] = (), machine: dict[str, Any] | None = None) -> dict[str, Any]:
    """The inventory, the file systems of `folders` too, and what is remembered of `KEPT`.

    What is remembered but damaged is left out; `abstained` says why.
    """
    machine = inventory() if machine is None else dict(machine)
    machine["host"]["filesystems"] += filter(None, map(disks.filesystem, folders))
    try:
        known = store.remembered(machine["fingerprint"]) or {}
        measured(known, "what is remembered of this machine")
    except FathomError as error:
        return {**machine, "abstained": [{"what": "ceilings", "why": str(error)}]}
    return {**machine, **{key: known[key] for key in KEPT if key in known}, "abstained": []}


def measured(machine: dict[str, Any], name: str) -> tuple[list[Ceiling], list[Missing]]:
    """The ceilings of a machine file, and those that could not be measured. Raises MachineFileError."""
    try:
        return from_machine(machine), msgspec.convert(machine.get("missing", []), list[Missing])
    except msgspec.ValidationError as error:
        raise store.MachineFileError(
            f"The ceilings of {name} are damaged ({error}); `fathom machine measure` measures them anew."
        ) from None


def with_datasheet(machine: dict[str, Any]) -> dict[str, Any]:
    """The same with the published figure beside each ceiling: `datasheet`, None where there is none."""
    if "ceilings" not in machine:
        return machine
    sheets = {gpu["index"]: find(gpu) for gpu in machine["gpus"]} | {None: find_host(machine["host"])}
    found = [beside(c, sheets.get(c.device)) for c in from_machine(machine)]
    pairs = zip(machine["ceilings"], found, strict=True)
    return {**machine, "ceilings": [{**record, "datasheet": figure} for record, figure in pairs]}
