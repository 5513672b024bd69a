"""The tables of a sounding: one dict per table, from column name to polars type.

Times are int64 nanoseconds since the epoch. Other columns that end in `_ns` are durations in nanoseconds. The
store adds a `rank` column to every table when it is read. `phase` is one of PHASES, and `burst` is the number
of an uninterrupted stretch of a phase. The comment behind a column is published in the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import polars as pl

FORMAT = 1
IDS_PER_BURST = 1_000_000_000  # keeps ids of ops unique over the bursts of a rank
MOST_NS, MOST_COUNT = 2**61, 2**53  # the difference of two times, and a count as a float, are exact
Schema = Mapping[str, type[pl.DataType] | pl.DataType]
PHASES = (
    *("settle", "clean", "timeline", "attribution", "counters", "memory", "slow", "transition", "summary"),
    *("trial-baseline", "trial-logging", "trial-gc", "trial-input"),
)

_TIME = pl.Int64
_RECORDED = {"phase": pl.String, "burst": pl.Int32}

STEPS = {
    "step": pl.Int64,  # number of the step, ascending in time; a micro-step has the number of its step
    "parent": pl.Int64,  # step that contains this micro-step; null for steps
    "kind": pl.String,  # train, micro-step, evaluation, inference, prefill, decode, host, ...
    "source": pl.String,  # origin of its marks: mark, engine, optimizer, replay, loader, forward ...
    "thread": pl.Int64,  # host thread that runs the step
    "mark_ns": _TIME,  # start of the step on the host
    "end_ns": _TIME,  # end of the step on the host: the start of the next step, if there is one
    "device_ns": _TIME,  # time at which the device reached the start of the step; null if not measured
    "device_end_ns": _TIME,  # time at which the device reached the end of the step; null if not measured
    "stream": pl.Int64,  # stream that was current at the start, as the profiler numbers it; null if unknown
    "samples": pl.Int64,  # samples processed in the step; null if unknown
    "tokens": pl.Int64,  # tokens processed in the step; null if unknown
    "query": pl.Int64,  # ids per sample, if the step's module received a matrix of them; null if unknown
    **_RECORDED,
}
SUMMARIES: Schema = {  # steps of a long run that were counted instead of recorded one by one
    "step": pl.Int64,  # number of the window's first step
    "start_ns": _TIME,  # start of the window, which may have a row for each of several kinds of steps
    "end_ns": _TIME,
    "kind": pl.String,  # as in the table of steps
    "source": pl.String,
    "thread": pl.Int64,
    "steps": pl.Int64,  # number of steps of this kind
    "samples": pl.Int64,  # samples processed in them; null if unknown
    "tokens": pl.Int64,  # tokens processed in them; null if unknown
    "compilation_ns": pl.Int64,  # time in them that torch.compile took
    "checkpoint_ns": pl.Int64,  # time in them that saving took
    "gc_ns": pl.Int64,  # time in them that long garbage collections took
    "input_ns": pl.Int64,  # time in them that they waited for a loader's batches
    "shortest_ns": pl.List(
        pl.Int64
    ),  # lower ends of bins of step lengths, without compilation and checkpoints
    "counts": pl.List(pl.Int64),  # steps in each bin
    "totals_ns": pl.List(pl.Int64),  # summed lengths of the steps in each bin
    **_RECORDED,
}
OPS = {
    "id": pl.Int64,  # unique within the rank
    "parent": pl.Int64,  # id of the innermost op around this one, lower than its own; null for outermost ops
    "thread": pl.Int64,  # host thread that ran the op
    "kind": pl.String,  # op, or annotation for a named region
    "name": pl.String,  # name of the op or region, like aten::mm
    "start_ns": _TIME,
    "end_ns": _TIME,
    "shapes": pl.String,  # JSON, shape of each input: [[64, 128], [], ...]
    "dtypes": pl.String,  # JSON, type of each input: ["float", "", ...]
    "values": pl.String,  # JSON, value of each scalar input; of collectives: name, dtype, sizes, ranks, group
    "provenance": pl.String,  # JSON, origin of a compiled kernel: file of its code, backend and hash
    "module": pl.String,  # innermost torch.nn.Module around the op
    "source": pl.String,  # user's innermost frame as file(line): function, with the function's first line
    "line": pl.Int64,  # line that was running in that function; null if unknown
    "inferred": pl.Boolean,  # true: taken from a step of the attribution phase, so its times are interpolated
    **_RECORDED,
}
LAUNCHES = {
    "correlation": pl.Int64,  # number that the call shares with the device work it launched, within a burst
    "op": pl.Int64,  # id of the innermost op around the call
    "thread": pl.Int64,  # host thread that made the call
    "api": pl.String,  # function of the runtime or driver, like cudaLaunchKernel
    "start_ns": _TIME,
    "end_ns": _TIME,
    **_RECORDED,
}
KERNELS = {
    "device": pl.Int32,  # index of the GPU
    "stream": pl.Int64,  # stream, as the profiler numbers it; -1 if ncu's file does not name it
    "correlation": pl.Int64,  # number that the work shares with the call that launched it, within a burst
    "kind": pl.String,  # compute, collective, copy, set
    "name": pl.String,  # full name of the kernel, or of the copy or set
    "family": pl.String,  # short name and launch shape: kernels of one family do the same work
    "start_ns": _TIME,
    "end_ns": _TIME,
    "grid": pl.String,  # blocks per dimension: 64x1x1
    "block": pl.String,  # threads per dimension: 256x1x1
    "registers": pl.Int32,  # registers per thread
    "shared_bytes": pl.Int64,  # shared memory per block
    "local_bytes": pl.Int64,  # local memory per thread
    "graph_node": pl.Int64,  # id of the node in its CUDA graph; null if it was not launched by a graph
    "bytes": pl.Int64,  # bytes that a copy or set moves
    "direction": pl.String,  # direction of a copy: HtoD pinned, DtoH pageable, DtoD, ...
    **_RECORDED,
}
WAITS = {
    "thread": pl.Int64,  # host thread that waited
    "cause": pl.String,  # input, gc, compilation, checkpoint, ...
    "start_ns": _TIME,
    "end_ns": _TIME,
    "detail": pl.String,  # more about the cause, like the loader that the program waited for
    **_RECORDED,
}
STACKS: Schema = {  # one row per sample of one host thread, taken from outside the process
    "time_ns": _TIME,
    "thread": pl.Int64,  # the sampled host thread
    "running": pl.Boolean,  # true if the thread was running or ready to run, false if it was blocked
    "call": pl.String,  # system call in which the thread was blocked; null if it was running
    "function": pl.String,  # function of the innermost frame in the program's own code
    "source": pl.String,  # that frame, as file:line
    "stack": pl.String,  # all frames, outermost first: "function (file:line);..."
    "moved": pl.Boolean,  # whether a second reading showed another stack or instruction; null: read once
    "apart_ns": pl.Int64,  # time between the two readings; null: read once
    "on_processor": pl.Float32,  # running time / (running + ready) since the previous double reading, 0 to 1
    "iterators": pl.List(pl.Int16),  # positions in `stack` of generators and __next__; null: not recorded
    **_RECORDED,
}
SAMPLES: Schema = {
    "device": pl.Int32,  # index of the GPU
    "group": pl.Int32,  # index of the group of counters in the rank's fact `counter_groups` (manifest.json)
    "start_ns": _TIME,
    "end_ns": _TIME,
    "values": pl.List(pl.Float32),  # one value per counter, in the order of the group; NaN: not sampled
    **_RECORDED,
}
COUNTERS = {
    "device": pl.Int32,  # index of the GPU
    "family": pl.String,  # kernel family; families that could not be separated share a row
    "counter": pl.String,  # name of the counter, as CUPTI or ncu gives it
    "value": pl.Float64,  # mean over launches, or estimate from samples
    "unit": pl.String,  # unit of the value; empty or null if unknown
    "samples": pl.Int64,  # number of samples or launches behind the value
    "error": pl.Float64,  # standard error, in the unit of the value
    "source": pl.String,  # source of the value: PM sampling, static, PC sampling, ncu
}
INPUT = {
    "loader": pl.Int64,  # number of the data loader
    "batch": pl.Int64,  # number of the batch in its loader
    "worker": pl.Int64,  # number of the worker that made the batch; null: made in the program's own process
    "start_ns": _TIME,  # time at which the program asked for the batch
    "wait_ns": pl.Int64,  # time until the program received the batch
    "fetch_ns": pl.Int64,  # time to load the samples of the batch, without collation
    "read_ns": pl.Int64,  # part of fetch in system calls or blocked: mostly reading files
    "decode_ns": pl.Int64,  # part of fetch in the decoders of libraries (PIL, OpenCV, torchvision, ...)
    "transform_ns": pl.Int64,  # not recorded: always null
    "collate_ns": pl.Int64,  # time to collate the samples
    "pin_ns": pl.Int64,  # time to copy the batch into pinned memory
    "copy_ns": pl.Int64,  # not recorded: always null
    "read_bytes": pl.Int64,  # bytes read from files during fetch, without sockets
    "threads": pl.Int32,  # torch's number of threads in the worker
    "cpu_wait_ns": pl.Int64,  # part of fetch and collate in which the worker was ready to run but had no CPU
    "phase": pl.String,
}
MEMORY = {
    "time_ns": _TIME,
    "device": pl.Int32,  # index of the GPU, or -1 for the host
    # alloc, free, segment_alloc, segment_free, oom, ...; totals only: now, peak; a tensor that an optimizer
    # holds before and after the step of the attribution phase: held, held after
    "event": pl.String,
    "size": pl.Int64,  # size of the block or segment; null for now and peak
    "allocated": pl.Int64,  # memory in allocated blocks; for peak: its highest value
    "reserved": pl.Int64,  # memory that the allocator holds; for peak: its highest value
    "op": pl.String,  # innermost op that allocated or freed the block, in the attribution phase
    "address": pl.Int64,  # of the block, in the attribution phase
    "category": pl.String,  # for held: parameter, gradient or optimizer state
    "phase": pl.String,
}
TELEMETRY = {
    "device": pl.Int32,  # index of the GPU, or -1 for the host
    "time_ns": _TIME,
    "power_w": pl.Float64,  # power draw of the GPU
    "energy_j": pl.Float64,  # cumulative energy of the GPU, or of the host's processors
    "sm_clock_mhz": pl.Int32,
    "memory_clock_mhz": pl.Int32,
    "temperature_c": pl.Int32,
    "busy_percent": pl.Float64,  # utilisation that NVML reports, or of all the host's processors
    "program_percent": pl.Float64,  # the program's part of the load of all the host's processors
    "memory_bytes": pl.Int64,  # memory used on the GPU; on the host: resident memory of the program
    "throttle": pl.Int64,  # NVML's bit mask of clock event reasons
    "link_rx_bytes": pl.Int64,  # bytes received over NVLink since the driver was loaded
    "link_tx_bytes": pl.Int64,  # bytes sent over NVLink since the driver was loaded
}
USAGE: Schema = {  # the operating system's counts for the thread of the steps, by stretch of clean steps
    "thread": pl.Int64,
    "start_ns": _TIME,  # start of the stretch
    "end_ns": _TIME,
    "steps": pl.Int64,  # number of its steps
    "user_ns": pl.Int64,  # processor time of the thread in the program and its libraries
    "system_ns": pl.Int64,  # processor time of the thread in the operating system
    "ready_ns": pl.Int64,  # time ready to run without a processor; null if not counted
    "faults": pl.Int64,  # page faults of the thread that read nothing from storage: new pages, mostly
    "loads": pl.Int64,  # page faults of the thread that read from storage
    "preempted": pl.Int64,  # times that the thread lost its processor to another one
    "resident_bytes": pl.Int64,  # growth of the process's resident memory; null if unknown
    "fault_ns": pl.Int64,  # measured time of a page fault, with unmapping; in the first row of a process
    **_RECORDED,
}
REQUESTS: Schema = {  # the requests that a serving engine answered while it was recorded
    "request": pl.Int64,  # number of the request, in order of arrival
    "start_ns": _TIME,  # arrival: its first bytes reached the server's socket
    "submitted_ns": _TIME,  # time at which it entered the engine's queue
    "token_ns": _TIME,  # end of the iteration that generated its first token; null if there was none
    "sent_ns": _TIME,  # time at which the first chunk with a token had been written; null if not streamed
    "end_ns": _TIME,  # time at which the last byte of the answer had been written
    "prompt": pl.Int64,  # tokens of the prompt
    "cached": pl.Int64,  # tokens of the prompt that the prefix cache held
    "repeated": pl.Int64,  # tokens of the prompt, from its start, that an earlier prompt began with
    "generated": pl.Int64,  # tokens that the engine generated
    "chunks": pl.Int64,  # chunks of the answer; an engine may put several tokens into one
    "status": pl.Int32,  # HTTP status; null for requests without HTTP
}
REQUEST_SPANS: Schema = {  # stretches of requests outside of the engine's iterations, if over 0.1 ms
    "request": pl.Int64,
    # tokenise, detokenise, send (a write that waited for the client), preempt; of imported OpenTelemetry
    # spans, a stage: queue, prefill phase, decode phase, preempted ..., and not known over the entire request
    "what": pl.String,
    "start_ns": _TIME,
    "end_ns": _TIME,
}
ITERATIONS: Schema = {  # one row per iteration of the engine
    "iteration": pl.Int64,  # number of the iteration, in order of time
    "start_ns": _TIME,  # start of scheduling
    "prepared_ns": _TIME,  # the batch was ready
    "computed_ns": _TIME,  # the model had run
    "sampled_ns": _TIME,  # tokens had been sampled; null if sampling is part of the model's run
    "end_ns": _TIME,  # the requests had their tokens
    "kind": pl.String,  # prefill, decode, or mixed
    "waiting": pl.Int64,  # requests in the queue when the batch was ready
    "kv_used": pl.Int64,  # blocks of the KV cache in use (tokens, if the engine has no blocks)
    "kv_total": pl.Int64,  # blocks that the KV cache has
    "kv_block": pl.Int64,  # tokens of a block; null if unknown
    "weights": pl.Int64,  # bytes of the model's weights; null if unknown
}
TURNS: Schema = {  # one row per request and iteration that worked on it
    "iteration": pl.Int64,
    "request": pl.Int64,
    "phase": pl.String,  # prefill, decode, or recompute: prefill of tokens that a preemption discarded
    "tokens": pl.Int64,  # tokens of the request that the model read
    "generated": pl.Int64,  # tokens of the request that it generated
}

TABLES: dict[str, Schema] = {
    "steps": STEPS,
    "summaries": SUMMARIES,
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
    "usage": USAGE,
    "requests": REQUESTS,
    "request_spans": REQUEST_SPANS,
    "iterations": ITERATIONS,
    "turns": TURNS,
}


@cache
def empty(table: str) -> pl.DataFrame:
    """Return an empty frame with the table's columns."""
    return pl.DataFrame(schema=TABLES[table])


def conform(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with exactly the table's columns, in order: adds missing ones as null, drops others."""
    if not frame.width:  # selecting literals from a frame without columns would make a row
        return empty(table)
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in TABLES[table].items()
    )
