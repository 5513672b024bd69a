"""Match collectives across ranks to find when the last peer arrived; no data moves before that.

The k-th collective of a name that one rank launches in a step is matched with the k-th of its peers in that
step. Only collectives that no rank can finish before all have begun are matched. Sends, receives and
broadcasts are not matched. An all-to-all is matched if torch's record of the call names the operation,
because its kernel is named after sends and receives.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.communication import recorded_calls
from fathom.analysis.device import join_launches
from fathom.analysis.entries import Entry
from fathom.analysis.results import Abstained
from fathom.analysis.work import NONE, launch_rows, rows_of
from fathom.sounding import Store, identify_collective
from fathom.units import NS_PER_US

MEETS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
_KEY = ["burst", "step", "name", "place"]
PIECE = ["device", "stream", "start_ns", "name"]  # identifies a collective of a rank
CLOCKS_NS = 20_000  # ranks are compared if their clocks differ by at most this
WHAT = Entry.WAITING_FOR_PEERS.value


class Meetings(msgspec.Struct):
    """Matched collectives: `of` maps a rank to PIECE and arrived_ns, the start of the last peer.

    `abstained` has the reason if no collectives could be matched.
    """

    of: dict[int, pl.DataFrame] = msgspec.field(default_factory=dict)
    abstained: list[Abstained] = msgspec.field(default_factory=list)
    arrivals: pl.DataFrame | None = (
        None  # rank, start_ns, operation, and _KEY, which identifies the collective
    )


def meetings(store: Store) -> Meetings:
    """Return the arrival of the last peer of every collective in the timeline."""
    by_rank = {rank: _collectives(store, rank) for rank in store.ranks}
    if not any(rows.height for rows in by_rank.values()):
        return Meetings()
    why = _incomparable(store, by_rank)
    if why:
        return Meetings(abstained=[Abstained(WHAT, why)])
    every = pl.concat(rows.with_columns(rank=pl.lit(rank)) for rank, rows in by_rank.items())
    met = every.with_columns(
        peers=pl.len().over(_KEY),
        arrived_ns=pl.col("start_ns").max().over(_KEY),
        left_ns=pl.col("end_ns").min().over(_KEY),
    ).filter(pl.col("peers") == len(by_rank))
    early = (met["arrived_ns"] - met["left_ns"]).max()
    if isinstance(early, int) and early > CLOCKS_NS:
        early_us = early / NS_PER_US
        why = f"the ranks' clocks disagree: a collective ended {early_us:.0f} µs before a peer began it"
        return Meetings(abstained=[Abstained(WHAT, why)])
    met = met.with_columns(pl.min_horizontal("arrived_ns", "end_ns"))
    met = met.unique(["rank", *PIECE], maintain_order=True)
    arrivals = met.select("rank", "start_ns", "operation", *_KEY)
    met = met.select("rank", *PIECE, "arrived_ns")
    return Meetings({rank: met.filter(rank=rank).drop("rank") for rank in by_rank}, arrivals=arrivals)


def _incomparable(store: Store, by_rank: dict[int, pl.DataFrame]) -> str:
    about = store.manifest.ranks
    world = max((rank.world or 1 for rank in about), default=1)
    if len(by_rank) < max(world, 2):
        return f"{len(by_rank)} of {max(world, 2)} ranks were recorded, and a collective needs all of them"
    if len({rank.host for rank in about}) > 1:
        return "the ranks ran on several hosts, whose clocks were not compared"
    if any(rows.is_empty() for rows in by_rank.values()):
        return "a rank recorded no collective"
    return ""


def _collectives(store: Store, rank: int) -> pl.DataFrame:
    """Return a rank's collectives in the timeline with the columns of _KEY, in launch order."""
    phase = {"phase": "timeline"}
    rows = store.table("kernels", rank).filter(pl.col("kind") == "collective", **phase)
    kernels = rows.select(*PIECE, "end_ns", "burst", "phase", "correlation").collect()
    if kernels.is_empty():
        return kernels
    calls = store.table("launches", rank).filter(**phase).collect()
    kernels = kernels.with_columns(
        pl.Series("operation", _operations(store, rank, kernels, calls), pl.String)
    )
    kernels = kernels.filter(pl.col("operation").is_in(MEETS))
    steps = store.table("steps", rank).filter(pl.col("parent").is_null(), **phase).sort("mark_ns").collect()
    called = join_launches(kernels, calls).with_columns(called="launched")
    if called["called"].null_count() == called.height:  # without launches, use starts
        called = called.with_columns(called="start_ns")
    called = called.drop_nulls("called")  # launched before the burst: a peer may have finished
    return (
        called.with_columns(step=_step(called["called"], steps))
        .filter(pl.col("step") >= 0)
        .sort("called", "start_ns")
        .with_columns(place=pl.int_range(pl.len()).over("burst", "step", "name"))
        .select(*PIECE, "end_ns", "burst", "step", "place", "operation")
    )


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


def _step(called: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the number of the step of each call; -1 before the first step."""
    if steps.is_empty():
        return pl.Series([-1] * len(called), dtype=pl.Int64)
    place = np.searchsorted(steps["mark_ns"].to_numpy(), called.to_numpy(), side="right") - 1
    numbers = steps["step"].fill_null(-1).to_numpy()
    return pl.Series(np.where(place >= 0, numbers[np.maximum(place, 0)], -1), dtype=pl.Int64)
