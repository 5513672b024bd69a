"""Small exports of Nsight Systems, with tables and columns of an early 2021 and of a 2024 release.

Their times come from a fixed generator of random numbers, so that work overlaps by chance. The columns
are those that NVIDIA documents, and that tools which read these exports name.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

EPOCH = 1_700_000_000_000_000_000
PUSH_POP, START_END, MARK = 59, 60, 34
CUDA_GRAPH, GRAPH_NODES = 7, (101, 102)
MB = 1 << 20
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)"

# fmt: off
_OLD = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INT, name TEXT, numMultiprocessors INT, numThreadsPerWarp INT,
    computeCapabilityMajor INT, computeCapabilityMinor INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, "end" INT NOT NULL, deviceId INT NOT NULL,
    contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT, demangledName INT NOT NULL,
    shortName INT NOT NULL, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT,
    registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT NOT NULL, "end" INT NOT NULL, deviceId INT NOT NULL,
    contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT, bytes INT, copyKind INT, srcKind INT,
    dstKind INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT NOT NULL, "end" INT NOT NULL, globalTid INT,
    correlationId INT, nameId INT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INT NOT NULL, "end" INT, eventType INT NOT NULL, text TEXT, globalTid INT);
"""
_NEW = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER,
    value TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER NOT NULL, name TEXT, smCount INTEGER,
    totalMemory INTEGER, uuid TEXT, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT,
    numMultiprocessors INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
    gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,
    registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER,
    localMemoryPerThread INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
    copyKind INTEGER, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    contextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER,
    bytes INTEGER, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    contextId INTEGER, greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
    graphId INTEGER, graphExecId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER,
    callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
CREATE TABLE GPU_METRICS (rawTimestamp INTEGER, timestamp INTEGER, typeId INTEGER NOT NULL,
    metricId INTEGER NOT NULL, value INTEGER NOT NULL);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER,
    metricName TEXT);
"""
# fmt: on


class Export:
    """An export that is being made."""

    def __init__(self, path: Path, schema: str) -> None:
        self._base = sqlite3.connect(path)
        self._base.executescript(schema)
        self._strings: dict[str, int] = {}

    def add(self, table: str, **values: Any) -> None:
        """Add a row; `end` and other names are quoted."""
        names = ", ".join(f'"{name}"' for name in values)
        self._base.execute(
            f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", [*values.values()]
        )

    def string(self, text: str) -> int:
        """Return the id of a string."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def close(self) -> None:
        self._base.commit()
        self._base.close()


def process(pid: int) -> int:
    """Return the global id of a process."""
    return 1 << 48 | pid << 24


def export_2021(path: Path, steps: int = 6) -> Path:
    """One process on one V100; ranges `iteration`; no globalPid, graphs, start of the session or metrics."""
    made, draw, tid = Export(path, _OLD), random.Random(2021), process(41) | 41
    made.add(
        "TARGET_INFO_CUDA_GPU",
        deviceId=0,
        name="Tesla V100-SXM2-16GB",
        numMultiprocessors=80,
        computeCapabilityMajor=7,
        computeCapabilityMinor=0,
    )
    now, correlation = 5_000_000, 0
    for _ in range(steps):
        begun, free = now, {7: now, 13: now}
        for piece in range(12):
            correlation += 1
            api = "cudaMemcpyAsync_v3020" if piece % 6 == 0 else "cudaLaunchKernel_v7000"
            made.add(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=now,
                end=now + 4_000,
                globalTid=tid,
                correlationId=correlation,
                nameId=made.string(api),
            )
            stream = draw.choice((7, 13))
            start = max(free[stream], now + draw.randint(3_000, 9_000))
            end = free[stream] = start + draw.randint(2_000, 30_000)
            where = {
                "start": start,
                "end": end,
                "deviceId": 0,
                "contextId": 1,
                "streamId": stream,
                "correlationId": correlation,
            }
            if piece % 6 == 0:
                made.add("CUPTI_ACTIVITY_KIND_MEMCPY", **where, bytes=MB, copyKind=1, srcKind=1, dstKind=2)
            else:
                name = made.string("void gemm<float>(float*, int)"), made.string("gemm")
                made.add(
                    "CUPTI_ACTIVITY_KIND_KERNEL",
                    **where,
                    demangledName=name[0],
                    shortName=name[1],
                    gridX=8,
                    gridY=piece,
                    gridZ=1,
                    blockX=128,
                    blockY=1,
                    blockZ=1,
                    registersPerThread=64,
                    staticSharedMemory=1024,
                    dynamicSharedMemory=512,
                )
            now += draw.randint(6_000, 12_000)
        made.add(
            "NVTX_EVENTS", start=begun + 10, end=now - 500, eventType=PUSH_POP, text="forward", globalTid=tid
        )
        made.add("NVTX_EVENTS", start=begun, end=now, eventType=PUSH_POP, text="iteration", globalTid=tid)
        now += 50_000
    made.close()
    return path


