"""Goodput: productive time over wall time, from the first start of a job to its end, restarts included."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from fathom.analysis.columns import filled
from fathom.analysis.counted import bins_of
from fathom.analysis.resources import ENTRIES, EVALUATION, STALL, Goodput
from fathom.sounding import Store
from fathom.timing import weighted_quantile
from fathom.units import NS_PER_S

DETAILED = ("timeline", "attribution", "counters")  # phases that a recording at surface depth lacks
UNCOUNTED = 3  # batches after the last step: fewer may be left over
WITHIN = ("compilation", "checkpoint")  # taken out of the lengths of counted steps


def goodput_of(stores: Sequence[Store]) -> Goodput | None:
    """Return the goodput of a job from the recordings of its attempts; None if a time is unknown.

    Recordings with profiled phases give none, because profiling slows down their steps.
    """
    attempts = sorted(stores, key=lambda store: store.manifest.created_ns)
    if not attempts or not all(_is_plain(store) for store in attempts):
        return None
    ranks = set.intersection(*(set(store.ranks) for store in attempts))
    of_ranks = [goodput for rank in sorted(ranks) if (goodput := _of_rank(attempts, rank))]
    return min(of_ranks, key=lambda goodput: goodput.share, default=None)


def _is_plain(store: Store) -> bool:
    manifest = store.manifest
    profiled = any(phase.phase in DETAILED for phase in manifest.phases)
    return not profiled and bool(manifest.created_ns and manifest.ended_ns and manifest.phases)


def _of_rank(attempts: Sequence[Store], rank: int) -> Goodput | None:
    total = dict.fromkeys(ENTRIES, 0)
    steps, before = 0, None
    for store in attempts:
        entries, count = _entries(store, rank)
        if before is not None:
            entries["restart"] += entries.pop("start-up") + store.manifest.created_ns - before
            entries["start-up"] = 0
        before = _end(store)
        steps += count
        for entry, ns in entries.items():
            total[entry] += ns
    wall = sum(total.values())
    if not steps or wall <= 0 or min(total.values()) < 0:
        return None
    return Goodput(total["productive"] / wall, wall / NS_PER_S, total, len(attempts), steps, rank)


def _end(store: Store) -> int:
    ended = store.manifest.ended_ns
    assert ended is not None
    return ended


def _entries(store: Store, rank: int) -> tuple[dict[str, int], int]:
    """Return the entries of one attempt in ns, and its number of steps."""
    start, end = store.manifest.created_ns, _end(store)
    steps = store.table("steps", rank).filter(pl.col("parent").is_null()).sort("mark_ns").collect()
    entries = dict.fromkeys(ENTRIES, 0)
    if steps.is_empty():
        return entries | {"start-up": end - start}, 0
    begins, ends = steps["mark_ns"].to_numpy(), steps["end_ns"].to_numpy()
    counted = store.table("summaries", rank).collect()
    compiling, saving = _waits(store, rank, int(steps["thread"][0] or 0))
    saving = _without(saving, compiling)
    for entry, pieces in zip(WITHIN, (compiling, saving), strict=True):
        entries[entry] = _covered(pieces, np.array([start]), np.array([end])).sum()
    known = [*compiling, *saving]
    rest = ends - begins - _covered(known, begins, ends)
    first, last = int(begins[0]), max([int(ends[-1]), *counted["end_ns"].to_list()])
    last = _working_until(store, rank, first, last)
    entries["start-up"] = _rest(known, start, first)
    entries["shutdown"] = _rest(known, last, end)
    recorded = steps.select("kind", count=pl.lit(1), total=pl.Series(rest), ns=pl.Series(rest))
    lengths = pl.concat([recorded, bins_of(counted)], how="vertical_relaxed")
    entries |= _of_steps(lengths)
    within = counted.select(pl.col(f"{entry}_ns").sum() for entry in WITHIN).row(0)
    for entry, ns in zip(WITHIN, within, strict=True):
        entries[entry] += ns
    entries["unattributed"] = _rest(known, first, last) - int(lengths["total"].sum()) - sum(within)
    return {entry: int(ns) for entry, ns in entries.items()}, int(lengths["count"].sum())


def _working_until(store: Store, rank: int, first: int, last: int) -> int:
    """Return when the last step ended, or the last batch was taken if steps were not counted then.

    Steps stop being counted if their marks cease. The loaders that fed them show that the program goes on.
    """
    took = pl.col("start_ns") + pl.col("wait_ns")
    batches = store.table("input", rank).select("loader", "start_ns", took=took).drop_nulls().collect()
    fed = batches.filter(pl.col("start_ns").is_between(first, last, closed="left"))["loader"].unique()
    later = batches.filter(pl.col("start_ns") >= last, pl.col("loader").is_in(fed.implode()))
    return max([last, *later["took"].to_list()]) if later.height >= UNCOUNTED else last


def _of_steps(lengths: pl.DataFrame) -> dict[str, int]:
    """Split the time of steps (kind, ns, count and their total): usual steps, evaluation, and stalls."""
    evaluates = filled(lengths["kind"], "").str.contains(EVALUATION, literal=True).to_numpy()
    ns, count, total = (lengths[name].to_numpy() for name in ("ns", "count", "total"))
    used = ~evaluates if (~evaluates).any() else evaluates
    usual = int(weighted_quantile(ns[used], count[used], 0.5))
    entire = (filled(lengths["kind"], "") == EVALUATION).to_numpy()
    beyond = np.where(entire, total, np.where(ns > usual, total - count * usual, 0))
    evaluation = int(beyond[evaluates].sum())
    stall = int(beyond[~evaluates & (ns > STALL * usual)].sum())
    return {"evaluation": evaluation, "stall": stall, "productive": int(total.sum()) - evaluation - stall}


Piece = tuple[int, int]


def _waits(store: Store, rank: int, thread: int) -> tuple[list[Piece], list[Piece]]:
    """Return the disjoint pieces of compilation, by any thread, and of checkpoints, by that of the steps."""
    waits = store.table("waits", rank).filter(pl.col("end_ns").is_not_null()).collect()
    compiling = waits.filter(cause="compilation")
    saving = waits.filter(cause="checkpoint", thread=thread)
    first, second = (_union(frame.select("start_ns", "end_ns").rows()) for frame in (compiling, saving))
    return first, second


def _union(pieces: Iterable[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for start, end in sorted(pieces):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _without(pieces: list[Piece], others: list[Piece]) -> list[Piece]:
    """Return the parts of `pieces` that lie in none of `others`."""
    parts: list[Piece] = []
    for start, end in pieces:
        for low, high in others:
            if low < end and high > start:
                parts += [(start, low)] if start < low else []
                start = max(start, high)
        parts += [(start, end)] if start < end else []
    return parts


def _covered(pieces: list[Piece], begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the time of disjoint `pieces` within each of the stretches from `begins` to `ends`."""
    total = np.zeros(len(begins), dtype=np.int64)
    for start, end in pieces:
        total += np.maximum(np.minimum(ends, end) - np.maximum(begins, start), 0)
    return total


def _rest(pieces: list[Piece], start: int, end: int) -> int:
    return end - start - int(_covered(pieces, np.array([start]), np.array([end])).sum())
