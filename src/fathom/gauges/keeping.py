"""Merge new measurements into the stored machine file, and measure what it lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fathom.errors import FathomError
from fathom.gauges import counters as qualification
from fathom.gauges.catalogue import HOST, QUICK, scope
from fathom.gauges.parent import seconds
from fathom.gauges.planning import MeasurementPlan, plan
from fathom.machine import Ceiling, Missing, known_machine, remember, stored_machine, to_records
from fathom.machine.model import CeilingRecord, Machine
from fathom.version import VERSION

Say = Callable[[str], None]
Measure = Callable[[MeasurementPlan], tuple[list[Ceiling], list[Missing]]]


def keep(
    machine: Machine, ceilings: Sequence[Ceiling], missing: Sequence[Missing], folder: Path | None = None
) -> tuple[Machine, Path]:
    """Merge the results into the stored machine file; return the machine and the file's path.

    Raises MachineFileError if the stored file is damaged or cannot be written.
    """
    merged = merge(stored_machine(machine["fingerprint"], folder), machine, ceilings, missing)
    return merged, remember(merged, folder)


def merge(
    earlier: Machine, machine: Machine, ceilings: Sequence[Ceiling], missing: Sequence[Missing]
) -> Machine:
    """Return `machine` with all ceilings; a new one replaces the earlier one of the same id and device.

    A ceiling that could not be measured now keeps its earlier value; a measured one is no longer missing.
    """
    latest = _latest([*earlier.get("ceilings", ()), *to_records(ceilings)])
    failed = _latest([*earlier.get("missing", ()), *to_records(missing)])
    there = {_key(record) for record in latest}
    counters: Machine = {"counters": earlier["counters"]} if "counters" in earlier else {}
    return {
        **counters,
        **machine,
        "ceilings": latest,
        "missing": [record for record in failed if _key(record) not in there],
        "measured_ns": time.time_ns(),
        "tool": VERSION,
    }


def _latest(records: Iterable[CeilingRecord]) -> list[CeilingRecord]:
    return list({_key(record): record for record in records}.values())


def _key(record: CeilingRecord) -> tuple[str, int | None]:
    return record["id"], record.get("device")


def quick_missing(machine: Machine) -> list[str]:
    """Return the ids of the quick set that this machine file neither contains nor lists as missing.

    GPU ids count only if the machine has a GPU; a ceiling measured on one GPU counts for all.
    """
    tried = {record["id"] for record in (*machine.get("ceilings", ()), *machine.get("missing", ()))}
    gpus = bool(machine.get("gpus"))
    return [name for name in QUICK if name not in tried and (gpus or scope(name) == HOST)]


def completed(measure: Measure, say: Say, counters: bool = False) -> Machine:
    """Return this machine with its ceilings, after measuring those of the quick set that are missing.

    With `counters`, also qualify the hardware counters. If either fails, `say` gets the reason, and the
    result lacks them.
    """
    machine = _with_ceilings(measure, say)
    return _with_counters(machine, say) if counters else machine


def _with_counters(machine: Machine, say: Say) -> Machine:
    if not qualification.needed(machine):
        return machine
    if why := qualification.prevented(machine):
        return {**machine, "why_no_counters": why}
    say("qualifying this machine's hardware counters, once: about 20 s (--no-measure skips it)")
    try:
        qualified = qualification.qualify(machine)
    except FathomError as error:
        say(str(error))
        return {**machine, "why_no_counters": getattr(error, "why", str(error).rstrip("."))}
    try:
        return qualification.keep_counters(machine, qualified)[0]
    except FathomError as error:
        say(str(error))
        return {**machine, "counters": qualified}


def _with_ceilings(measure: Measure, say: Say) -> Machine:
    damage: list[str] = []
    machine = known_machine(say=damage.append)
    wanted = quick_missing(machine)
    if damage or not wanted:
        for why in damage:
            say(f"its ceilings were not measured: {why}")
        return machine
    try:
        todo = plan(machine, only=wanted)
        say(f"measuring this machine's ceilings, once: about {seconds(todo):.0f} s (--no-measure skips it)")
        measured = measure(todo)
    except (FathomError, OSError) as error:
        say(f"its ceilings were not measured: {error}")
        return machine
    try:
        return keep(machine, *measured)[0]
    except FathomError as error:
        say(str(error))
        return merge(machine, machine, *measured)
