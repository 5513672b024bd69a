"""The machine file: what was measured now, over what was measured before."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fathom.gauges.catalogue import HOST, QUICK, scope
from fathom.machine import Ceiling, Missing, remember
from fathom.machine.ceilings import to_records
from fathom.machine.known import sound
from fathom.version import VERSION

Record = dict[str, Any]


def keep(
    machine: Mapping[str, Any],
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing],
    folder: Path | None = None,
) -> tuple[Record, Path]:
    """Merge with what the store remembers of this machine; returns the machine file and its place.

    Raises MachineFileError where the remembered file is damaged.
    """
    earlier = recall(machine, folder)
    merged = merge(earlier, machine, ceilings, missing)
    return merged, remember(merged, folder)


def recall(machine: Mapping[str, Any], folder: Path | None = None) -> Record:
    """The machine file that the store has of this machine, {} for none. Raises MachineFileError."""
    return sound(machine["fingerprint"], folder)


def merge(
    earlier: Mapping[str, Any],
    machine: Mapping[str, Any],
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing],
) -> Record:
    """`machine` with all ceilings: a new one replaces that of the same id and device.

    What failed now stays as it was measured before; what was missing and is there now is no longer missing.
    """
    found = _latest([*earlier.get("ceilings", ()), *to_records(ceilings)])
    failed = _latest([*earlier.get("missing", ()), *to_records(missing)])
    there = {_key(record) for record in found}
    counters = {"counters": earlier["counters"]} if "counters" in earlier else {}
    return {
        **counters,
        **machine,
        "ceilings": found,
        "missing": [record for record in failed if _key(record) not in there],
        "measured_ns": time.time_ns(),
        "tool": VERSION,
    }


def _latest(records: Iterable[Record]) -> list[Record]:
    return list({_key(record): record for record in records}.values())


def _key(record: Record) -> tuple[str, int | None]:
    return record["id"], record.get("device")


def quick_missing(machine: Mapping[str, Any]) -> list[str]:
    """Ids of the quick set that this machine file has neither a ceiling for nor a reason why there is none.

    Those of a GPU count only where the machine has one; what one of its GPUs was measured for is there.
    """
    tried = {record["id"] for kind in ("ceilings", "missing") for record in machine.get(kind, ())}
    gpus = bool(machine.get("gpus"))
    return [name for name in QUICK if name not in tried and (gpus or scope(name) == HOST)]
