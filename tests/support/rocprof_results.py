"""Small results of rocprofv3: the same run of two GPUs as a rocpd database and as JSON."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

RUN = "_00001a2b_3c4d"
KERNELS = (
    "void gemm<float>(float*) [clone .kd]",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
)
DIRECTION = "MEMORY_COPY_HOST_TO_DEVICE"
CALLS = ("hipLaunchKernel", "hipMemcpyAsync")
PID, THREAD, AGENTS = 4242, 4243, (17, 19)
MODEL = "AMD Instinct MI300X"
Piece = tuple[int, int, int, int, int, int, int | None]  # of correlation, call, GPU, start, end, kernel


def run(steps: int = 5) -> tuple[list[Piece], list[tuple[int, int, int]]]:
    """Return pieces (correlation, call's start and end, GPU, start, end, kernel or None) and steps."""
    draw, now, correlation, free = random.Random(3), 1_000_000, 0, [0, 0]
    pieces: list[Piece] = []
    ranges = []
    for step in range(steps):
        begun = now
        for place in range(8):
            correlation += 1
            gpu = place % 2
            start = max(free[gpu], now + draw.randint(2_000, 6_000))
            end = free[gpu] = start + draw.randint(1_000, 20_000)
            kernel = None if place < 2 else (1 if place > 5 else 0)
            pieces.append((correlation, now, now + 1_500, gpu, start, end, kernel))
            now += draw.randint(4_000, 9_000)
        ranges.append((step, begun - 100, now))
        now += 20_000
    return pieces, ranges


def busy_ns(gpu: int) -> int:
    """Return the busy time of one GPU; work on it never overlaps."""
    return sum(end - start for _, _, _, where, start, end, _ in run()[0] if where == gpu)


_SCHEMA = """
CREATE TABLE rocpd_string{run} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT NOT NULL);
CREATE TABLE rocpd_info_node{run} (id INTEGER PRIMARY KEY, guid TEXT, hostname TEXT);
CREATE TABLE rocpd_info_process{run} (id INTEGER PRIMARY KEY, pid INTEGER, environment JSONB);
CREATE TABLE rocpd_info_thread{run} (id INTEGER PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER);
CREATE TABLE rocpd_info_agent{run} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, type TEXT,
    absolute_index INTEGER, logical_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT);
CREATE TABLE rocpd_info_kernel_symbol{run} (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT,
    display_name TEXT);
CREATE TABLE rocpd_event{run} (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER,
    parent_stack_id INTEGER, correlation_id INTEGER, extdata JSONB DEFAULT '{{}}');
CREATE TABLE rocpd_region{run} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
    start BIGINT, end BIGINT, name_id INTEGER, event_id INTEGER);
CREATE TABLE rocpd_kernel_dispatch{run} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER,
    tid INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER,
    stream_id INTEGER, start BIGINT, end BIGINT, private_segment_size INTEGER, group_segment_size INTEGER,
    workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER,
    grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER);
CREATE TABLE rocpd_memory_copy{run} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER,
    start BIGINT, end BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER,
    queue_id INTEGER, stream_id INTEGER, event_id INTEGER);
CREATE VIEW kernels AS SELECT * FROM rocpd_kernel_dispatch{run};
"""


def database(path: Path) -> Path:
    """Write the run as a rocpd database; the host's agent comes before the GPUs."""
    with closing(sqlite3.connect(path)) as base:
        base.executescript(_SCHEMA.format(run=RUN))
        for table, row in _rows():
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            base.execute(f"INSERT INTO rocpd_{table}{RUN} ({names}) VALUES ({marks})", [*row.values()])
        base.commit()
    return path


def _rows() -> Iterator[tuple[str, dict[str, Any]]]:
    pieces, ranges = run()
    texts = [
        "HIP_RUNTIME_API_EXT",
        "KERNEL_DISPATCH",
        "MEMORY_COPY",
        "MARKER_CORE_RANGE_API",
        *CALLS,
        DIRECTION,
        "roctxThreadRangeA",
    ]
    ids = {text: number for number, text in enumerate(texts, 1)}
    yield from (("string", {"id": number, "string": text}) for text, number in ids.items())
    yield "info_node", {"id": 1, "hostname": "mi300"}
    yield "info_process", {"id": 1, "pid": PID, "environment": '{"TOKEN": "swordfish"}'}
    yield "info_thread", {"id": 1, "pid": 1, "tid": THREAD}
    yield "info_agent", {"id": 1, "type": "CPU", "type_index": 0, "name": "EPYC"}
    for gpu in (0, 1):
        yield "info_agent", {"id": 2 + gpu, "type": "GPU", "type_index": gpu, "product_name": MODEL}
    for number, name in enumerate(KERNELS):
        yield "info_kernel_symbol", {"id": number + 1, "display_name": name}
    event = 0
    for correlation, begun, ended, gpu, start, end, kernel in pieces:
        call = CALLS[kernel is None]
        for category in (
            ids["HIP_RUNTIME_API_EXT"],
            ids["KERNEL_DISPATCH" if call == CALLS[0] else "MEMORY_COPY"],
        ):
            event += 1
            yield "event", {"id": event, "category_id": category, "stack_id": correlation}
        span = {"pid": 1, "tid": 1, "start": begun, "end": ended}
        yield "region", {**span, "name_id": ids[call], "event_id": event - 1}
        work = {
            "pid": 1,
            "tid": 1,
            "start": start,
            "end": end,
            "queue_id": 1,
            "stream_id": 0,
            "event_id": event,
        }
        if kernel is None:
            yield (
                "memory_copy",
                {**work, "name_id": ids[DIRECTION], "dst_agent_id": 2 + gpu, "src_agent_id": 1, "size": 4096},
            )
        else:
            sizes = {f"{what}_size_{axis}": 1 for what in ("workgroup", "grid") for axis in "xyz"}
            sizes |= {"workgroup_size_x": 256, "grid_size_x": 1000}
            yield (
                "kernel_dispatch",
                {**work, **sizes, "agent_id": 2 + gpu, "kernel_id": kernel + 1, "group_segment_size": 512},
            )
    for step, start, end in ranges:
        event += 1
        extra = json.dumps({"message": f"train step {step}"})
        yield (
            "event",
            {
                "id": event,
                "category_id": ids["MARKER_CORE_RANGE_API"],
                "stack_id": 900 + step,
                "extdata": extra,
            },
        )
        yield (
            "region",
            {
                "pid": 1,
                "tid": 1,
                "start": start,
                "end": end,
                "name_id": ids["roctxThreadRangeA"],
                "event_id": event,
            },
        )


def document(path: Path) -> Path:
    """Write the run as JSON."""
    pieces, ranges = run()
    buffers: dict[str, list[Any]] = {
        "hip_api": [],
        "kernel_dispatch": [],
        "memory_copy": [],
        "marker_api": [],
    }
    for correlation, begun, ended, gpu, start, end, kernel in pieces:
        own = {"thread_id": THREAD, "correlation_id": {"internal": correlation, "external": 0}}
        call = {"kind": 1, "operation": int(kernel is None), "start_timestamp": begun, "end_timestamp": ended}
        buffers["hip_api"].append({**own, **call})
        work = {**own, "start_timestamp": start, "end_timestamp": end, "stream_id": {"handle": 0}}
        if kernel is None:
            agents = {"dst_agent_id": {"handle": AGENTS[gpu]}, "src_agent_id": {"handle": 3}}
            buffers["memory_copy"].append({**work, **agents, "kind": 2, "operation": 0, "bytes": 4096})
        else:
            launch = {
                "agent_id": {"handle": AGENTS[gpu]},
                "queue_id": {"handle": 1},
                "kernel_id": kernel + 1,
                "group_segment_size": 512,
                "workgroup_size": {"x": 256, "y": 1, "z": 1},
                "grid_size": {"x": 1000, "y": 1, "z": 1},
            }
            buffers["kernel_dispatch"].append({**work, "kind": 3, "operation": 0, "dispatch_info": launch})
    for step, start, end in ranges:
        own = {"thread_id": THREAD, "correlation_id": {"internal": 900 + step}, "kind": 4, "operation": 0}
        buffers["marker_api"].append({**own, "start_timestamp": start, "end_timestamp": end})
    kinds = [
        ("NONE", []),
        ("HIP_RUNTIME_API", [*CALLS]),
        ("MEMORY_COPY", [DIRECTION]),
        ("KERNEL_DISPATCH", ["X"]),
        ("MARKER_CORE_RANGE_API", ["roctxThreadRangeA"]),
    ]
    process = {
        "metadata": {"pid": PID, "command": ["python", "train.py"]},
        "agents": [
            {"id": {"handle": 3}, "type": 1, "node_id": 0, "name": "EPYC"},
            *(
                {"id": {"handle": h}, "type": 2, "node_id": 7 + i, "product_name": MODEL}
                for i, h in enumerate(AGENTS)
            ),
        ],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": names} for kind, names in kinds],
            "marker_api": [{"key": 900 + step, "value": f"train step {step}"} for step, _, _ in ranges],
        },
        "kernel_symbols": [
            {"kernel_id": i, "formatted_kernel_name": name} for i, name in enumerate(KERNELS, 1)
        ],
        "buffer_records": buffers,
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    return path
