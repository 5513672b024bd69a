"""Communication of a device: total, overlapped and exposed, by collective, and by group of ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import polars as pl

from fathom.analysis.communication.bandwidth import Ceilings, bus_factor
from fathom.analysis.communication.results import Collective, Communication, PlacedGroup
from fathom.analysis.intervals import NOTHING, Spans, containing, covered, intersect, of_rows, union
from fathom.analysis.work import NONE, Links
from fathom.units import NS_PER_MS, NS_PER_S

KEY = ["library", "operation", "dtype", "group", "ranks"]
ALONE, BESIDE = 0.05, 0.5  # share of a kernel's time with a collective: at most, and at least
ENOUGH = 4  # kernels of each of both
_LIKE = ["family", "op", "shapes"]
NO_SIZE = "its size was not recorded"
NO_RANKS = "the number of ranks in its group was not recorded"


def communication_of(
    collectives: pl.DataFrame, computing: Spans, windows: Spans, ceilings: Ceilings, world: int | None
) -> Communication | None:
    """Return the communication in the used `windows`, per step; None if there is none.

    `collectives` has the columns of `collectives_of`, `computing` is the time with compute kernels. `world`
    is the number of ranks of the job, for calls whose group was not recorded.
    """
    inside = collectives.filter(pl.Series(_touching(collectives, windows), dtype=pl.Boolean))
    steps = len(windows.starts)
    if inside.is_empty() or not steps:
        return None
    computing = intersect(computing, windows)
    total = intersect(of_rows(inside), windows)
    hidden = intersect(total, computing).length
    per_step = NS_PER_MS * steps
    groups = _sized(inside, steps).group_by(*KEY, "size", maintain_order=True)
    rows = [_row(rows, computing, windows, ceilings, world) for _, rows in groups]
    return Communication(
        total_ms=total.length / per_step,
        overlapped_ms=hidden / per_step,
        exposed_ms=(total.length - hidden) / per_step,
        overlap=hidden / total.length if total.length else 0.0,
        compute_ms=computing.length / per_step,
        compute_overlap=hidden / computing.length if computing.length else 0.0,
        collectives=sorted(rows, key=lambda row: (-row.exposed_ms, -row.total_ms)),
    )


def _sized(rows: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Return `rows` with `size`: the bytes if every step has such a call, else the nearest half power of 2.

    If sizes depend on the data, as in all-to-all, every step would form its own group.
    """
    recurring = pl.len().over(*KEY, "bytes") >= steps
    exact = pl.col("bytes").cast(pl.Float64)
    return rows.with_columns(size=pl.when(recurring).then(exact).otherwise((exact.log(2) * 2).round() / 2))


def _touching(rows: pl.DataFrame, windows: Spans) -> np.ndarray:
    """Return a mask of the pieces of the timeline that overlap the windows."""
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    first = np.searchsorted(windows.ends, starts, "right")
    after = np.searchsorted(windows.starts, ends, "left")
    return (after > first) & (rows["phase"] == "timeline").fill_null(False).to_numpy()


def _row(
    rows: pl.DataFrame, computing: Spans, windows: Spans, ceilings: Ceilings, world: int | None
) -> Collective:
    """Summarise collectives whose `rows` have equal values in the columns of KEY."""
    steps = len(windows.starts)
    per_step = NS_PER_MS * steps
    length = (rows["end_ns"] - rows["start_ns"]) / NS_PER_MS
    total = intersect(of_rows(rows), windows)
    hidden = intersect(total, computing).length
    begins = _begin(rows, windows)
    row = Collective(
        **rows.select(KEY).row(0, named=True),
        bytes=rows["bytes"].median(),  # type: ignore[arg-type]
        count=begins / steps,
        min_ms=float(length.min()),  # type: ignore[arg-type]
        median_ms=float(length.median()),  # type: ignore[arg-type]
        max_ms=float(length.max()),  # type: ignore[arg-type]
        total_ms=total.length / per_step,
        overlapped_ms=hidden / per_step,
        exposed_ms=(total.length - hidden) / per_step,
        overlap=hidden / total.length if total.length else 0.0,
    )
    row.group = row.group or ""
    row.families = rows["family"].drop_nulls().unique().sort().to_list()
    _split(row, rows, windows, per_step)
    _bandwidth(row, rows, ceilings, world)
    return row


def _begin(rows: pl.DataFrame, windows: Spans) -> int:
    """Return the number of pieces that start in a window."""
    return int((containing(windows, rows["start_ns"].to_numpy()) >= 0).sum())


