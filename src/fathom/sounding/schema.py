"""The tables of a sounding: one dict per table, from column name to polars type.

Times are int64 nanoseconds since the epoch; a column that ends in `_ns` without being a time is a duration.
Every table also gains a `rank` column when it is read through the store. `phase` is one of PHASES, and
`burst` numbers the uninterrupted stretches of a phase.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

FORMAT = 1
Schema = Mapping[str, type[pl.DataType] | pl.DataType]
PHASES = (
    *("settle", "clean", "timeline", "attribution", "counters", "memory", "slow", "transition"),
    *("trial-baseline", "trial-logging", "trial-gc", "trial-input"),
)

_TIME = pl.Int64
_RECORDED = {"phase": pl.String, "burst": pl.Int32}

STEPS = {
    "step": pl.Int64,
    "parent": pl.Int64,  # the step that a micro-step belongs to, else null
    "kind": pl.String,  # train, micro-step, evaluation, inference, prefill, decode, host, ...
    "source": pl.String,  # mark, optimizer, replay, loader, forward, profiler, engine, repetition, host
    "thread": pl.Int64,
    "mark_ns": _TIME,  # host clock at the mark that opens the step
    "end_ns": _TIME,  # host clock at the mark that closes it
    "device_ns": _TIME,  # device boundary at the opening mark, if a device event measured it
    "device_end_ns": _TIME,
    "stream": pl.Int64,  # stream that was current at the mark; null if unknown
    "samples": pl.Int64,
    "tokens": pl.Int64,
    **_RECORDED,
}
OPS = {
    "id": pl.Int64,
    "parent": pl.Int64,
    "thread": pl.Int64,
    "kind": pl.String,  # op, annotation, python
    "name": pl.String,
    "start_ns": _TIME,
    "end_ns": _TIME,
    "shapes": pl.String,  # JSON as the profiler wrote it: [[64, 128], [], ...]
    "dtypes": pl.String,  # JSON: ["float", "", ...]
    "values": pl.String,  # JSON: the concrete scalar inputs
    "provenance": pl.String,  # of compiled kernels: the ops they were generated from
    "module": pl.String,
    "source": pl.String,  # file(line): function of the user's innermost frame, by the function's first line
    "line": pl.Int64,  # the line that ran in that function; null if unknown
    "inferred": pl.Boolean,  # joined from the attribution phase: times are not measured
    **_RECORDED,
}
LAUNCHES = {
    "correlation": pl.Int64,
    "op": pl.Int64,  # innermost op that was running on the thread
    "thread": pl.Int64,
    "api": pl.String,
    "start_ns": _TIME,
    "end_ns": _TIME,
    **_RECORDED,
}
KERNELS = {
    "device": pl.Int32,
    "stream": pl.Int64,
    "correlation": pl.Int64,
    "kind": pl.String,  # compute, collective, copy, set
    "name": pl.String,
    "family": pl.String,  # short name and launch shape
    "start_ns": _TIME,
    "end_ns": _TIME,
    "grid": pl.String,  # 64x1x1
    "block": pl.String,
    "registers": pl.Int32,
    "shared_bytes": pl.Int64,
    "local_bytes": pl.Int64,
    "graph_node": pl.Int64,
    "bytes": pl.Int64,  # of a copy or set
    "direction": pl.String,  # of a copy: HtoD pinned, DtoH pageable, DtoD, ...
    **_RECORDED,
}
WAITS = {
    "thread": pl.Int64,
    "cause": pl.String,  # input, gc, compilation, checkpoint, ... : see analysis.causes
    "start_ns": _TIME,
    "end_ns": _TIME,
    "detail": pl.String,
    **_RECORDED,
}
STACKS = {  # one row per sample of one host thread, taken from outside the process
    "time_ns": _TIME,
    "thread": pl.Int64,
    "running": pl.Boolean,  # running or ready to run; false: blocked
    "call": pl.String,  # the system call in which it is blocked; null while it runs
    "function": pl.String,  # of the program's innermost frame
    "source": pl.String,  # file:line of that frame
    "stack": pl.String,  # all frames, outermost first: "function (file:line);..."
    "moved": pl.Boolean,  # whether the stack's second reading showed another instruction; null: read once
    "apart_ns": pl.Int64,  # between the two readings
    "on_processor": pl.Float32,  # share of its runnable time since the last double reading that it ran
    **_RECORDED,
}
SAMPLES: Schema = {
    "device": pl.Int32,
    "group": pl.Int32,  # index into the rank's fact `counter_groups`, lists of counter names
    "start_ns": _TIME,  # on the sampling clock, which is aligned with the kernels' clock per burst
    "end_ns": _TIME,
    "values": pl.List(pl.Float32),  # one per counter, in the order of the group; NaN: not sampled
    **_RECORDED,
}
COUNTERS = {
    "device": pl.Int32,
    "family": pl.String,
    "counter": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "samples": pl.Int64,
    "error": pl.Float64,  # standard error, in the unit of the value
    "source": pl.String,  # PM sampling, static, PC sampling, ncu
}
INPUT = {
    "loader": pl.Int64,
    "batch": pl.Int64,
    "worker": pl.Int64,  # null: the program's own process
    "start_ns": _TIME,  # when the program asked for the batch
    "wait_ns": pl.Int64,
    "fetch_ns": pl.Int64,
    "read_ns": pl.Int64,  # part of fetch: system calls and waits for them
    "decode_ns": pl.Int64,  # part of fetch: decoders of libraries
    "transform_ns": pl.Int64,
    "collate_ns": pl.Int64,
    "pin_ns": pl.Int64,
    "copy_ns": pl.Int64,
    "read_bytes": pl.Int64,  # read from files during fetch, without sockets
    "threads": pl.Int32,  # of torch in the worker
    "cpu_wait_ns": pl.Int64,  # part of fetch and collate in which the worker was runnable but not running
    "phase": pl.String,
}
MEMORY = {
    "time_ns": _TIME,
    "device": pl.Int32,
    "event": pl.String,  # alloc, free, segment_alloc, segment_free, oom, peak
    "size": pl.Int64,
    "allocated": pl.Int64,
    "reserved": pl.Int64,
    "op": pl.String,
    "phase": pl.String,
}
TELEMETRY = {
    "device": pl.Int32,  # -1: the host
    "time_ns": _TIME,
    "power_w": pl.Float64,
    "energy_j": pl.Float64,  # reading of the counter, not a difference
    "sm_clock_mhz": pl.Int32,
    "memory_clock_mhz": pl.Int32,
    "temperature_c": pl.Int32,
    "busy_percent": pl.Float64,
    "memory_bytes": pl.Int64,  # used on the device; on the host: resident memory of the program
    "throttle": pl.Int64,  # NVML's bit mask of clock event reasons
    "link_rx_bytes": pl.Int64,
    "link_tx_bytes": pl.Int64,
}

TABLES: dict[str, Schema] = {
    "steps": STEPS,
    "ops": OPS,
    "launches": LAUNCHES,
    "kernels": KERNELS,
    "waits": WAITS,
    "stacks": STACKS,
    "samples": SAMPLES,
    "counters": COUNTERS,
    "input": INPUT,
    "memory": MEMORY,
    "telemetry": TELEMETRY,
}


def empty(table: str) -> pl.DataFrame:
    """An empty frame with the table's columns."""
    return pl.DataFrame(schema=TABLES[table])


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Give `frame` exactly the table's columns, in order: missing ones become null, others are dropped."""
    if not frame.width:  # because selecting literals from an empty frame makes a row
        return empty(table)
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in TABLES[table].items()
    )
