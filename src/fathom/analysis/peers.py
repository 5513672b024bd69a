"""Match collectives across ranks to find when the last peer arrived; no data moves before that.

The k-th collective of a name that one rank launches in a step is matched with the k-th of its peers in that
step. Of a step that began before its burst, ranks may have recorded different parts, so its collectives are
counted from its end. Only collectives that no rank can finish before all have begun are matched. Sends,
receives and broadcasts are not matched. An all-to-all is matched if torch's record of the call names the
operation, because its kernel is named after sends and receives. Ranks without devices communicate with
threads of the host (gloo), whose regions count as collectives.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.communication import on_host, recorded_calls
from fathom.analysis.device import join_launches
from fathom.analysis.entries import Entry
from fathom.analysis.results import Abstained
from fathom.analysis.work import NONE, launch_rows, rows_of
from fathom.sounding import Problem, Store, identify_collective
from fathom.units import NS_PER_US

MEETS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_KEY = ["burst", "step", "name", "place"]
_CLOCK = ["rank", "own_burst"]
PIECE = ["device", "stream", "start_ns", "name"]  # identifies a collective of a rank
CLOCKS_NS = 20_000  # ranks are compared if their clocks differ by at most this
ENOUGH = 5  # collectives per burst, to align clocks by their ends
DISAGREE = "the ranks' clocks disagree by {:.0f} µs, and collectives do not show how far each one is off"
WHAT = Entry.WAITING_FOR_PEERS.value


class Meetings(msgspec.Struct):
    """Matched collectives: `of` maps a rank to PIECE and arrived_ns, the start of the last peer.

    `abstained` has the reason if no collectives could be matched; `problems` says how far clocks differed.
    """

    of: dict[int, pl.DataFrame] = msgspec.field(default_factory=dict)
    abstained: list[Abstained] = msgspec.field(default_factory=list)
    # rank, start_ns and end_ns on a clock that all ranks share, operation, `cut` (the burst has only a part
    # of its step), and _KEY, which identifies the collective
    arrivals: pl.DataFrame | None = None
    problems: list[Problem] = msgspec.field(default_factory=list)
    # The lead of each rank's clock in ns, by rank and burst; {} if all clocks agree
    shifts: dict[int, dict[int, int]] = msgspec.field(default_factory=dict)


def meetings(store: Store) -> Meetings:
    """Return the arrival of the last peer of every collective in the timeline."""
    by_rank = {rank: _collectives(store, rank) for rank in store.ranks}
    if not any(rows.height for rows in by_rank.values()):
        return Meetings()
    why = _incomparable(store, by_rank)
    if why:
        return Meetings(abstained=[Abstained(WHAT, why)])
    every = pl.concat(rows.with_columns(rank=pl.lit(rank)) for rank, rows in by_rank.items())
    every = _with_common_bursts(every)
    met = every.with_columns(peers=pl.len().over(_KEY), shift=pl.lit(0, pl.Int64))
    met = met.filter(pl.col("peers") == len(by_rank))
    if met["device"].null_count() and not _several_hosts(store):
        met = _in_order(met)
    problems = []
    if _several_hosts(store) or _disagreement(met) > CLOCKS_NS:
        met, error = _aligned(met)
        if error > CLOCKS_NS or _disagreement(met) > CLOCKS_NS:
            far = max(error, _disagreement(met)) / NS_PER_US
            return Meetings(abstained=[Abstained(WHAT, DISAGREE.format(far))])
        problems = [_shifted(met, error)]
    met = met.with_columns(start=pl.col("start_ns") - pl.col("shift"))
    arrived = pl.min_horizontal(pl.col("start").max().over(_KEY) + pl.col("shift"), "end_ns")
    met = met.with_columns(arrived_ns=arrived).unique(["rank", *PIECE], maintain_order=True)
    arrivals = met.select(
        "rank", "operation", "cut", *_KEY, start_ns="start", end_ns=pl.col("end_ns") - pl.col("shift")
    )
    leads = met.filter(pl.col("shift") != 0).select(*_CLOCK, "shift").unique()
    shifts: dict[int, dict[int, int]] = {}
    for number, burst, lead in leads.iter_rows():
        shifts.setdefault(number, {})[burst] = lead
    met = met.select("rank", *PIECE, "arrived_ns")
    each = met.partition_by("rank", as_dict=True, include_key=False)
    of = {rank: each.get((rank,), met.clear().drop("rank")) for rank in by_rank}
    return Meetings(of, arrivals=arrivals, problems=problems, shifts=shifts)


def _with_common_bursts(every: pl.DataFrame) -> pl.DataFrame:
    """Give each step the same `burst` on all ranks, and keep each rank's number as `own_burst`.

    A rank that missed a burst has other numbers for the later ones.
    """
    bursts = every.group_by("rank", "step").agg(pl.col("burst").n_unique())
    repeated = bursts["burst"].max() != 1  # steps are numbered anew in each burst
    common = pl.col("burst") if repeated else pl.col("burst").min().over("step")
    return every.with_columns(burst=common, own_burst="burst")


def _in_order(met: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives without those that ended on a rank before a peer began them.

    Several threads of a backend take collectives from its queue, so two may start in another order on a peer.
    """
    start, end = pl.col("start_ns").max().over(_KEY), pl.col("end_ns").min().over(_KEY)
    return met.filter(start - end <= CLOCKS_NS)


