"""Work of a CPU by op, and its float64 part."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from fathom.analysis import in_stretches
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import Spans, containing, covered, of_rows
from fathom.analysis.results import Memory
from fathom.analysis.work import regions, with_own_time
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Double, Optimizers, Work
from fathom.diagnosis.signals.shapes import dtypes_of, shapes_of
from fathom.diagnosis.signals.value import signal

NAME = "double"  # among an op's dtypes
ADAM = r"^Optimizer\.step#AdamW?\."  # a region
# Stacks that end in Adam, and not in a closure that it calls for the forward and backward pass.
IN_ADAM = r"/torch/optim/adamw?\.py:[^;]*(;[^;]*/torch/(optim|utils|compiler|autograd|_\w+)\b[^;]*)*$"
VERSION, FUSED_SINCE = re.compile(r"(\d+)\.(\d+)"), (2, 4)
LEAST_SAMPLES = 10
BACKWARD = re.compile(r"^autograd::engine|Backward\d*$")


@signal("host.work", "ms per step")
def work(recorded: Recorded) -> list[Work]:
    """Return rows of a CPU's ledger by path of ops, longest first; a row's time is divided among its ops."""
    ops = recorded.ops.with_row_index("place").with_columns(inside=recorded.inside(recorded.ops))
    rows = _with_path(recorded, ops).group_by("name", "path", maintain_order=True)
    groups = rows.agg(
        ns=pl.col("took").filter("inside").sum(),
        count=pl.col("inside").sum() / recorded.steps,
        source=pl.col("ran").drop_nulls().mode().sort().first(),
    ).filter(pl.col("ns") > 0)
    return sorted(in_ledger(recorded, groups), key=lambda work: -work.ms)


@signal("host.work_by_shapes", "ms per step")
def work_by_shapes(recorded: Recorded) -> list[Work]:
    """Return rows of a CPU's ledger by path and shapes; the attribution phase divides each row's time."""
    ops = recorded.ops.with_row_index("place").filter(phase="attribution")
    rows = _with_path(recorded, ops).group_by("name", "path", "shapes", maintain_order=True)
    return list(in_ledger(recorded, rows.agg(ns=pl.col("took").sum())))


def work_within(recorded: Recorded, ops: pl.DataFrame, times: Spans) -> list[Work]:
    """Return each op's part of its row in a CPU's ledger: its time in calls that began within `times`."""
    if not len(times.starts):
        return []
    timed = with_own_time(ops.filter(kind="op"))
    inside = containing(times, timed["start_ns"].to_numpy()) >= 0
    rows = timed.with_columns(inside=pl.Series(inside)).group_by("name", maintain_order=True)
    parts = rows.agg(
        share=pl.col("took").filter("inside").sum() / pl.col("took").sum(), calls=pl.col("inside").mean()
    )
    ledger = {row.detail: row for row in recorded.ledger if row.entry == Entry.OPS}
    return [
        Work(Entry.OPS, name, ledger[name].ms * share, (ledger[name].count or 0.0) * calls, (name,))
        for name, share, calls in parts.filter(pl.col("share") > 0).iter_rows()
        if name in ledger
    ]


@signal("host.recomputed", "ms per step")
def recomputed(recorded: Recorded) -> list[Work]:
    """Return the work of a CPU that repeats part of the forward pass in the backward pass."""
    return work_within(recorded, recorded.ops, regions(recorded.ops))


@signal("host.optimizers", "")
def optimizers(recorded: Recorded) -> Optimizers:
    """Return Adam's share of the samples of clean steps, and of the time between ops.

    Raises UnknownSignalError for versions of torch without a fused form for processors.
    """
    torch = VERSION.match(recorded.store.manifest.versions.get("torch", ""))
    if torch and tuple(map(int, torch.groups())) < FUSED_SINCE:
        raise UnknownSignalError("this version of torch has no fused Adam for processors")
    stacks = recorded.rows("stacks").filter(phase="clean").select("time_ns", "thread", "stack").collect()
    stacks = in_stretches(stacks, recorded.account.stretches)
    if stacks.height < LEAST_SAMPLES:
        raise UnknownSignalError("too few samples of stacks in clean steps")
    ops = recorded.ops.filter(recorded.inside(recorded.ops)).drop_nulls("end_ns")
    steps, busy = ops.filter(pl.col("name").str.contains(ADAM)), of_rows(ops.filter(kind="op"))
    between = [span.length - int(covered(busy, *span).sum()) for span in (of_rows(steps), recorded.used)]
    mine = int(stacks["stack"].str.contains(IN_ADAM).sum())
    share = between[0] / between[1] if between[1] > 0 else 0.0
    return Optimizers(mine / stacks.height, stacks.height, share)


@signal("host.memory_share")
def memory_share(recorded: Recorded) -> float:
    """Return the share of the host's memory that all ranks hold if each holds as much as the largest."""
    used = (recorded.memory or Memory()).peak_resident_bytes
    total = (recorded.machine.get("host") or {}).get("memory_bytes")
    if not used or not total:
        raise UnknownSignalError("the peak memory use was not recorded")
    return float(max(len(recorded.every), 1) * used / total)


