"""The signal of tensors that a forward pass keeps for a backward pass."""

from __future__ import annotations

import polars as pl

from fathom.analysis import CPU
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Kept
from fathom.diagnosis.signals.value import signal

HOST = -1  # device of the host's blocks
SOURCES = ("forward", "loader")  # of steps that are taken for training because autograd is on
BACKWARD = "^autograd::engine"


@signal("framework.kept", "bytes")
def kept(recorded: Recorded) -> Kept:
    """Return the blocks that the last recorded step allocates, and those that are left at its end.

    Zero blocks if autograd is off, or if a recorded step has a backward pass.
    """
    if recorded.step.kind != "train" or recorded.step.source not in SOURCES:
        return Kept()
    if recorded.ops["name"].str.contains(BACKWARD).any():
        return Kept()
    blocks = recorded.rows("memory").filter(pl.col("address").is_not_null(), phase="attribution")
    device = HOST if recorded.device.device == CPU else recorded.index
    events = blocks.filter(pl.col("event").is_in(["alloc", "free"]), device=device).sort("time_ns").collect()
    steps = recorded.rows("steps").filter(pl.col("parent").is_null(), phase="attribution").sort("step")
    last = steps.select("mark_ns", "end_ns").drop_nulls().tail(1).collect()
    if events.is_empty() or last.is_empty():
        raise UnknownSignalError("allocations were not recorded")
    within = events.filter(pl.col("time_ns").is_between(*last.row(0)))
    final = within.group_by("address").agg(pl.col("event", "size").last())
    left = final.filter(event="alloc")
    return Kept(left.height, within.filter(event="alloc").height, int(left["size"].sum()))
