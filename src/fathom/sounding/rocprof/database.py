"""Databases of rocprofv3 (rocpd, schema version 3): one trace per process.

Every table exists once per run, and its name ends with the run's id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from fathom.sounding.events import Events, Origin, Trace, listed_gpu, normalised
from fathom.sounding.events.database import Database
from fathom.sounding.rocprof.common import LAUNCHES, MARKERS, NO_CALLS, NO_REGIONS, copy_name, dims, stream

_RUN = re.compile(r"rocpd_kernel_dispatch(_\w+)?$")
_SPAN = {"pid": int, "tid": int, "start": int, "end": int, "event_id": int}
_SIZES = [f"grid_size_{axis}" for axis in "xyz"], [f"workgroup_size_{axis}" for axis in "xyz"]
_DISPATCH = {
    **_SPAN, **dict.fromkeys((*_SIZES[0], *_SIZES[1]), int), "agent_id": int, "kernel_id": int,
    "queue_id": int, "stream_id": int, "private_segment_size": int, "group_segment_size": int,
}  # fmt: skip
_COPY = {
    **_SPAN, "name_id": int, "dst_agent_id": int, "src_agent_id": int, "size": int, "queue_id": int,
    "stream_id": int,
}  # fmt: skip


def is_rocpd(base: Database) -> bool:
    """Return whether a database is one of rocprofv3."""
    return any(_RUN.match(table) for table in base.tables)


def read_rocpd(base: Database, step_range: str | None = None) -> list[Trace]:
    """Return one trace per process with device work. Raises BadInputError if there is none."""
    runs = [_Run(base, match[1] or "") for table in sorted(base.tables) if (match := _RUN.match(table))]
    every = [events for run in runs for events in run.events()]
    if not every:
        raise base.bad("it has no kernel dispatches; record with `rocprofv3 --kernel-trace`")
    return [normalised(events, step_range) for events in every]


class _Run:
    """The tables of one run."""

    def __init__(self, base: Database, suffix: str) -> None:
        self._base, self._suffix = base, suffix
        self._strings = self._read("string", {"id": int, "string": str}).unique("id", keep="first")
        events = self._read("event", {"id": int, "stack_id": int, "category_id": int, "extdata": str})
        self._events = events.unique("id", keep="first").rename({"id": "event_id"})
        self._agents = self._gpus()

    def events(self) -> list[Events]:
        """Return the events of each process with device work."""
        work = pl.concat([self._kernels(), self._copies()], how="diagonal")
        regions = self._regions()
        ranges, calls = _ranges(regions), _calls(regions)
        lacking = [*([NO_REGIONS] if ranges.is_empty() else []), *([NO_CALLS] if calls.is_empty() else [])]
        pids = work.group_by("pid").agg(pl.col("device").min()).drop_nulls().sort("device", "pid")["pid"]
        tables = {"ops": ranges, "launches": calls, "kernels": work}
        return [
            Events(
                {name: table.filter(pid=pid).drop("pid") for name, table in tables.items()},
                self._origin(pid, work.filter(pid=pid)["device"]),
                abstained=list(lacking),
            )
            for pid in pids
        ]

    def _read(self, table: str, wanted: Mapping[str, type]) -> pl.DataFrame:
        """Read a table of this run; the columns that it lacks are null."""
        return self._base.read_all(f"rocpd_{table}{self._suffix}", wanted)

    def _gpus(self) -> pl.DataFrame:
        wanted = {"id": int, "type": str, "type_index": int, "product_name": str, "name": str}
        gpus = (
            self._read("info_agent", wanted)
            .filter(pl.col("type") == "GPU")
            .unique("id", keep="first")
            .sort("id")
        )
        number = pl.coalesce("type_index", pl.int_range(pl.len()))
        return gpus.select(agent="id", device=number, model=pl.coalesce("product_name", "name"))

    def _kernels(self) -> pl.DataFrame:
        symbols = self._read("info_kernel_symbol", {"id": int, "display_name": str, "kernel_name": str})
        names = symbols.unique("id").select(kernel_id="id", name=pl.coalesce("display_name", "kernel_name"))
        rows = self._read("kernel_dispatch", _DISPATCH).join(names, on="kernel_id", how="left")
        rows = self._launched(rows).join(self._agents, left_on="agent_id", right_on="agent", how="left")
        return rows.select(
            "pid", "device", "correlation", "name", stream(), kind=pl.lit("compute"),
            start_ns="start", end_ns="end", grid=dims(_SIZES[0], _SIZES[1]), block=dims(_SIZES[1]),
            shared_bytes="group_segment_size", local_bytes="private_segment_size",
        )  # fmt: skip

    def _copies(self) -> pl.DataFrame:
        rows = self._launched(self._named(self._read("memory_copy", _COPY), "name_id", "operation"))
        device = dict(self._agents.select("agent", "device").iter_rows())
        sides = [
            pl.col(side).replace_strict(device, default=None, return_dtype=pl.Int64)
            for side in ("dst_agent_id", "src_agent_id")
        ]
        return rows.select(
            "pid", "correlation", stream(), device=pl.coalesce(sides), name=copy_name("operation"),
            kind=pl.lit("copy"), start_ns="start", end_ns="end", bytes="size",
        )  # fmt: skip

    def _regions(self) -> pl.DataFrame:
        """Return calls and ranges with `name`, `category` and the message of rocTX."""
        rows = self._named(self._read("region", {**_SPAN, "name_id": int}), "name_id", "name")
        rows = self._named(self._launched(rows), "category_id", "category")
        threads = (
            self._read("info_thread", {"id": int, "tid": int})
            .unique("id")
            .rename({"id": "tid", "tid": "thread"})
        )
        message = pl.col("extdata").str.extract(r'"message"\s*:\s*"([^"]*)"')
        return rows.join(threads, on="tid", how="left").with_columns(
            pl.coalesce("thread", "tid").alias("thread"), message=message
        )

    def _launched(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add `correlation`: the number that a call shares with its work, which is 0 if there is none."""
        joined = rows.join(self._events, on="event_id", how="left", maintain_order="left")
        return joined.with_columns(correlation=pl.when(pl.col("stack_id") != 0).then("stack_id"))

    def _named(self, rows: pl.DataFrame, by: str, name: str) -> pl.DataFrame:
        strings = self._strings.rename({"id": by, "string": name})
        return rows.join(strings, on=by, how="left", maintain_order="left")

    def _origin(self, pid: int, devices: pl.Series) -> Origin:
        used = devices.drop_nulls().unique().sort().to_list()
        names = dict(self._agents.select("device", "model").iter_rows())
        processes = dict(self._read("info_process", {"id": int, "pid": int}).iter_rows())
        hosts = self._read("info_node", {"hostname": str})["hostname"].drop_nulls()
        gpus = [listed_gpu(device, names.get(device) or "") for device in used]
        return Origin(
            processes.get(pid), None, None, hosts[0] if len(hosts) else None,
            {device: names.get(device) or "" for device in used}, gpus, {},
        )  # fmt: skip


def _calls(regions: pl.DataFrame) -> pl.DataFrame:
    calls = regions.filter(pl.col("category").str.contains(LAUNCHES))
    return calls.select("pid", "thread", "correlation", api="name", start_ns="start", end_ns="end")


def _ranges(regions: pl.DataFrame) -> pl.DataFrame:
    marked = pl.col("category").str.contains(MARKERS) | pl.col("message").is_not_null()
    ranges = regions.filter(marked, pl.col("end") > pl.col("start"))
    return ranges.select(
        "pid", "thread", name=pl.coalesce("message", "name"), kind=pl.lit("annotation"),
        start_ns="start", end_ns="end",
    )  # fmt: skip
