"""One export of Nsight Systems as traces: one per process that used a GPU."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.sounding.events import Events, Origin, Trace, normalised
from fathom.sounding.events.database import Database
from fathom.sounding.manifest import Facts, Problem
from fathom.sounding.nsys import tables as source
from fathom.sounding.nsys.about import GPUS, About
from fathom.sounding.nsys.tables import Tables
from fathom.sounding.schema import conform, empty

_MARKS = frozenset(
    (source.KERNELS, source.COPIES, source.CALLS, source.RANGES, source.GRAPHS, "META_DATA_EXPORT")
)
_PID = 0xFFFFFF
# Reasons for missing parts, by the table that an export may lack.
_LACKING = {
    source.CALLS: ("launches", "the export has no calls of the CUDA runtime; record with `--trace=cuda`"),
    source.RANGES: ("regions", "the export has no NVTX ranges; record with `--trace=nvtx`"),
}
# Tables that are not imported, by what they hold.
_UNREAD = {
    "OSRT_API": "calls of the operating system",
    "COMPOSITE_EVENTS": "samples of the CPU",
    "SCHED_EVENTS": "thread scheduling",
    "NIC_METRICS": "network metrics",
    "NET_NIC_METRIC": "network metrics",
    "MPI_COLLECTIVES_EVENTS": "MPI calls",
}
_WHOLE_GRAPHS = (
    "CUDA graphs were traced as a whole, so their kernels, copies and collectives cannot be separated; "
    "record with `--cuda-graph-trace=node`"
)
TABLE, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_DEVICE = 0xFF  # bits of a type that are the GPU's number


def is_nsys(base: Database) -> bool:
    """Return whether a database is an export of Nsight Systems."""
    return bool(base.tables & _MARKS) and "StringIds" in base.tables


def read_nsys(base: Database, step_range: str | None = None) -> list[Trace]:
    """Return one trace per process with device work, ordered by device; without any, one with the ranges.

    `step_range` names the NVTX ranges that are steps. Raises BadInputError if the export is damaged or empty,
    or if no range is named so.
    """
    about, tables = About(base), Tables(base)
    parts = {"ops": tables.ops(), "launches": tables.launches(), "kernels": tables.kernels()}
    since_epoch = pl.col("start_ns", "end_ns") + about.zero_ns
    parts = {name: part.with_columns(since_epoch) for name, part in _attributed(parts).items()}
    processes = _processes(parts)
    if not processes:
        raise base.bad(
            "it has neither device work nor NVTX ranges; record with `nsys profile --trace=cuda,nvtx`"
        )
    measured = samples(base, about.zero_ns)
    lacking = _abstained(base, parts["kernels"])
    every = [_events(process, parts, about, measured) for process in processes]
    for process, events in zip(processes, every, strict=True):
        events.abstained += lacking
        events.problems += _open_ranges(tables.open_ranges.get(process, 0))
    return [normalised(events, step_range) for events in every]


def _attributed(parts: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Give work without a process to the only process that launches; without one, none of it has a launch."""
    work = parts["kernels"]
    if work["process"].null_count() == 0:
        return parts
    launching = parts["launches"]["process"].drop_nulls().unique()
    if len(launching) == 1:
        return {**parts, "kernels": work.with_columns(process=pl.col("process").fill_null(launching[0]))}
    lost = pl.col("process").is_null()
    correlation = pl.when(~lost).then("correlation").alias("correlation")
    return {**parts, "kernels": work.with_columns(correlation, process=pl.col("process").fill_null(0))}


def _processes(parts: dict[str, pl.DataFrame]) -> list[int]:
    work = parts["kernels"].group_by("process").agg(pl.col("cuda").min()).sort("cuda", "process")
    if len(work):
        return work["process"].to_list()
    return parts["ops"]["process"].drop_nulls().mode().sort()[:1].to_list()


