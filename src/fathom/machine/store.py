"""The store of measured machines: one JSON file per fingerprint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

from fathom.atomic import atomic_write
from fathom.errors import FathomError, file_error
from fathom.machine.model import Machine
from fathom.regular import read_json

HOME = "FATHOM_HOME"


class MachineFileError(FathomError):
    """A machine file cannot be read or written; the message says why and what to do."""


def home() -> Path:
    """Return the store's folder: `$FATHOM_HOME`, or the platform's data folder."""
    if HOME in os.environ:
        return Path(os.environ[HOME])
    try:
        import platformdirs
    except ImportError:  # a machine that only records may lack it
        return Path.home() / ".local" / "share" / "fathom"
    return platformdirs.user_data_path("fathom")


def place(fingerprint: str, folder: Path | None = None) -> Path:
    """Return the path of the machine file with this fingerprint."""
    return (folder or home()) / "machines" / f"{fingerprint}.json"


def remembered(fingerprint: str, folder: Path | None = None) -> Machine | None:
    """Return this fingerprint's machine file, or None if it was never measured. Raises MachineFileError."""
    path = place(fingerprint, folder)
    try:
        known = path.exists()
    except OSError as error:
        raise MachineFileError(file_error(path, error, "accessed")) from None
    try:
        return read_machine(path) if known else None
    except MachineFileError as error:
        raise MachineFileError(f"{str(error).rstrip('.')}; remove it, and measure again.") from None


def bounding(recorded: Machine, given: Path | None = None, folder: Path | None = None) -> Machine:
    """Return the machine whose ceilings bound the work of a sounding recorded on `recorded`.

    That is the machine file `given` if there is one, else `recorded` if it has ceilings, else the machine
    stored under its fingerprint. Ceilings of `recorded` that were measured while the machine was busy are
    replaced by stored ones. Returns `recorded` if nothing is stored. Raises MachineFileError for a damaged
    file.
    """
    from fathom.machine.ceilings import is_doubtful, renewed
    from fathom.machine.shape import require_machine  # needs msgspec, which a machine that records may lack

    if given is not None:
        return require_machine(read_machine(given), str(given))
    ceilings = recorded.get("ceilings") or []
    if not recorded.get("fingerprint") or (ceilings and not any(map(is_doubtful, ceilings))):
        return recorded
    fingerprint = recorded["fingerprint"]
    stored = remembered(fingerprint, folder)
    if not stored:
        return recorded
    stored = require_machine(stored, str(place(fingerprint, folder)))
    return renewed(recorded, stored) if ceilings else stored


def read_machine(path: Path) -> Machine:
    """Return the content of a machine file. Raises MachineFileError if it cannot be read."""
    try:
        machine = read_json(path)
    except OSError as error:
        raise MachineFileError(file_error(path, error)) from None
    except ValueError:
        raise MachineFileError(f"{path} is not a machine file: it is not valid JSON.") from None
    if not isinstance(machine, dict) or "fingerprint" not in machine:
        raise MachineFileError(f"{path} is not a machine file: it has no fingerprint.")
    return cast(Machine, machine)


def remember(machine: Machine, folder: Path | None = None) -> Path:
    """Store `machine` atomically by its fingerprint, and return the path. Raises MachineFileError."""
    path = place(machine["fingerprint"], folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            Path(part).write_text(json.dumps(machine, indent=1))
    except OSError as error:
        why = f"The measurements cannot be stored in {path.parent}: {error.strerror}"
        raise MachineFileError(f"{why}; set ${HOME} to a writable folder.") from None
    return path
