"""The counts of the kernel for the thread that runs the steps, and the allocator of its memory."""

from __future__ import annotations

import polars as pl

from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Usage
from fathom.diagnosis.signals.value import signal

COUNTED = ("system_ns", "faults", "resident_bytes", "ready_ns")
PRELOADED, USUAL = "LD_PRELOAD", "glibc"


@signal("host.usage", "")
def usage(recorded: Recorded) -> Usage:
    """Return the thread's use of processor, kernel and memory over all stretches of clean steps."""
    rows = recorded.rows("usage").filter(phase="clean").drop_nulls(["system_ns", "faults"])
    took = pl.col("end_ns") - pl.col("start_ns")
    every = rows.select(took.sum(), pl.col("steps", *COUNTED).sum(), unknown=pl.col("ready_ns").null_count())
    ((ns, steps, system, faults, grown, ready, unknown),) = every.collect().iter_rows()
    if not steps or ns <= 0:
        raise UnknownSignalError("the counts of the kernel for clean steps were not recorded")
    return Usage(system / ns, faults / steps, grown / steps, None if unknown else ready / ns)


@signal("host.allocator")
def allocator(recorded: Recorded) -> str:
    """Return the allocator of host memory: `glibc`, or the library that replaces it."""
    names = recorded.store.manifest.environment.get(PRELOADED, "").replace(":", " ").split()
    return next((name for name in names if "alloc" in name), USUAL)