def export_2024(path: Path, steps: int = 5) -> Path:
    """Two processes, each with its own device 0: GPUs 3 and 1; graphs, collectives, sets, GPU metrics."""
    made = Export(path, _NEW)
    for name, value in (("EXPORT_PRODUCT_VERSION", "2024.2.1.106"), ("EXPORT_PARAM_TIME_NORMALIZE", "false")):
        made.add("META_DATA_EXPORT", name=name, value=value)
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=EPOCH)
    for name, value in (("Hostname", "node7"), ("NvDriverVersion", "550.54"), ("CudaDriverVersion", "12040"),
                        ("DeviceEnvironment", "TOKEN=swordfish;PATH=/bin")):  # fmt: skip
        made.add("TARGET_INFO_SYSTEM_ENV", name=name, value=value)
    made.add("OSRT_API", start=1, end=2, globalTid=process(100), nameId=made.string("read"))
    for pid, gpu in ((100, 3), (200, 1)):
        made.add(
            "TARGET_INFO_GPU",
            id=gpu,
            name="NVIDIA H100 80GB HBM3",
            smCount=132,
            totalMemory=80 << 30,
            computeMajor=9,
            computeMinor=0,
        )
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid, numMultiprocessors=132)
        _steps_2024(made, pid, steps)
        _metrics(made, gpu)
    made.close()
    return path


def _steps_2024(made: Export, pid: int, steps: int) -> None:
    draw, tid, own = random.Random(pid), process(pid) | pid, process(pid)
    now, correlation, free = 1_000_000 + pid, 0, 0
    for step in range(10, 10 + steps):
        begun = now
        for piece in range(9):
            correlation += 1
            start = max(free, now + draw.randint(2_000, 7_000))
            end = free = start + draw.randint(3_000, 25_000)
            where = {
                "start": start,
                "end": end,
                "deviceId": 0,
                "contextId": 1,
                "streamId": 7,
                "correlationId": correlation,
                "globalPid": own,
            }
            api = _piece(made, piece, where, draw)
            made.add(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=now,
                end=now + 3_000,
                eventClass=0,
                globalTid=tid,
                correlationId=correlation,
                nameId=made.string(api),
                returnValue=0,
            )
            sizes = f"[[{64 + piece}, 32], [32, 16]]"
            text = f"aten::mm, op_id = {correlation}, sizes = {sizes}, input_op_ids = [(0,0)]"
            made.add(
                "NVTX_EVENTS", start=now - 100, end=now + 3_100, eventType=PUSH_POP, text=text, globalTid=tid
            )
            now += draw.randint(5_000, 15_000)
        made.add(
            "NVTX_EVENTS",
            start=begun - 200,
            end=now,
            eventType=START_END,
            textId=made.string(f"train_step {step}"),
            globalTid=tid,
        )
        made.add("NVTX_EVENTS", start=now, eventType=MARK, text="logged", globalTid=tid)
        now += 40_000
    made.add("NVTX_EVENTS", start=now, eventType=PUSH_POP, text="never popped", globalTid=tid)


def _piece(made: Export, piece: int, where: dict[str, Any], draw: random.Random) -> str:
    """Add one piece of device work, and return the call that launches it."""
    if piece == 0:
        made.add("CUPTI_ACTIVITY_KIND_MEMSET", **where, value=0, bytes=4096, memKind=2)
        return "cudaMemsetAsync_v3020"
    if piece == 1:
        made.add("CUPTI_ACTIVITY_KIND_MEMCPY", **where, bytes=MB, copyKind=2, srcKind=2, dstKind=0)
        return "cudaMemcpyAsync_ptsz_v7000"
    if piece == 2:
        made.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **where, graphId=CUDA_GRAPH, graphExecId=1)
        return "cudaGraphLaunch_v10000"
    name = (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)" if piece == 3 else "norm"
    )
    node = GRAPH_NODES[piece - 4] if piece in (4, 5) else None
    made.add(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        **where,
        demangledName=made.string(name),
        shortName=made.string(name),
        gridX=draw.randint(1, 3),
        gridY=1,
        gridZ=1,
        blockX=256,
        blockY=1,
        blockZ=1,
        registersPerThread=32,
        staticSharedMemory=0,
        dynamicSharedMemory=0,
        localMemoryPerThread=0,
        graphNodeId=node,
    )
    return "cudaGraphLaunch_v10000" if node else "cuLaunchKernelEx"


def _metrics(made: Export, gpu: int) -> None:
    kind = 1 << 32 | gpu
    for number, name in enumerate(("SMs Active [Throughput %]", "DRAM Read Bandwidth [Throughput %]")):
        made.add("TARGET_INFO_GPU_METRICS", typeId=kind, metricId=number, metricName=name)
        for place in range(20):
            if number == 0 or place % 4:  # the second one lacks some samples
                made.add(
                    "GPU_METRICS",
                    timestamp=900_000 + 100_000 * place,
                    typeId=kind,
                    metricId=number,
                    value=place * (number + 1),
                )


# The union of a process's device work on one device, in the export's own tables.
_BUSY = """
WITH work AS ({work}),
     before AS (SELECT *, max(e) OVER (PARTITION BY p, d ORDER BY s, e
                                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM work)
SELECT p, d, sum(max(0, e - max(s, coalesce(reached, s)))) FROM before GROUP BY p, d ORDER BY p, d
"""
_WORK = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))


def busy_by_sql(path: Path, low: int = 0, high: int = 1 << 62) -> dict[tuple[int, int], int]:
    """Return the busy time in ns by pid and device, between two times of the export; pid 0 if it has none."""
    with closing(sqlite3.connect(path)) as base:
        there = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}
        tables = [table for table in _WORK if table in there]
        columns = {row[1] for row in base.execute(f"PRAGMA table_info({_WORK[0]})")}
        pid = "globalPid >> 24 & 0xFFFFFF" if "globalPid" in columns else "0"
        work = " UNION ALL ".join(
            f'SELECT {pid} AS p, deviceId AS d, max(start, {low}) AS s, min("end", {high}) AS e FROM {table} '
            f'WHERE start < {high} AND "end" > {low}'
            for table in tables
        )
        return {(p, d): ns for p, d, ns in base.execute(_BUSY.format(work=work))}
