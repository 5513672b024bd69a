"""Merge new measurements into the stored machine file."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fathom.gauges.catalogue import HOST, QUICK, scope
from fathom.machine import Ceiling, Missing, remember, stored_machine, to_records
from fathom.version import VERSION

Record = dict[str, Any]


def keep(
    machine: Mapping[str, Any],
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing],
    folder: Path | None = None,
) -> tuple[Record, Path]:
    """Merge the results into the stored machine file; return the machine and the file's path.

    Raises MachineFileError if the stored file is damaged or cannot be written.
    """
    earlier = recall(machine, folder)
    merged = merge(earlier, machine, ceilings, missing)
    return merged, remember(merged, folder)


def recall(machine: Mapping[str, Any], folder: Path | None = None) -> Record:
    """Return the stored file of this machine, or {} if there is none.

    Raises MachineFileError if it is damaged.
    """
    return stored_machine(machine["fingerprint"], folder)


def merge(
    earlier: Mapping[str, Any],
    machine: Mapping[str, Any],
    ceilings: Sequence[Ceiling],
    missing: Sequence[Missing],
) -> Record:
    """Return `machine` with all ceilings; a new one replaces the earlier one of the same id and device.

    A ceiling that could not be measured now keeps its earlier value; one that was measured is no longer
    missing.
    """
    latest = _latest([*earlier.get("ceilings", ()), *to_records(ceilings)])
    failed = _latest([*earlier.get("missing", ()), *to_records(missing)])
    there = {_key(record) for record in latest}
    counters = {"counters": earlier["counters"]} if "counters" in earlier else {}
    return {
        **counters,
        **machine,
        "ceilings": latest,
        "missing": [record for record in failed if _key(record) not in there],
        "measured_ns": time.time_ns(),
        "tool": VERSION,
    }


def _latest(records: Iterable[Record]) -> list[Record]:
    return list({_key(record): record for record in records}.values())


def _key(record: Record) -> tuple[str, int | None]:
    return record["id"], record.get("device")


def quick_missing(machine: Mapping[str, Any]) -> list[str]:
    """Return the ids of the quick set that this machine file neither contains nor lists as missing.

    GPU ids count only if the machine has a GPU; a ceiling measured on one GPU counts for all.
    """
    tried = {record["id"] for kind in ("ceilings", "missing") for record in machine.get(kind, ())}
    gpus = bool(machine.get("gpus"))
    return [name for name in QUICK if name not in tried and (gpus or scope(name) == HOST)]