def _events(
    process: int, parts: dict[str, pl.DataFrame], about: About, measured: tuple[pl.DataFrame, list[list[str]]]
) -> Events:
    own = {name: part.filter(process=process).drop("process") for name, part in parts.items()}
    own["kernels"] = _on_gpus(own["kernels"], about.physical.filter(pid=process & _PID))
    used = own["kernels"]["device"].drop_nulls().unique().sort().to_list()
    sampled, groups = measured
    mine = sampled.filter(pl.col("device").is_in(used))
    facts: Facts = {"counter_groups": groups} if len(mine) else {}
    return Events(own, _origin(process, used, about), samples=mine, facts=facts)


def _on_gpus(work: pl.DataFrame, physical: pl.DataFrame) -> pl.DataFrame:
    """Add `device`: the GPU behind a process's own number for it, which CUDA_VISIBLE_DEVICES may change."""
    known = dict(physical.select("cuda", "device").iter_rows())
    return work.with_columns(device=pl.col("cuda").replace(known) if known else pl.col("cuda")).drop("cuda")


def _origin(process: int, used: list[int], about: About) -> Origin:
    names = {gpu["index"]: gpu.get("name") or "" for gpu in about.gpus}
    return Origin(
        pid=process & _PID,
        rank=None,
        world=None,
        host=about.host,
        devices={device: names.get(device, "") for device in used},
        gpus=[gpu for gpu in about.gpus if gpu["index"] in used],
        versions=about.versions,
    )


def _abstained(base: Database, work: pl.DataFrame) -> list[dict[str, str]]:
    """Return the tables that the export lacks, and those that are not imported."""
    lacking = {what: why for table, (what, why) in _LACKING.items() if table not in base.tables}
    if not base.tables & GPUS.keys():
        lacking["machine"] = "the export does not name its GPUs"
    if work["name"].str.starts_with("CUDA graph ").any():
        lacking["kernels in graphs"] = _WHOLE_GRAPHS
    lacking |= {what: "they are not imported" for table, what in _UNREAD.items() if table in base.tables}
    return [{"what": what, "why": why} for what, why in lacking.items()]


def _open_ranges(count: int) -> list[Problem]:
    if not count:
        return []
    what = "range was" if count == 1 else "ranges were"
    text = f"{count} NVTX {what} still open when the recording stopped, and left out."
    return [Problem("open-ranges", text, count)]


def samples(base: Database, zero_ns: int) -> tuple[pl.DataFrame, list[list[str]]]:
    """Return the `samples` table, and the names of the counters in each of its groups.

    A sample covers the time since the one before it, and the first one has no length.
    """
    rows = base.read(TABLE, {"timestamp": int, "typeId": int, "metricId": int, "value": float})
    if len(rows) == 0 or rows.width < 4:
        return empty("samples"), []
    names = base.read(NAMES, {"typeId": int, "metricId": int, "metricName": str})
    keys = [key for key in ("typeId", "metricId") if key in names.columns]
    if "metricName" not in names.columns or "metricId" not in keys:
        return empty("samples"), []
    named = rows.drop_nulls().join(names.drop_nulls().unique(keys, keep="first"), on=keys)
    frames: list[pl.DataFrame] = []
    groups: list[list[str]] = []
    for (device,), part in named.group_by(pl.col("typeId") & _DEVICE, maintain_order=True):
        wide = part.pivot("metricName", index="timestamp", values="value", aggregate_function="first")
        wide = wide.sort("timestamp")
        frames.append(_frame(wide, int(device), len(groups), zero_ns))
        groups.append(wide.columns[1:])
    return (pl.concat(frames) if frames else empty("samples")), groups


def _frame(wide: pl.DataFrame, device: int, group: int, zero_ns: int) -> pl.DataFrame:
    ends = wide["timestamp"].to_numpy() + zero_ns
    values = wide.drop("timestamp").cast(pl.Float32).fill_null(np.nan).to_numpy()
    rows = pl.DataFrame(
        {
            "device": np.full(len(ends), device),
            "group": np.full(len(ends), group),
            "start_ns": np.concatenate([ends[:1], ends[:-1]]),
            "end_ns": ends,
            "values": pl.Series(values.tolist(), dtype=pl.List(pl.Float32)),
        }
    )
    return conform("samples", rows.with_columns(phase=pl.lit("timeline"), burst=pl.lit(0)))
