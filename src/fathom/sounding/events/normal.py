"""Make the tables of a sounding from the events of one process, in any order and with damaged rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fathom.sounding.checking import DEVICES
from fathom.sounding.events import integrity
from fathom.sounding.events.nesting import CALL, OP, nest, through
from fathom.sounding.events.steps import steps_from_ranges
from fathom.sounding.events.trace import Origin, Trace
from fathom.sounding.events.work import by_name
from fathom.sounding.families import with_families
from fathom.sounding.manifest import Facts, Problem
from fathom.sounding.schema import TABLES, conform, empty

_TABLES = {"ops": "name", "launches": "api", "kernels": "name"}  # and the column that must not be null
_COUNTS = ("registers", "shared_bytes", "local_bytes", "bytes")
_LABELS = {"phase": pl.lit("timeline"), "burst": pl.lit(0, pl.Int32)}


@dataclass
class Events:
    """Events of one process as an importer read them.

    `tables` are `ops`, `launches` and `kernels` with the columns that the file has; ids, parents, families
    and directions are added later. `samples` and `facts` are those of a Trace.
    """

    tables: dict[str, pl.DataFrame]
    origin: Origin
    problems: list[Problem] = field(default_factory=list)
    abstained: list[dict[str, str]] = field(default_factory=list)
    samples: pl.DataFrame = field(default_factory=lambda: empty("samples"))
    facts: Facts = field(default_factory=dict)


def normalised(events: Events, step_range: str | None = None) -> Trace:
    """Return the tables of `events`; damaged rows are left out and listed in `problems`.

    Steps are the ranges that `step_range` matches, or else those that look like steps. They are not in `ops`.
    """
    problems = list(events.problems)
    ops, launches, kernels = (_sound(events.tables.get(table), table, problems) for table in _TABLES)
    steps, ops = steps_from_ranges(ops, step_range)
    ops, launches = _nested(ops, launches)
    kernels = with_families(by_name(_on_devices(kernels, problems)))
    integrity.check(kernels, launches, problems)
    integrity.steps_in_order(steps, problems)
    integrity.silence([ops, launches, kernels], problems)
    tables = {"ops": ops, "launches": launches, "kernels": kernels}
    return Trace(
        {table: conform(table, frame.with_columns(**_LABELS)) for table, frame in tables.items()},
        events.origin,
        problems,
        steps=steps,
        samples=events.samples,
        facts=events.facts,
        abstained=events.abstained,
    )


def _sound(frame: pl.DataFrame | None, table: str, problems: list[Problem]) -> pl.DataFrame:
    """Return the rows with a name and possible times, ordered by time; the others become `problems`."""
    rows = empty(table) if frame is None or not frame.width else frame
    rows = rows.with_columns(pl.col("start_ns", "end_ns").cast(pl.Int64))
    wrong = integrity.damage(rows["start_ns"], rows["end_ns"], rows[_TABLES[table]])
    integrity.report(wrong, table, problems)
    good = rows.filter(~np.logical_or.reduce(list(wrong.values())))
    good = good.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in TABLES[table].items() if name not in good.columns
    )
    return good.sort("start_ns", pl.col("start_ns") - pl.col("end_ns"), maintain_order=True)


def _on_devices(kernels: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """Return the work whose device and stream are known; `direction` is made from names later."""
    known = pl.col("device").is_between(0, DEVICES - 1) & pl.col("stream").is_not_null()
    kept = kernels.filter(known)
    if count := len(kernels) - len(kept):
        text = f"{count} kernels have no usable device or stream and were left out."
        problems.append(Problem("no-device", text, count, spoils=["kernels"]))
    counts = (pl.when(pl.col(name).is_between(0, _most(name))).then(name).alias(name) for name in _COUNTS)
    return kept.with_columns(counts).drop("direction", "family")


def _most(column: str) -> int:
    """Return the largest number that the column can hold and sums keep exact."""
    return 2**31 - 1 if TABLES["kernels"][column] == pl.Int32 else 2**53


def _nested(ops: pl.DataFrame, launches: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ops with `id` and `parent`, and launches with `op`: the innermost op around each."""
    both = pl.concat([frame.select("thread", "start_ns", "end_ns") for frame in (ops, launches)])
    kinds = np.repeat([OP, CALL], [len(ops), len(launches)])
    thread, start, end = (both[name].fill_null(-1).to_numpy() for name in both.columns)
    ids = np.arange(len(ops))
    around = through(ids, nest(thread, start, end, kinds).op)
    outer = {"id": pl.Series(ids), "parent": around[: len(ops)]}
    return ops.with_columns(**outer), launches.with_columns(op=around[len(ops) :])
