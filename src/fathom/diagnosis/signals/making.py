"""The signal of batches that the loop makes itself, from sampled stacks."""

from __future__ import annotations

from collections import Counter

import polars as pl

from fathom.analysis import makers
from fathom.diagnosis.signals.lines import LEAST_OF_LOADER, NO_STACKS, dwell_us
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Made
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_US

NOT_RECORDED = "the recording does not say which functions are generators; record it again"
FILES = r"^(p?readv?|pread64|preadv|openat?|newfstatat|statx?|lseek|getdents64|page fault)$"
LOCKS = r"^futex"  # another thread holds it


@signal("input.made")
def made(recorded: Recorded) -> Made:
    """The time that the loop's iterator takes for a step's batches, its line, and how it spends the time."""
    stacks = recorded.rows("stacks").filter(phase="timeline").collect()
    if stacks.is_empty():
        raise UnknownSignalError(NO_STACKS)
    if stacks["iterators"].is_null().all():
        raise UnknownSignalError(NOT_RECORDED)
    by_stack = makers(stacks)
    mine = stacks.filter(pl.col("stack").is_in(list(by_stack)))
    if mine.is_empty():
        return Made(0.0, "")
    lines = Counter(by_stack[stack].source for stack in mine["stack"].to_list())
    blocked = mine.filter(pl.col("running").not_().fill_null(False))["call"].fill_null("")
    return Made(
        ms=(recorded.device.total_ms or 0.0) * mine.height / stacks.height,
        source=lines.most_common(1)[0][0],
        blocked=len(blocked) / mine.height,
        reading=int(blocked.str.contains(FILES).sum()) / mine.height,
        locked=int(blocked.str.contains(LOCKS).sum()) / mine.height,
        dwell_us=_dwell_us(mine),
        threads=recorded.account.timeline.about.facts.get("threads"),
    )


def _dwell_us(samples: pl.DataFrame) -> float | None:
    """Mean microseconds at one instruction; None with too few readings."""
    twice = samples.drop_nulls("moved")
    between = twice["apart_ns"].mean()
    if twice.height < LEAST_OF_LOADER or not isinstance(between, int | float):
        return None
    return dwell_us(int(twice["moved"].sum()), twice.height, between / NS_PER_US)