def _disagreement(met: pl.DataFrame) -> int:
    """Return the most ns by which a collective ended on a rank before a peer had begun it; 0 if none did."""
    start, end = pl.col("start_ns") - pl.col("shift"), pl.col("end_ns") - pl.col("shift")
    early = met.select((start.max().over(_KEY) - end.min().over(_KEY)).max()).item()
    return max(int(early or 0), 0)


def _aligned(met: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """Set `shift`, each clock's lead in each burst, and return the error of the alignment in ns.

    A collective that needs all ranks ends on all of them within microseconds. The lead of a clock is the
    median, over a burst's collectives, of the distance of its ends from the median end. The error is the
    median distance that remains; it is infinite with fewer than ENOUGH collectives.
    """
    if met.is_empty() or met.group_by(_CLOCK).len()["len"].min() < ENOUGH:  # type: ignore[operator]
        return met, float("inf")
    lead = (pl.col("end_ns") - pl.col("end_ns").median().over(_KEY)).cast(pl.Int64)
    met = met.with_columns(lead=lead).with_columns(shift=pl.col("lead").median().over(_CLOCK).cast(pl.Int64))
    error = met.select((pl.col("lead") - pl.col("shift")).abs().median()).item()
    return met.drop("lead"), float(error)


def _shifted(met: pl.DataFrame, error: float) -> Problem:
    most = met.select((pl.col("shift").max() - pl.col("shift").min()).over("burst").max()).item() / NS_PER_US
    text = (
        f"The clocks of the ranks differ by up to {most:,.0f} µs. They were aligned by the ends of "
        f"collectives, with an error of {error / NS_PER_US:.1f} µs."
    )
    return Problem("clocks-aligned", text)


def _several_hosts(store: Store) -> bool:
    return len({rank.host for rank in store.manifest.ranks}) > 1


def _incomparable(store: Store, by_rank: dict[int, pl.DataFrame]) -> str:
    world = max((rank.world or 1 for rank in store.manifest.ranks), default=1)
    if len(by_rank) < max(world, 2):
        return f"{len(by_rank)} of {max(world, 2)} ranks were recorded, and a collective needs all of them"
    if any(rows.is_empty() for rows in by_rank.values()):
        return "a rank recorded no collective"
    return ""


def _collectives(store: Store, rank: int) -> pl.DataFrame:
    """Return a rank's collectives in the timeline with the columns of _KEY, in launch order."""
    phase = {"phase": "timeline"}
    rows = store.table("kernels", rank).filter(pl.col("kind") == "collective", **phase)
    kernels = rows.select(*PIECE, "end_ns", "burst", "phase", "correlation").collect()
    if kernels.is_empty() and not store.table("kernels", rank).filter(**phase).head(1).collect().is_empty():
        return kernels
    calls = store.table("launches", rank).filter(**phase).collect()
    if kernels.is_empty():
        kernels = _on_host(store, rank, kernels)
    else:
        operations = pl.Series("operation", _operations(store, rank, kernels, calls), pl.String)
        kernels = kernels.with_columns(operations)
    kernels = kernels.filter(pl.col("operation").is_in(MEETS))
    steps = store.table("steps", rank).filter(pl.col("parent").is_null(), **phase).sort("mark_ns").collect()
    called = join_launches(kernels, calls).with_columns(called="launched")
    if called["called"].null_count() == called.height:  # without launches, use starts
        called = called.with_columns(called="start_ns")
    called = called.drop_nulls("called")  # launched before the burst: a peer may have finished
    place = pl.int_range(pl.len())
    place = pl.when("before").then(place - pl.len()).otherwise(place)
    return (
        called.hstack(_steps_of(called, steps))
        .filter(pl.col("step") >= 0)
        .sort("called", "start_ns")
        .with_columns(place=place.over("burst", "step", "before", "name"))
        .select(*PIECE, "end_ns", "burst", "step", "place", "cut", "operation")
    )


def _on_host(store: Store, rank: int, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives of a rank without device work, with the columns of `kernels` and `operation`."""
    rows = on_host(store.table("ops", rank).filter(phase="timeline").collect())
    types: Any = {name: kind for name, kind in kernels.schema.items() if name in rows.columns}
    missing = {name: kind for name, kind in kernels.schema.items() if name not in rows.columns}
    empty = (pl.lit(None, kind).alias(name) for name, kind in missing.items())
    return rows.cast(types).with_columns(*empty).select(*kernels.columns, "operation")


def _operations(store: Store, rank: int, kernels: pl.DataFrame, calls: pl.DataFrame) -> list[str]:
    """Return the operation of each collective: of its recorded call, or else by the kernel's name."""
    named = [identify_collective(name)[1] for name in kernels["name"]]
    if all(operation in MEETS for operation in named):
        return named
    ops = store.table("ops", rank).filter(phase="timeline").collect()
    launch = launch_rows(calls, kernels)
    at = np.where(launch >= 0, rows_of(ops, calls, "op")[launch], NONE) if len(calls) else launch
    recorded = recorded_calls(ops, rows_of(ops, ops, "parent"), at)
    return [call.operation or shown for call, shown in zip(recorded, named, strict=True)]


def _steps_of(called: pl.DataFrame, steps: pl.DataFrame) -> list[pl.Series]:
    """Return the `step` of each call, -1 if unknown, whether it came `before` the burst's first mark, and
    whether the burst has only a part of its step (`cut`).
    """
    none = steps.clear(1).select("burst", "step").with_columns(mark_ns=0, end_ns=0)
    at = pl.concat([none, steps.select("burst", "step", "mark_ns", "end_ns"), none], how="vertical_relaxed")
    marks, bursts, ends = (at[name].fill_null(-1).to_numpy() for name in ("mark_ns", "burst", "end_ns"))
    numbers = at["step"].fill_null(-1).to_numpy()
    calls, burst = called["called"].to_numpy(), called["burst"].to_numpy()
    row = np.searchsorted(marks[1:-1], calls, side="right")
    inside = bursts[row] == burst
    before = ~inside & (bursts[row + 1] == burst)
    step = np.where(inside, numbers[row], np.where(before, numbers[row + 1] - 1, -1))
    cut = before | (calls >= ends[row])
    columns = {"step": step, "before": before, "cut": cut}
    return [pl.Series(name, values) for name, values in columns.items()]
