"""Read the traces of a recording: align their clock, add source lines, correct the starts of launches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fathom.errors import FathomError
from fathom.regular import RECORDS, read_json
from fathom.sounding.kineto import NothingReadError, NoWorkError, read_trace
from fathom.sounding.manifest import Problem
from fathom.sounding.raw.folder import Process, Raw, Record
from fathom.sounding.schema import TABLES

# A frame in Kineto's notation; the line is the first one of the function.
SOURCE = r"^(?<file>.*)\((?<line>\d+)\): (?<function>.*)$"
EMPTY = "empty-trace"  # no damage: the process ran no operators
TOLERANCE_NS = 50_000  # calls of several threads may begin in another order than their numbers by this much


class _UnfinishedError(Exception):
    """The program ended as a burst began, before its first step did: nothing is lost."""


@dataclass(frozen=True)
class Shift:
    """The clock offset of one burst (profiler minus host, ns), its error, and the host interval."""

    burst: int
    offset_ns: int
    error_ns: int
    start_ns: int
    end_ns: int


def shift_of(burst: int, marked: pl.DataFrame, annotated: pl.DataFrame) -> Shift | None:
    """Return the median offset of the marks (k, ns) from their annotations in the trace (k, ns)."""
    both = annotated.select("k", there="ns").join(marked.select("k", "ns"), on="k")
    if both.is_empty():
        return None
    offsets = sorted((both["there"] - both["ns"]).to_list())
    middle = offsets[len(offsets) // 2]
    error = max(middle - offsets[0], offsets[-1] - middle)
    return Shift(burst, middle, error, min(both["ns"]), max(both["ns"]))


def move(frame: pl.DataFrame, by: list[Shift], *times: str) -> pl.DataFrame:
    """Shift the columns `times` of rows whose first of them is in a burst's interval, ends included."""
    offset = pl.lit(0, dtype=pl.Int64)
    for burst_shift in by:
        inside = pl.col(times[0]).is_between(burst_shift.start_ns, burst_shift.end_ns)
        offset = pl.when(inside).then(pl.lit(burst_shift.offset_ns, dtype=pl.Int64)).otherwise(offset)
    moved = frame.with_columns(_offset=offset)
    return moved.with_columns(pl.col(name) + pl.col("_offset") for name in times).drop("_offset")


def read_traces(
    raw: Raw, process: Process, marked: pl.DataFrame, number: int, settled: int
) -> tuple[dict[str, pl.DataFrame], list[Shift], list[Problem]]:
    """Return the tables of all bursts, the clock shift of each burst, and problems."""
    parts: dict[str, list[pl.DataFrame]] = {}
    shifts: list[Shift] = []
    problems: list[Problem] = []
    for record in process.of("trace"):
        if 0 <= record["k0"] < settled:  # captures (-1) stay valid
            continue
        try:
            trace_tables, shift, wrong = _trace(raw, record, marked)
        except NothingReadError:  # an engine's scheduler, whose workers are other processes
            problems.append(Problem(EMPTY, record["phase"], rank=number))
            continue
        except _UnfinishedError:
            continue
        except FathomError as error:
            problems.append(
                Problem("trace-lost", str(error), rank=number, spoils=["kernels", "ops", "launches"])
            )
            continue
        problems += wrong
        shifts += [shift] if shift else []
        for name, frame in trace_tables.items():
            parts.setdefault(name, []).append(frame)
    return {name: pl.concat(frames) for name, frames in parts.items()}, shifts, problems


def _trace(
    raw: Raw, record: Record, marked: pl.DataFrame
) -> tuple[dict[str, pl.DataFrame], Shift | None, list[Problem]]:
    path = raw.trace(record["file"])
    if path is None:
        raise FathomError(f"The trace {record['file']} is missing, so its burst was left out.")
    try:
        trace = read_trace(path, phase=record["phase"], burst=record["burst"])
    except NoWorkError as error:
        if record["k0"] >= 0 and marked.filter(pl.col("k") > record["k0"]).is_empty():
            raise _UnfinishedError from error
        if isinstance(error, NothingReadError):
            raise
        raise FathomError(
            f"The trace {record['file']} has neither operators nor device work, so its burst was left out."
        ) from error
    shift = shift_of(record["burst"], marked, trace.marks)
    trace_tables = {**trace.tables, "ops": with_lines(trace.tables["ops"], path)}
    if record["phase"] == "attribution":
        trace_tables["memory"] = trace.memory.filter(pl.col("event") != "peak")
    return trace_tables, shift, list(trace.problems)


