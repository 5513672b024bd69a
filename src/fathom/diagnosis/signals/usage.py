"""The operating system's counts for the thread that runs the steps, and the allocator of its memory."""

from __future__ import annotations

from pathlib import PurePath

import polars as pl

from fathom.diagnosis.signals.recorded import PHASES, Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Usage
from fathom.diagnosis.signals.value import signal

UNSURE = ("resident_bytes", "ready_ns")
COUNTED = ("system_ns", "faults", *UNSURE)
TICK_NS = 4e6  # in which many systems count a thread's time as user or system
PRELOADED, USUAL = "LD_PRELOAD", "glibc"
CONFIGURING = ("MALLOC_", "GLIBC_TUNABLES")


@signal("host.usage", "")
def usage(recorded: Recorded) -> Usage:
    """Return the thread's counts in clean steps, if possible in those before the first burst.

    A profiler's memory stays at the end of the heap, so glibc returns less of the program's. A U-Net had
    8,760 faults per step before its timeline, 530 after it.
    """
    every = recorded.rows("usage")
    rows = every.filter(phase="clean").drop_nulls(["system_ns", "faults"])
    profiled = recorded.rows("steps").filter(pl.col("phase").is_in(PHASES)).collect()["mark_ns"]
    before = rows if profiled.is_empty() else rows.filter(pl.col("start_ns") < profiled.min())
    rows = rows if before.collect().is_empty() else before
    took = pl.col("end_ns") - pl.col("start_ns")
    unknown = (pl.col(name).null_count().alias(f"no {name}") for name in UNSURE)
    sums = rows.select(took.sum().alias("ns"), pl.col("steps", *COUNTED).sum(), *unknown)
    (row,) = sums.collect().to_dicts()
    if not row["steps"] or row["ns"] <= 0:
        raise UnknownSignalError("the operating system's counts for clean steps were not recorded")
    return Usage(
        system=row["system_ns"] / row["ns"],
        ticks=row["system_ns"] / TICK_NS,
        faults=row["faults"] / row["steps"],
        grown=None if row["no resident_bytes"] else row["resident_bytes"] / row["steps"],
        ready=None if row["no ready_ns"] else row["ready_ns"] / row["ns"],
        fault_ns=every.select(pl.col("fault_ns").median()).collect().item(),
    )


@signal("host.allocator")
def allocator(recorded: Recorded) -> str:
    """Return the allocator of host memory: `glibc`, what configures it, or the library that replaces it."""
    environment = recorded.store.manifest.environment
    files = environment.get(PRELOADED, "").replace(":", " ").split()
    others = [name for file in files if "alloc" in (name := PurePath(file).name)]
    configured = [name for name in environment if name.startswith(CONFIGURING)]
    return [*others, *configured, USUAL][0]
