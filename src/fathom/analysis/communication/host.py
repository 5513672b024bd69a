"""Collectives that threads of the host carry out, as gloo, MPI and UCC do."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.communication.account import ALONE, BESIDE, ENOUGH
from fathom.analysis.communication.collectives import CALL
from fathom.analysis.communication.operations import RecordedCall, operation, recorded_calls
from fathom.analysis.intervals import Spans, containing, covered, merge, of_rows
from fathom.analysis.work import NONE, with_own_time
from fathom.units import NS_PER_MS

BACKENDS = r"^(?:gloo|mpi|ucc):"  # prefix of the region that a backend's thread opens around a collective
_KEYS = ["stream", "start_ns", "name"]  # identify a collective among the arrivals of `Meetings.of`
_CALLED: dict[str, type[pl.DataType]] = {name: kind for name, kind in CALL.items() if name != "operation"}
_PLACE = ["name", "place"]  # identify a collective or an op within every step
CALLS = r"^_?c10d(_functional)?::"  # ops that call collectives, or wait for them: they are not compute
MOST = 0.5  # of the steps
CERTAIN = 2.0  # standard errors: a smaller difference of means is scatter


def on_host(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives that host threads ran: their regions among `ops`, in order of their starts.

    A collective starts when a thread of the backend takes it from the queue; `stream` is that thread.
    """
    regions = ops.filter(pl.col("kind") == "annotation", pl.col("name").str.contains(BACKENDS))
    names = {name: operation(name.partition(":")[2]) for name in regions["name"].unique().to_list()}
    named = pl.col("name").replace_strict(names, default=None, return_dtype=pl.String)
    return regions.select(
        "start_ns", "end_ns", "name", "burst", "phase", stream="thread", operation=named
    ).sort("start_ns")


def met_on_host(ops: pl.DataFrame, met: pl.DataFrame | None) -> pl.DataFrame:
    """Return the host threads' collectives with `arrived_ns`, the start of the last peer; null if unknown."""
    rows = on_host(ops)
    if met is None or rows.is_empty():
        return rows.with_columns(arrived_ns=pl.lit(None, pl.Int64))
    met = met.select(*(pl.col(key).cast(rows.schema[key]) for key in _KEYS), "arrived_ns")
    return rows.join(met, on=_KEYS, how="left", maintain_order="left")


def host_collectives(ops: pl.DataFrame, steps: pl.DataFrame, met: pl.DataFrame | None) -> pl.DataFrame:
    """Return the collectives of host threads with the columns of `collectives_of`.

    Sizes were recorded in the attribution phase: there, the k-th collective of a name in a step is taken for
    the k-th of that name in every step that has as many.
    """
    timeline = met_on_host(ops.filter(phase="timeline"), met)
    sized = _placed(on_host(ops.filter(phase="attribution")), steps)
    calls = pl.DataFrame(_calls(ops, sized), schema=_CALLED, orient="row")
    sized = sized.select(*_PLACE, "of").hstack(calls).unique(_PLACE, keep="first", maintain_order=True)
    rows = _placed(timeline, steps).join(sized, on=[*_PLACE, "of"], how="left", maintain_order="left")
    return rows.select(
        "start_ns",
        "end_ns",
        "stream",
        "phase",
        "name",
        pl.col("name").alias("family"),
        "arrived_ns",
        pl.lit(None, pl.Int64).alias("thread"),
        pl.col("name").str.split(":").list.first().alias("library"),
        "operation",
        *(name for name in CALL if name not in ("operation", "bytes")),
        "bytes",
    )


