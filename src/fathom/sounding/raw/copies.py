"""Place the calls of copies from pageable memory, which CUPTI's records of device work alone do not show."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from fathom.units import KIB

DIRECTION = "HtoD pageable"
# CUDA stages smaller copies and returns at once. Before others it waits for the stream, and it returns when the
# last piece was staged (CUDA Runtime API, "API synchronization behavior").
STAGED = 64 * KIB
DRAINED_NS = 100_000  # a copy that begins this soon after the stream's last work was waiting for it
USUAL_NS = 7_000  # of a call that launches

Rows = dict[str, np.ndarray[Any, Any]]
BURST = ["phase", "burst"]


class Samples(NamedTuple):
    """Times and stacks of a thread, in order."""

    at: np.ndarray[Any, Any]
    stack: np.ndarray[Any, Any]


def waiting(
    launches: pl.DataFrame, kernels: pl.DataFrame, stacks: pl.DataFrame, waits: pl.DataFrame
) -> pl.DataFrame:
    """Return the launches with the calls of such copies from where they began to wait to where the copy ended.

    A call is wrong if it returned before its copy began. If the copy began as soon as the work before it had
    ended, its call waited since the sampled stacks have been the same, but not since before the call or wait
    that precedes it on its thread. Otherwise the host came late, and only the end is replaced.
    """
    wrong = _wrong(launches, kernels)
    if wrong.is_empty():
        return launches
    rows = launches.with_row_index("row")
    times = {name: rows[name].to_numpy().copy() for name in ("start_ns", "end_ns")}
    for keys, copies in wrong.group_by(*BURST, maintain_order=True):
        burst = dict(zip(BURST, keys, strict=True))
        mine = [_of(frame, burst) for frame in (rows, kernels, stacks, waits)]
        for copy in copies.sort("correlation").iter_rows(named=True):
            _place(copy, times, *mine)
    return rows.with_columns(pl.Series(name, values) for name, values in times.items()).drop("row")


def _wrong(launches: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the copies whose call returned before they began: correlation, stream, begin and end."""
    large = kernels.filter(pl.col("direction") == DIRECTION, pl.col("bytes") > STAGED)
    copies = large.select(*BURST, "correlation", "stream", "device", begun="start_ns", ended="end_ns")
    calls = launches.select(*BURST, "correlation", "thread", "end_ns").unique([*BURST, "correlation"])
    both = copies.join(calls, on=[*BURST, "correlation"], nulls_equal=True)
    return both.filter(pl.col("end_ns") <= pl.col("begun"))


def _of(frame: pl.DataFrame, burst: dict[str, Any]) -> pl.DataFrame:
    return frame.filter(pl.col(name).eq_missing(value) for name, value in burst.items())


def _place(
    copy: dict[str, Any],
    times: Rows,
    launches: pl.DataFrame,
    kernels: pl.DataFrame,
    stacks: pl.DataFrame,
    waits: pl.DataFrame,
) -> None:
    """Set the times of the copy's call, and of the call before it if that was taken to last until then."""
    calls = launches.filter(pl.col("thread").eq_missing(copy["thread"])).sort("correlation")
    number, rows = calls["correlation"].to_numpy(), calls["row"].to_numpy()
    place = int(np.searchsorted(number, copy["correlation"]))
    row, begun, ended = rows[place], copy["begun"], copy["ended"]
    before = rows[place - 1] if place else None
    free = _returned(before, times, begun)
    since = max(free, _waited(waits, copy, begun))
    if _drained(kernels, copy, since):
        start = _began(_sampled(stacks, copy["thread"]), since, begun)
    else:
        start = min(max(int(times["start_ns"][row]), since), begun)
    times["start_ns"][row], times["end_ns"][row] = start, ended
    if before is not None and times["end_ns"][before] > start:
        times["end_ns"][before] = free


def _returned(call: int | None, times: Rows, begun: int) -> int:
    """Return when the call before the copy's returned: a launch that lasts until the copy began did not."""
    if call is None:
        return 0
    start, end = int(times["start_ns"][call]), int(times["end_ns"][call])
    return end if end < begun - DRAINED_NS else min(end, start + USUAL_NS)


def _waited(waits: pl.DataFrame, copy: dict[str, Any], begun: int) -> int:
    """Return the end of the last wait of the copy's thread, such as one for a batch; 0 if there is none."""
    mine = waits.filter(pl.col("thread").eq_missing(copy["thread"]), pl.col("end_ns") <= begun)
    return mine["end_ns"].max() or 0  # type: ignore[return-value]


def _drained(kernels: pl.DataFrame, copy: dict[str, Any], since: int) -> bool:
    """Return whether the stream worked until just before the copy, and after the host was free to call."""
    stream = kernels.filter(
        pl.col("stream") == copy["stream"],
        pl.col("device") == copy["device"],
        pl.col("end_ns") <= copy["begun"],
    )
    last: Any = stream["end_ns"].max()
    return last is not None and last > since and copy["begun"] - last <= DRAINED_NS


def _sampled(stacks: pl.DataFrame, thread: int | None) -> Samples:
    mine = stacks.filter(pl.col("thread").eq_missing(thread)).sort("time_ns")
    return Samples(mine["time_ns"].to_numpy(), mine["stack"].to_numpy())


def _began(samples: Samples, since: int, begun: int) -> int:
    """Return when the stack of the copy's call appeared, between two samples; `since` without samples."""
    first = int(np.searchsorted(samples.at, since))
    last = int(np.searchsorted(samples.at, begun))
    place = last
    while place > first and samples.stack[place - 1] == samples.stack[last - 1]:
        place -= 1
    if place == last:
        return since
    earlier = int(samples.at[place - 1]) if place > first else since
    return (max(earlier, since) + int(samples.at[place])) // 2
