"""Collectives across ranks: how long each waited for the last of its peers before bytes could move.

The k-th collective of a name that one rank launches in a step is the k-th of its peers in that step. Only
those that no rank can finish before all have begun are told apart; sends, receives and broadcasts are not.
"""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.device import join_launches
from fathom.analysis.results import Abstained
from fathom.sounding import Store
from fathom.units import NS_PER_US

_MEETS = r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"
_KEY = ["burst", "step", "name", "place"]
PIECE = ["device", "stream", "start_ns", "name"]  # tells a rank's collectives apart
CLOCKS_NS = 20_000  # ranks whose clocks agree to this much can be compared
WHAT = "waiting for peers"


class Meetings(msgspec.Struct):
    """`of` by rank: PIECE and arrived_ns, when the last peer began; `abstained`: why there are none."""

    of: dict[int, pl.DataFrame] = msgspec.field(default_factory=dict)
    abstained: list[Abstained] = msgspec.field(default_factory=list)


def meetings(store: Store) -> Meetings:
    """When the peers of every collective of the timeline were all there."""
    found = {rank: _collectives(store, rank) for rank in store.ranks}
    if not any(rows.height for rows in found.values()):
        return Meetings()
    why = _incomparable(store, found)
    if why:
        return Meetings(abstained=[Abstained(WHAT, why)])
    every = pl.concat(rows.with_columns(rank=pl.lit(rank)) for rank, rows in found.items())
    met = every.with_columns(
        peers=pl.len().over(_KEY),
        arrived_ns=pl.col("start_ns").max().over(_KEY),
        left_ns=pl.col("end_ns").min().over(_KEY),
    ).filter(pl.col("peers") == len(found))
    early = (met["arrived_ns"] - met["left_ns"]).max()
    if isinstance(early, int) and early > CLOCKS_NS:
        early_us = early / NS_PER_US
        why = f"the ranks' clocks disagree: a collective ended {early_us:.0f} µs before a peer began it"
        return Meetings(abstained=[Abstained(WHAT, why)])
    met = met.with_columns(pl.min_horizontal("arrived_ns", "end_ns"))
    met = met.select("rank", *PIECE, "arrived_ns").unique(["rank", *PIECE])
    return Meetings({rank: met.filter(rank=rank).drop("rank") for rank in found})


def _incomparable(store: Store, found: dict[int, pl.DataFrame]) -> str:
    about = store.manifest.ranks
    world = max((rank.world or 1 for rank in about), default=1)
    if len(found) < max(world, 2):
        return f"{len(found)} of {max(world, 2)} ranks were recorded, and a collective needs all of them"
    if len({rank.host for rank in about}) > 1:
        return "the ranks ran on several hosts, whose clocks were not compared"
    if any(rows.is_empty() for rows in found.values()):
        return "a rank recorded no collective"
    return ""


def _collectives(store: Store, rank: int) -> pl.DataFrame:
    """A rank's collectives of the timeline with _KEY, in the order of their launches."""
    phase = {"phase": "timeline"}
    rows = store.table("kernels", rank).filter(
        pl.col("kind") == "collective", pl.col("name").str.contains(_MEETS), **phase
    )
    kernels = rows.select(*PIECE, "end_ns", "burst", "correlation").collect()
    if kernels.is_empty():
        return kernels
    calls = store.table("launches", rank).filter(**phase).collect()
    steps = store.table("steps", rank).filter(pl.col("parent").is_null(), **phase).sort("mark_ns").collect()
    called = join_launches(kernels, calls).with_columns(called="launched")
    if called["called"].null_count() == called.height:  # nothing tells of launches
        called = called.with_columns(called="start_ns")
    called = called.drop_nulls("called")  # of the step before the burst: a peer may have finished its own
    return (
        called.with_columns(step=_step(called["called"], steps))
        .filter(pl.col("step") >= 0)
        .sort("called", "start_ns")
        .with_columns(place=pl.int_range(pl.len()).over("burst", "step", "name"))
        .select(*PIECE, "end_ns", "burst", "step", "place")
    )


def _step(called: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """The number of the step that each call was made in, -1 before the first."""
    if steps.is_empty():
        return pl.Series([-1] * len(called), dtype=pl.Int64)
    place = np.searchsorted(steps["mark_ns"].to_numpy(), called.to_numpy(), side="right") - 1
    numbers = steps["step"].fill_null(-1).to_numpy()
    return pl.Series(np.where(place >= 0, numbers[np.maximum(place, 0)], -1), dtype=pl.Int64)