def _placed(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with their position among those of the same name and step, and their number `of`."""
    marks = steps.filter(pl.col("parent").is_null())["mark_ns"].drop_nulls().sort().to_numpy()
    within = np.searchsorted(marks, rows["start_ns"].to_numpy(), "right")
    return rows.with_columns(within=pl.Series(within, dtype=pl.Int64)).with_columns(
        place=pl.int_range(pl.len()).over("within", "name"), of=pl.len().over("within", "name")
    )


def _calls(ops: pl.DataFrame, rows: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return bytes, dtype, ranks, group and members of the calls that regions among `ops` name."""
    attribution = ops.filter(phase="attribution").with_row_index("row")
    at = rows.join(
        attribution.select("row", "start_ns", "name", stream="thread"),
        on=_KEYS,
        how="left",
        maintain_order="left",
    )["row"].to_numpy()
    calls: list[RecordedCall] = recorded_calls(attribution, np.full(attribution.height, NONE), at)
    return [call[1:] for call in calls]


def slowed_on_host(ops: pl.DataFrame, steps: pl.DataFrame, windows: Spans) -> dict[str, float]:
    """Return the ns that ops of each name take longer beside collectives than alone, in all windows.

    Threads that communicate take cores and memory bandwidth from the program. Ops of equal name and shapes
    are compared. An op that loses its core for a while takes many times as long, so means are compared.
    """
    rows = _shaped(ops, steps)
    rows = rows.filter(pl.Series(containing(windows, rows["start_ns"].to_numpy()) >= 0, dtype=pl.Boolean))
    moving = of_rows(on_host(ops.filter(phase="timeline")))
    shared = covered(moving, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    length = (rows["end_ns"] - rows["start_ns"]).clip(1)
    rows = rows.with_columns(share=pl.Series(shared, dtype=pl.Int64) / length)
    share, ns = pl.col("share"), pl.col("took")
    alone, beside = ns.filter(share <= ALONE), ns.filter(share >= BESIDE)
    longer = beside.mean() - alone.mean()
    error = (alone.var() / alone.len() + beside.var() / beside.len()).sqrt()
    groups = rows.group_by("name", "shapes").agg(
        known=(alone.len() >= ENOUGH) & (beside.len() >= ENOUGH) & (longer > CERTAIN * error),
        ns=longer * beside.len(),
    )
    sums = groups.filter("known").group_by("name").agg(pl.col("ns").sum())
    return dict(sums.sort("name").iter_rows())


def undisturbed_ms(
    ops: pl.DataFrame, steps: pl.DataFrame, waits: Spans, thread: int | None
) -> tuple[float, float]:
    """Return the ms per step of a thread's ops, and of the time before them, in steps that nothing disturbs.

    A thread that loses its core takes longer in some steps, while more work takes longer in all. So each op,
    and the time before it without `waits` and collectives, counts as in the step where it is shortest. Ops
    that most steps lack do not count.
    """
    timeline = ops.filter(phase="timeline")
    own = timeline.filter(pl.col("kind") == "op", thread=thread).sort("start_ns")
    own = _placed(with_own_time(own).sort("start_ns"), steps)
    outer = own.filter(pl.col("parent").is_null() | ~pl.col("parent").is_in(own["id"].implode()))
    outer = outer.with_columns(before_ns=pl.col("end_ns").shift(1).over("burst")).drop_nulls("before_ns")
    taken = merge(waits, of_rows(on_host(timeline)))
    gaps = outer["before_ns"].to_numpy(), outer["start_ns"].to_numpy()
    outer = outer.with_columns(took=pl.Series(gaps[1] - gaps[0] - covered(taken, *gaps), dtype=pl.Int64))
    work = own.filter(~pl.col("name").str.contains(CALLS))
    of_steps = own["within"].n_unique()
    return _shortest(work, of_steps), _shortest(outer, of_steps)


def _shortest(rows: pl.DataFrame, of_steps: int) -> float:
    each = rows.group_by(_PLACE).agg(pl.len(), shortest=pl.col("took").min())
    return float(each.filter(pl.col("len") > MOST * of_steps)["shortest"].sum()) / NS_PER_MS


def _shaped(ops: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the ops of the timeline with `took`, their own ns, and their shapes.

    Shapes are those at the same position in steps of the attribution phase. Ops without shapes there, or with
    shapes that differ between steps, are left out.
    """
    own = with_own_time(ops.filter(pl.col("kind") == "op"))
    own = own.filter(~pl.col("name").str.contains(CALLS)).sort("start_ns")
    shapes = _placed(own.filter(phase="attribution"), steps).drop_nulls("shapes").group_by(*_PLACE, "of")
    known = shapes.agg(pl.col("shapes").first(), alike=pl.col("shapes").n_unique() == 1).filter("alike")
    timeline = _placed(own.filter(phase="timeline"), steps).drop("shapes")
    return timeline.join(known, on=[*_PLACE, "of"], maintain_order="left")