def _split(row: Collective, rows: pl.DataFrame, windows: Spans, per_step: float) -> None:
    """Set the time before and after the last peer arrived, if that is known for all `rows`."""
    if rows["arrived_ns"].null_count():
        return
    start, end, arrived = (rows[name].to_numpy() for name in ("start_ns", "end_ns", "arrived_ns"))
    arrived = np.clip(arrived, start, end)
    row.waiting_ms = _within(start, arrived, windows) / per_step
    row.moving_ms = _within(arrived, end, windows) / per_step


def _within(starts: np.ndarray, ends: np.ndarray, windows: Spans) -> int:
    kept = union(starts, ends)
    return intersect(kept, windows).length if len(kept.starts) else NOTHING.length


def _bandwidth(row: Collective, rows: pl.DataFrame, ceilings: Ceilings, world: int | None) -> None:
    """Set algorithm and bus bandwidth, and the ceiling of the bus at this size."""
    ranks = row.ranks or world
    if row.bytes is None:
        row.abstained = NO_SIZE
        return
    moving = rows["end_ns"] - pl.select(pl.coalesce(rows["arrived_ns"], rows["start_ns"])).to_series()
    usual = float(moving.median() or 0.0)  # type: ignore[arg-type]
    if usual <= 0:
        row.abstained = "it took no time after the last peer arrived"
        return
    row.algorithm_bytes_per_s = row.bytes / usual * NS_PER_S
    if not ranks:
        row.abstained = NO_RANKS
        return
    factor = bus_factor(row.operation, ranks)
    if factor is None:
        row.abstained = f"the bytes that {row.operation} moves over the links are unknown"
        return
    row.bus_bytes_per_s = row.algorithm_bytes_per_s * factor
    row.ceiling_bytes_per_s, row.ceiling = ceilings.at(row.operation, row.bytes)


def placed_groups(
    collectives: pl.DataFrame, rows: list[Collective], hosts: Mapping[int, str | None]
) -> list[PlacedGroup]:
    """Return the groups with known members that move bytes, the largest first.

    `rows` are the collectives of `collectives`, summarised; `hosts` maps each rank to its host.
    """
    members = collectives.filter(pl.col("members") != "").select("group", "members").unique().sort("group")
    groups = []
    for group, text in members.iter_rows():
        ranks, mine = _numbers(text), [row for row in rows if row.group == group and row.bytes]
        if len(ranks) < 2 or not mine or any(hosts.get(rank) is None for rank in ranks):
            continue
        groups.append(
            PlacedGroup(
                name=group,
                ranks=ranks,
                hosts=len({hosts[rank] for rank in ranks}),
                bytes=sum((row.bytes or 0.0) * row.count for row in mine),
                exposed_ms=sum(row.exposed_ms for row in mine),
                bus_bytes_per_s=max((row.bus_bytes_per_s or 0.0 for row in mine), default=0.0),
            )
        )
    return sorted(groups, key=lambda placed: -placed.bytes)


def _numbers(text: str) -> list[int]:
    try:
        read = json.loads(text)
    except json.JSONDecodeError:  # torch shortens long lists
        return []
    return [rank for rank in read if isinstance(rank, int)] if isinstance(read, list) else []


def slowed_by_collectives(
    kernels: pl.DataFrame, links: Links, ops: pl.DataFrame, windows: Spans
) -> dict[str, float]:
    """Return the ns that kernels of each family take longer beside collectives than alone, in all windows.

    Kernels of collectives occupy multiprocessors and memory bandwidth, also while they wait for peers.
    Kernels of one family are compared with the median of those that the same op launched for the same shapes.
    """
    if not len(windows.starts):
        return {}
    inside = (containing(windows, kernels["start_ns"].to_numpy()) >= 0) & (links.op != NONE)
    inside &= ((kernels["kind"] == "compute") & (kernels["phase"] == "timeline")).to_numpy()
    rows = kernels.filter(pl.Series(inside)).select("family", "start_ns", "end_ns")
    launched = ops.select(op="name", shapes="shapes")[links.op[inside]]
    collectives = of_rows(kernels.filter(kind="collective", phase="timeline"))
    ns = rows["end_ns"] - rows["start_ns"]
    shared = covered(collectives, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    rows = rows.hstack(launched).with_columns(ns=ns, share=pl.Series(shared) / ns.clip(1))
    alone, beside = pl.col("share") <= ALONE, pl.col("share") >= BESIDE
    usual = pl.col("ns").filter(alone).median()
    groups = rows.group_by(_LIKE).agg(
        enough=(alone.sum() >= ENOUGH) & (beside.sum() >= ENOUGH),
        slowed=(pl.col("ns").filter(beside) - usual).sum().clip(0),
    )
    sums = groups.filter("enough").group_by("family").agg(pl.col("slowed").sum())
    return dict(sums.filter(pl.col("slowed") > 0).sort("family").iter_rows())
