"""The parent's side of qualification: whether it is needed, the child process, the stored result."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from fathom.errors import FathomError
from fathom.gauges.child import Child
from fathom.gauges.contention import refuse_busy
from fathom.gauges.parent import StartChild
from fathom.gauges.planning import seen_devices
from fathom.machine import counters_of, remember, remembered, why_no_counters
from fathom.machine.model import Counters, Gpu, Machine
from fathom.probe.counters import INTERVAL_NS, OLDEST, installed, why_not

PATIENCE_S = 300.0


class NoCountersError(FathomError):
    """Counters cannot be sampled on this machine; `why` says in one clause why, and what to do."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Hardware counters cannot be sampled: {why}.")
        self.why = why


def prevented(machine: Machine) -> str | None:
    """Return what rules out qualification before it is tried, in one clause, or None."""
    return why_no_counters(machine) or why_not(f"{OLDEST[0]}.0", installed())


def needed(machine: Machine) -> bool:
    """Return whether this machine's counters are not known yet."""
    return counters_of(machine) is None


def qualify(
    machine: Machine,
    *,
    force: bool = False,
    devices: tuple[int, ...] | None = None,
    start: StartChild | None = None,
) -> Counters:
    """Return the counters that can be sampled, and why others cannot.

    Uses the first visible GPU (of `devices`, the inventory's numbers). Raises NoCountersError, and
    BusyGpuError if another process uses it and `force` is not given.
    """
    if why := prevented(machine):
        raise NoCountersError(why)
    if devices is None:  # the visible ones, or all if the driver's library does not answer
        devices = seen_devices(os.environ) or tuple(gpu["index"] for gpu in machine["gpus"])
    gpu = _first(machine, devices)
    if not force:
        refuse_busy([gpu["index"]])
    job = {"interval_ns": INTERVAL_NS, "capability": gpu.get("compute_capability") or ""}
    environment = {"CUDA_VISIBLE_DEVICES": str(gpu["uuid"])}
    answer = _ask(json.dumps(job), environment, start or partial(Child, module="fathom.gauges.counters"))
    driver = machine["versions"].get("driver")
    return {**answer, "driver": driver, "measured_ns": time.time_ns()}


def _first(machine: Machine, devices: tuple[int, ...]) -> Gpu:
    chosen = [gpu for gpu in machine["gpus"] if gpu["index"] in devices and not gpu.get("mig")]
    if not chosen:
        raise NoCountersError("CUDA_VISIBLE_DEVICES hides every full GPU")
    return chosen[0]


def _ask(job: str, environment: Mapping[str, str], start: StartChild) -> Counters:
    with start(job, environment) as child:
        try:
            record = child.next(PATIENCE_S)
        except TimeoutError:
            raise NoCountersError(f"qualifying them took longer than {PATIENCE_S:.0f} s") from None
        why = child.ending() if record is None else record.get("why")
    if record is None or why or not isinstance(record.get("counters"), dict):
        raise NoCountersError(why or "the qualifying process returned damaged data")
    return record["counters"]


def keep_counters(machine: Machine, counters: Counters, folder: Path | None = None) -> tuple[Machine, Path]:
    """Store `counters` with the machine; return the machine and the file's path."""
    before: Machine = remembered(machine["fingerprint"], folder) or {}
    qualified: Machine = {**machine, "counters": counters}
    return qualified, remember({**before, **qualified}, folder)