def _with_path(recorded: Recorded, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops with `path`, the names from the outermost op on, and `took`, their own nanoseconds."""
    timed = with_own_time(ops.filter(kind="op"))
    paths = [list(recorded.paths.names(place)) for place in timed["place"]]
    return timed.with_columns(path=pl.Series(paths, dtype=pl.List(pl.String)))


def in_ledger(recorded: Recorded, groups: pl.DataFrame) -> Iterator[Work]:
    """Yield the work of the groups, each with its share (by `ns`) of the ledger's row of that name.

    `count` is the number of calls per step, 0 if the groups have none.
    """
    ledger = {row.detail: row.ms for row in recorded.ledger if row.entry == Entry.OPS}
    groups = groups.with_columns(share=pl.col("ns") / pl.col("ns").sum().over("name"))
    for row in groups.filter(pl.col("ns") > 0).iter_rows(named=True):
        if row["name"] in ledger:
            yield Work(
                Entry.OPS,
                row["name"],
                ledger[row["name"]] * row["share"],
                row.get("count", 0.0),
                tuple(row["path"]),
                row.get("shapes"),
                row.get("dtypes"),
                source=row.get("source"),
            )


@signal("host.doubles", "ms per step")
def doubles(recorded: Recorded) -> list[Double]:
    """Return rows of a CPU's ledger that are at least partly computed in float64, longest first.

    The share of an op's calls with float64 comes from the attribution phase, their time from the ledger of
    the profiled step.
    """
    ops = recorded.ops.with_row_index("place")
    ops = ops.filter(pl.col("kind") == "op", pl.col("phase") == "attribution")
    if ops["dtypes"].null_count() == ops.height:
        raise UnknownSignalError("dtypes were not recorded")
    backward = [any(map(BACKWARD.search, recorded.paths.names(place))) for place in ops["place"]]
    shares = _shares(with_own_time(ops.with_columns(backward=pl.Series(backward, dtype=pl.Boolean))))
    doubled = [
        Double(row.detail, row.ms * share, source, module)
        for row in recorded.ledger
        if row.entry == Entry.OPS and row.detail in shares
        for share, source, module in [shares[row.detail]]
    ]
    return sorted(doubled, key=lambda op: -op.ms)


def _shares(ops: pl.DataFrame) -> dict[str, tuple[float, str | None, str | None]]:
    """Return each op's share of time in float64, and the line and module of the longest of these calls.

    All backward ops run below the line that starts the backward pass, which is not their place. So ops within
    a module come first, and those of the backward pass last and without a line.
    """
    kinds = ops.select("dtypes", "shapes").unique()
    double = [_takes_doubles(*row) for row in kinds.iter_rows()]
    ops = ops.join(kinds.with_columns(double=pl.Series(double, dtype=pl.Boolean)), on=["dtypes", "shapes"])
    ops = ops.with_columns(
        forward=pl.col("module").is_not_null(),
        source=pl.when(pl.col("module").is_not_null() | ~pl.col("backward")).then("source"),
    )
    rows = (
        ops.sort("double", "forward", "backward", "took", descending=[True, True, False, True])
        .group_by("name", maintain_order=True)
        .agg(
            share=pl.col("took").filter("double").sum() / pl.col("took").sum(),
            source=pl.col("source").first(),
            module=pl.col("module").first(),
        )
        .filter(pl.col("share") > 0)
    )
    return {name: (share, source, module) for name, share, source, module in rows.iter_rows()}


def _takes_doubles(dtypes: str | None, shapes: str | None) -> bool:
    """Return whether an op takes a float64 tensor; scalars such as Python floats do not count."""
    sizes = shapes_of(shapes)
    return any(kind == NAME and bool(size) for kind, size in zip(dtypes_of(dtypes), sizes, strict=False))
