"""The tables of an export as those of a sounding, each row with its `process`.

Versions of nsys differ in their tables and columns: missing values are null.
"""

from __future__ import annotations

import polars as pl

from fathom.sounding.events.database import Database

KERNELS, COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS, GRAPHS = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS, RANGES = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_SPAN = {"start": int, "end": int}
_WORK = {
    **_SPAN, "globalPid": int, "deviceId": int, "streamId": int, "correlationId": int, "graphNodeId": int,
}  # fmt: skip
_DIMS = {axis + side: int for axis in ("grid", "block") for side in "XYZ"}
_KERNEL = {
    **_WORK, **_DIMS, "demangledName": int, "shortName": int, "name": str, "registersPerThread": int,
    "staticSharedMemory": int, "dynamicSharedMemory": int, "localMemoryPerThread": int,
}  # fmt: skip
_NAMES = {
    "start": "start_ns", "end": "end_ns", "deviceId": "cuda", "streamId": "stream",
    "correlationId": "correlation", "graphNodeId": "graph_node", "registersPerThread": "registers",
    "localMemoryPerThread": "local_bytes",
}  # fmt: skip
# Of CUPTI, should the export lack its tables of labels: directions of copies, and kinds of memory.
_DIRECTIONS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD",
}  # fmt: skip
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
_PUSH_POP, _START_END = 59, 60  # event types of ranges; the others are marks, names and domains
_VERSION = r"(?:_pt[sd][sz])?(?:_v\d+)?$"  # of a runtime call: cudaLaunchKernel_ptsz_v7000
_FIELDS = r",\s(?:op_id|seq|sizes|input_op_ids)\s=\s.*$"  # that torch's emit_nvtx adds to the name of an op
_OP = r"^[a-z_][\w.]*::|Backward\d*$"  # others are regions of the program, like FSDP::pre_forward
_SIZES = r",\ssizes\s=\s(\[.*?\])(?:,\s\w+\s=|$)"
_PROCESS = 1 << 24  # a global id of a thread is this times that of its process, plus the thread's number


class Tables:
    """Ranges, calls and device work of an export, with columns of a sounding."""

    def __init__(self, base: Database) -> None:
        self._base = base
        strings = base.read("StringIds", {"id": int, "value": str})
        self._strings = strings.unique("id", keep="first") if strings.width == 2 else None
        self.open_ranges: dict[int, int] = {}  # by process: ranges that had not ended with the recording

    def ops(self) -> pl.DataFrame:
        """Return the NVTX ranges; those of torch's `emit_nvtx` are ops, with their shapes."""
        wanted = {**_SPAN, "eventType": int, "text": str, "textId": int, "globalTid": int}
        rows = self._base.read_all(RANGES, wanted)
        rows = rows.filter(pl.col("eventType").is_in([_PUSH_POP, _START_END]))
        left_open = rows.filter(pl.col("end").is_null()).group_by(pl.col("globalTid") // _PROCESS).len()
        self.open_ranges = dict(left_open.iter_rows())
        rows = self._named(rows.filter(pl.col("end").is_not_null()), "textId", "registered")
        full = pl.coalesce("text", "registered")
        name = full.str.replace(_FIELDS, "")
        is_op = full.str.contains(_FIELDS) & name.str.contains(_OP)
        return rows.select(
            *_thread(),
            name=name,
            kind=pl.when(is_op).then(pl.lit("op")).otherwise(pl.lit("annotation")),
            shapes=full.str.extract(_SIZES),
            start_ns="start",
            end_ns="end",
        )

    def launches(self) -> pl.DataFrame:
        """Return the calls of the CUDA runtime and driver."""
        wanted = {**_SPAN, "globalTid": int, "correlationId": int, "nameId": int}
        rows = self._named(self._base.read_all(CALLS, wanted), "nameId", "api")
        return rows.select(
            *_thread(),
            pl.col("api").str.replace(_VERSION, ""),
            correlation="correlationId",
            start_ns="start",
            end_ns="end",
        )

    def kernels(self) -> pl.DataFrame:
        """Return the device work: kernels, copies, sets, and graphs that were traced as a whole."""
        parts = [self._kernels(), self._copies(), self._sets(), self._graphs()]
        work = pl.concat([part.rename(_NAMES, strict=False) for part in parts], how="diagonal")
        return work.with_columns(process=pl.col("globalPid") // _PROCESS)

    def _kernels(self) -> pl.DataFrame:
        rows = self._base.read_all(KERNELS, _KERNEL)
        rows = self._named(self._named(rows, "demangledName", "full"), "shortName", "short")
        shared = pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory")
        return rows.with_columns(
            kind=pl.lit("compute"),
            name=pl.coalesce("full", "short", "name"),
            grid=_dims("grid"),
            block=_dims("block"),
            shared_bytes=shared,
        )

    def _copies(self) -> pl.DataFrame:
        wanted = {**_WORK, "bytes": int, "copyKind": int, "srcKind": int, "dstKind": int}
        rows = self._base.read_all(COPIES, wanted)
        direction = pl.col("copyKind").replace_strict(_DIRECTIONS, default="unknown")
        source, target = (_memory(pl.col(side)) for side in ("srcKind", "dstKind"))
        return rows.with_columns(
            kind=pl.lit("copy"), name=pl.format("Memcpy {} ({} -> {})", direction, source, target)
        )

    def _sets(self) -> pl.DataFrame:
        wanted = {**_WORK, "bytes": int, "memKind": int}
        rows = self._base.read_all(SETS, wanted)
        return rows.with_columns(
            kind=pl.lit("set"), name=pl.format("Memset ({})", _memory(pl.col("memKind")))
        )

    def _graphs(self) -> pl.DataFrame:
        wanted = {**_WORK, "graphId": int}
        rows = self._base.read_all(GRAPHS, wanted)
        return rows.with_columns(
            kind=pl.lit("compute"), name=pl.format("CUDA graph {}", pl.col("graphId").fill_null(0))
        )

    def _named(self, rows: pl.DataFrame, by: str, name: str) -> pl.DataFrame:
        """Add the column `name`: the string whose id is in the column `by`."""
        if self._strings is None:
            return rows.with_columns(pl.lit(None, pl.String).alias(name))
        strings = self._strings.rename({"id": by, "value": name})
        return rows.join(strings, on=by, how="left", maintain_order="left")


def _thread() -> tuple[pl.Expr, pl.Expr]:
    """Return the process, as a global id without its thread, and the thread's number."""
    own = pl.col("globalTid")
    return (own // _PROCESS).alias("process"), (own % _PROCESS).alias("thread")


def _dims(axis: str) -> pl.Expr:
    return pl.concat_str([pl.col(axis + side) for side in "XYZ"], separator="x")


def _memory(kind: pl.Expr) -> pl.Expr:
    return kind.replace_strict(_MEMORY, default="Unknown", return_dtype=pl.String)