def with_lines(ops: pl.DataFrame, trace: Path) -> pl.DataFrame:
    """Add `line` to `ops` if the probe recorded lines beside the trace."""
    called = _called(trace)
    if called.is_empty() or ops["source"].null_count() == ops.height:
        return ops
    parts = ops.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col("start_ns").alias("ns"),
        pl.col("source").str.extract_groups(SOURCE),
    ).unnest("source")
    near = (
        parts.drop_nulls("file")
        .sort("ns")
        .join_asof(called, on="ns", by=["file", "function"], strategy="backward", check_sortedness=False)
    )
    lines = near.drop_nulls("ran").select("row", line="ran")
    rows = ops.drop("line").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    return rows.join(lines, on="row", how="left", maintain_order="left").select(list(TABLES["ops"]))


def _called(trace: Path) -> pl.DataFrame:
    """ns, file, function, ran (the line that the function had reached); empty if none were recorded."""
    schema = {"ns": pl.Int64, "file": pl.String, "function": pl.String, "ran": pl.Int64}
    path = trace.parent / f"lines-{trace.name.removesuffix('.gz')}"
    try:
        rows = read_json(path, RECORDS)
        return pl.DataFrame(rows, schema=schema, orient="row").sort("ns", maintain_order=True)
    except (OSError, ValueError, TypeError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=schema)


def in_order(launches: pl.DataFrame) -> pl.DataFrame:
    """Replace impossible times of launches, one burst at a time.

    A start is impossible if a later call began before it, because CUPTI numbers the calls of a process in
    order; it is interpolated. A launch's end is impossible if it is long after the next call's start; that
    start replaces it. Both occur if calls are derived from the queue and submission times of kernels: if the
    host is far ahead of the device, these say when the device reached the kernel.
    """
    if launches.is_empty():
        return launches
    rows = launches.with_row_index("row")
    fixed = [_fixed(burst) for _, burst in rows.group_by("phase", "burst", maintain_order=True)]
    return pl.concat(fixed).sort("row").drop("row")


def _fixed(rows: pl.DataFrame) -> pl.DataFrame:
    """Correct one burst; calls without a correlation, and the last calls, stay unchanged."""
    order = rows.drop_nulls(["correlation", "start_ns"]).sort("correlation", "start_ns")
    starts = order["start_ns"].to_numpy()
    if len(starts) < 2:
        return rows
    following = np.minimum.accumulate(starts[::-1])[::-1]
    late = starts > following + TOLERANCE_NS
    ends = order["end_ns"].fill_null(strategy="zero").to_numpy()
    launch = order["api"].str.contains("Launch").fill_null(value=False).to_numpy()
    later = np.append(following[1:], ends[-1])
    long = launch & (ends > np.maximum(later, starts) + TOLERANCE_NS)
    if not (late | long).any():
        return rows
    number = order["correlation"].to_numpy()
    began = np.where(late, np.interp(number, number[~late], starts[~late]).astype(np.int64), starts)
    took = np.clip(np.append(np.diff(began), ends[-1] - began[-1]), 0, np.maximum(ends - starts, 0))
    times = order.select("row").with_columns(
        at=pl.Series(began), until=pl.Series(np.where(late | long, began + took, ends))
    )
    joined = rows.join(times, on="row", how="left", maintain_order="left")
    moved = (pl.col("at") != pl.col("start_ns")) | (pl.col("until") != pl.col("end_ns"))
    return joined.with_columns(
        start_ns=pl.when(moved).then("at").otherwise("start_ns"),
        end_ns=pl.when(moved).then("until").otherwise("end_ns"),
    ).drop("at", "until")
