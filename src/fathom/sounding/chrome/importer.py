"""One trace in Chrome's format as a trace of one process."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from fathom.errors import unimportable
from fathom.sounding.chrome.events import Intervals, read_intervals
from fathom.sounding.events import Events, Origin, Trace, normalised
from fathom.sounding.events.steps import STEP
from fathom.sounding.manifest import Problem

_DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,4})")
# Of a device's lanes, XProf derives all from those of its streams; a TPU has one that runs operations.
_WORK = {"GPU": re.compile(r"Stream #(\d+)"), "TPU": re.compile(r"XLA Ops()$")}
# Frames of Python, and notes of XLA's thread pools, are neither ops nor regions.
_NOISE = r"^(?:\$|ThreadpoolListener::|end: )"
_COPY = r"^Memcpy(?:([HDAP])2([HDAP]))?"


def read_chrome(path: Path, step_range: str | None = None) -> Trace:
    """Read a trace (.json or .json.gz). Steps of JAX (`StepTraceAnnotation`) are its steps.

    Only XProf names the lanes of devices, so intervals of other producers are ops and regions of the host.
    Raises BadInputError if it is not a trace, has no intervals, or no range matches `step_range`.
    """
    intervals = read_intervals(path)
    rows = intervals.table()
    if rows.is_empty():
        raise unimportable(path, "it has neither operators nor device work")
    device = _lanes(intervals)
    at_device = pl.col("lane").is_in([*device])
    host = rows.filter(~at_device & ~pl.col("lane").is_in(_derived(intervals, device)))
    kernels = _kernels(rows.filter(at_device), device)
    host = host.with_columns(
        thread=pl.col("lane").replace_strict(intervals.threads_of(), return_dtype=pl.Int64)
    )
    tables = {"ops": _ops(_on_caller(host), _is_xprof(rows)), "launches": _launches(host), "kernels": kernels}
    used = {number: name for number, _, name in device.values()}
    origin = Origin(None, None, None, None, dict.fromkeys(used, ""), [], {})
    return normalised(Events(tables, origin, _unmatched(intervals)), step_range)


def _lanes(intervals: Intervals) -> dict[int, tuple[int, int, str]]:
    """Return device, stream and chip of the lanes that hold a device's work."""
    lanes = {}
    for (pid, tid), lane in intervals.lanes.items():
        device = _DEVICE.match(intervals.processes.get(pid, ""))
        stream = device and _WORK[device[1]].match(intervals.threads.get((pid, tid), ""))
        if device and stream:
            lanes[lane] = (int(device[2]), int(stream[1] or 0), device[1])
    return lanes


def _derived(intervals: Intervals, device: dict[int, tuple[int, int, str]]) -> list[int]:
    """Return the other lanes of devices."""
    return [
        lane
        for (pid, _), lane in intervals.lanes.items()
        if lane not in device and _DEVICE.match(intervals.processes.get(pid, ""))
    ]


def _is_xprof(rows: pl.DataFrame) -> bool:
    return any(rows[name].null_count() < len(rows) for name in ("hlo_op", "step_num", "kernel_details"))


def _on_caller(host: pl.DataFrame) -> pl.DataFrame:
    """Move XLA's operations to the thread that runs the steps: it waits while XLA's own threads run them."""
    callers = host.filter(pl.col("step_num").is_not_null())["thread"].mode().sort()
    if callers.is_empty():
        return host
    on_pool = pl.when(pl.col("hlo_op").is_not_null()).then(callers[0])
    return host.with_columns(thread=on_pool.otherwise("thread"))


def _ops(host: pl.DataFrame, xprof: bool) -> pl.DataFrame:
    """Return ops and regions; in XProf's traces only operations of XLA are ops, in others all intervals."""
    rows = host.filter(
        ~pl.col("name").str.contains(_NOISE).fill_null(False), pl.col("correlation_id").is_null()
    )
    step = pl.col("step_num").str.extract(r"^(\d{1,15})$")
    kind = pl.when(pl.col("hlo_op").is_not_null() | (not xprof)).then(pl.lit("op"))
    return rows.select(
        "thread", "start_ns", "end_ns",
        name=pl.when(step.is_not_null()).then(pl.lit(STEP) + step).otherwise("name"),
        kind=kind.otherwise(pl.lit("annotation")),
    )  # fmt: skip


def _launches(host: pl.DataFrame) -> pl.DataFrame:
    """Return the calls that launched device work: only they have a correlation."""
    calls = host.filter(pl.col("correlation_id").is_not_null())
    return calls.select("thread", "start_ns", "end_ns", _correlation(), api="name")


def _correlation() -> pl.Expr:
    return pl.col("correlation_id").cast(pl.Int64, strict=False).alias("correlation")


def _kernels(rows: pl.DataFrame, device: dict[int, tuple[int, int, str]]) -> pl.DataFrame:
    lane = pl.col("lane")
    is_copy, is_set = pl.col("name").str.contains(_COPY), pl.col("name").str.contains(r"^Memset")
    return rows.select(
        "start_ns", "end_ns", _correlation(),
        device=lane.replace_strict({k: v[0] for k, v in device.items()}, return_dtype=pl.Int64),
        stream=lane.replace_strict({k: v[1] for k, v in device.items()}, return_dtype=pl.Int64),
        kind=pl.when(is_copy).then(pl.lit("copy")).when(is_set).then(pl.lit("set")).otherwise(pl.lit("compute")),
        name=pl.when(is_copy).then(_copy_name()).otherwise("name"),
        grid=_detail("grid", r"([\d,]+)").str.replace_all(",", "x"),
        block=_detail("block", r"([\d,]+)").str.replace_all(",", "x"),
        registers=_detail("regs", r"(\d+)").cast(pl.Int64, strict=False),
        bytes=pl.col("memcpy_details").str.extract(r"\bsize:(\d+)").cast(pl.Int64, strict=False),
    )  # fmt: skip


def _detail(name: str, value: str) -> pl.Expr:
    return pl.col("kernel_details").str.extract(rf"\b{name}:{value}")


def _copy_name() -> pl.Expr:
    """Return a copy's name as other profilers write it: `Memcpy HtoD (Pinned -> Device)`."""
    sides = [pl.col("name").str.extract(_COPY, place).fill_null("?") for place in (1, 2)]
    memory = [
        pl.col("memcpy_details").str.extract(rf"\bkind_{side}:(\w+)").str.to_titlecase().fill_null("Unknown")
        for side in ("src", "dst")
    ]
    return pl.format("Memcpy {}to{} ({} -> {})", *sides, *memory)


def _unmatched(intervals: Intervals) -> list[Problem]:
    if not (count := intervals.unmatched):
        return []
    return [
        Problem("unmatched", f"{count} begin or end events have no counterpart and were left out.", count)
    ]
