"""Ranks that arrive late at collectives and the cost of it, jitter of collectives, and loads of experts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from fathom.analysis.communication.results import ExpertLoad, Jitter, LateRank, LostTime
from fathom.analysis.entries import COLLECTIVES, Entry
from fathom.analysis.subjects import CPU
from fathom.units import NS_PER_MS

if TYPE_CHECKING:
    from fathom.analysis.results import Device, Step

MOSTLY = 0.5  # of the collectives, and of the time lost to late ranks: below it, different ranks are late
STEADILY = 0.75  # of the steps
ENOUGH = 4  # collectives, or steps
LEAST = 0.05  # of the time lost: ranks and entries below it get no cause
ON_HOST = (*COLLECTIVES, Entry.HOST_WAITS_FOR_PEERS)
NO_CAUSE = (*ON_HOST, Entry.OWN_HOOKS)  # entries that make no rank late in clean steps
INPUT, WORK, HOST = "input", "work", "host"  # causes of lateness
_WORKS = (Entry.COMPUTE, Entry.OPS, Entry.COPY)
_HALF = 0.5  # of the time lost: a cause with less is not the cause
MEETING = ["burst", "step", "name", "place"]  # identifies a collective over all ranks
UNEVEN = 1.1  # largest over mean: below it, an all-to-all delivers equal parts
FEWEST = 4  # steps of which jitter is known
_SAME = ["name", "place"]  # identifies a collective within every step
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_PARTS = {
    "total": pl.col("end") - pl.col("median"),
    "late": pl.col("last") - pl.col("median"),
    "transfer": pl.col("end") - pl.col("last"),
}


def late_ranks(arrivals: pl.DataFrame | None) -> list[LateRank]:
    """Return the ranks that were the last at a collective, costliest first; [] if arrivals are unknown.

    `arrivals` has a row per rank and collective: rank, start_ns, operation, cut, and the columns of MEETING.
    Each collective ends at about the same time on all ranks, so lateness at one does not carry over to the
    next. Time in which several collectives wait for the same rank counts once.
    """
    arrivals = in_whole_steps(arrivals)
    if arrivals is None:
        return []
    steps = arrivals.select("burst", "step").unique().height
    meetings = _meetings(arrivals)
    worst = _worst_of_steps(meetings)
    lost = max(int(meetings["cost"].sum()), 1)
    rows = [
        LateRank(
            rank=rank,
            last=mine.height,
            of=meetings.height,
            operations=dict(Counter(mine["operation"].to_list())),
            behind_ms=float(mine["behind"].median() or 0.0) / NS_PER_MS,  # type: ignore[arg-type]
            cost_ms=int(mine["cost"].sum()) / steps / NS_PER_MS,
            score=int(mine["cost"].sum()) / lost,
            steps=worst[rank],
            of_steps=worst.total(),
        )
        for (rank,), mine in meetings.group_by("rank")
    ]
    return sorted(rows, key=lambda row: -row.cost_ms)


def _meetings(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Return a row per collective with the `rank` that arrived last, and its `cost` in ns."""
    last = (
        arrivals.sort("start_ns")
        .group_by(MEETING, maintain_order=True)
        .agg(
            rank=pl.col("rank").last(),
            operation=pl.col("operation").last(),
            second=pl.col("start_ns").get(-2),
            start_ns=pl.col("start_ns").last(),
            # With two ranks, the median rank is the other one, not a time between both.
            behind=pl.col("start_ns").last() - pl.col("start_ns").quantile(0.5, "lower"),
        )
    )
    return last.sort("start_ns", maintain_order=True).with_columns(cost=_cost())


def longest_waiting(arrivals: pl.DataFrame | None, late: Sequence[int] = ()) -> int | None:
    """Return the rank, none of `late`, that waits longest for others at collectives; None if unknown."""
    arrivals = in_whole_steps(arrivals)
    if arrivals is None:
        return None
    waits = arrivals.with_columns(waits=pl.col("start_ns").max().over(MEETING) - pl.col("start_ns"))
    ranks = waits.filter(~pl.col("rank").is_in(list(late))).group_by("rank").agg(pl.col("waits").sum())
    longest = ranks.sort(-pl.col("waits"), "rank")["rank"]
    return int(longest[0]) if len(longest) else None


def in_whole_steps(arrivals: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return the arrivals in steps that were recorded whole, or None if they are unknown.

    A burst begins in the middle of a step, or in one that starting the recorder delays, on some ranks more.
    """
    kept = None if arrivals is None else arrivals.filter(~pl.col("cut"))
    return None if kept is None or kept["rank"].n_unique() < 2 else kept


def _cost() -> pl.Expr:
    """Return the time from the second-last arrival to the last, of collectives sorted by the last arrival.

    If several collectives wait for one rank at once, as buckets of gradients do, the time counts once.
    """
    waited = pl.col("start_ns").shift(1).cum_max().over("burst", "step", "rank")
    begun = pl.max_horizontal(pl.col("second"), waited)
    return (pl.col("start_ns") - begun).clip(0)


def _worst_of_steps(meetings: pl.DataFrame) -> Counter[int]:
    """Return the number of steps in which each rank cost the most."""
    each = meetings.group_by("burst", "step", "rank").agg(pl.col("cost").sum()).filter(pl.col("cost") > 0)
    worst = each.sort("cost", "rank", descending=[True, False]).unique(
        ["burst", "step"], keep="first", maintain_order=True
    )
    return Counter(worst["rank"].to_list())


def lost_by(
    ranks: Sequence[LateRank], devices: Sequence[Device], arrivals: pl.DataFrame | None = None
) -> None:
    """Set the entries in which the late `ranks` spend more time than the median of the others, and lower
    `cost_ms` to what the job can gain.

    `devices` are those of all ranks; the first of each rank counts. Time in collectives does not count,
    because the ranks that wait spend it there. Ranks that lose little get no entries. Where host threads
    communicate, `arrivals` limit what a step can gain to its own wait: a punctual rank has to wait for the
    others where they are late as well.
    """
    entries = {device.rank: ms_by_entry(device) for device in reversed(devices)}
    if len(entries) < 2:
        return
    names = sorted({name for mine in entries.values() for name in mine if name not in NO_CAUSE})
    table = np.array([[mine.get(name, 0.0) for name in names] for mine in entries.values()])
    place = {rank: row for row, rank in enumerate(entries)}
    spent = {rank: sum(mine.get(name, 0.0) for name in ON_HOST) for rank, mine in entries.items()}
    on_host = all(device.device == CPU for device in devices)
    for late in ranks:
        if late.rank not in place:
            continue
        row = place[late.rank]
        more = table[row] - np.median(np.delete(table, row, axis=0), axis=0)
        lost = [LostTime(name, float(ms)) for name, ms in zip(names, more, strict=True) if ms > 0]
        if late.score >= LEAST:
            kept = [entry for entry in lost if entry.ms >= LEAST * late.cost_ms]
            late.entries = sorted(kept, key=lambda entry: -entry.ms)
        if by_turns(late):  # the mean ledgers of ranks that are late by turns do not differ
            continue
        cost_ms, most = late.cost_ms, cause_of_lateness(lost)[1]
        if on_host:
            cost_ms = min(lead_ms(spent, late.rank), _in_each_step(arrivals, late.rank, most))
        late.cost_ms = min(cost_ms, most)


def _in_each_step(arrivals: pl.DataFrame | None, rank: int, most_ms: float) -> float:
    """Return what a rank costs, at most `most_ms` in each step, in ms per step; infinite if unknown."""
    arrivals = in_whole_steps(arrivals)
    if arrivals is None:
        return inf
    each = _meetings(arrivals).group_by("burst", "step").agg(pl.col("cost").filter(rank=rank).sum())
    return float((each["cost"] / NS_PER_MS).clip(upper_bound=most_ms).mean() or 0.0)  # type: ignore[arg-type]


def steadily_late(worst: LateRank) -> bool:
    """Return whether this rank is the last at most collectives, or costs the most time in most steps."""
    steps = worst.steps >= max(STEADILY * worst.of_steps, ENOUGH)
    always = worst.last >= max(MOSTLY * worst.of, ENOUGH)
    return (steps or always) and not by_turns(worst) and worst.score > MOSTLY


def by_turns(late: LateRank) -> bool:
    """Return whether other ranks cost more in too many steps for this one to be late steadily."""
    return late.of_steps >= ENOUGH and late.steps < max(STEADILY * late.of_steps, ENOUGH)


def to_clean(ranks: Iterable[LateRank], step: Step) -> None:
    """Scale what the late `ranks` cost from the profiled step to the clean one, if that is shorter."""
    if not step.basis_ms or not step.timeline_ms or step.basis_ms >= step.timeline_ms:
        return
    scale = step.basis_ms / step.timeline_ms
    for late in ranks:
        late.cost_ms *= scale
        late.entries = [LostTime(lost.entry, scale * lost.ms) for lost in late.entries]


def cause_of_lateness(lost: Iterable[LostTime]) -> tuple[str, float]:
    """Return INPUT, WORK or HOST, in whose entries a rank loses most time beyond the median rank, and the ms.

    The cause is empty if none has half of the time. The ms are then the sum, infinite if nothing is known.
    Ranks that wait for a collective may still compute, so the job gains no more than this time.
    """
    sums = dict.fromkeys((INPUT, WORK, HOST), 0.0)
    for row in lost:
        sums[INPUT if row.entry == Entry.INPUT else WORK if row.entry in _WORKS else HOST] += row.ms
    cause, total = max(sums, key=lambda name: sums[name]), sum(sums.values())
    return (cause, sums[cause]) if total and sums[cause] >= _HALF * total else ("", total or inf)


def lead_ms(spent: Mapping[int, float], rank: int) -> float:
    """Return how much longer the median of the other ranks is in collectives than `rank`.

    Steps of all ranks are equally long, so it is also what the rank's other work takes longer.
    """
    return max(median(ms for other, ms in spent.items() if other != rank) - spent[rank], 0.0)


def ms_by_entry(device: Device) -> dict[str, float]:
    """Return the milliseconds per step by entry."""
    sums: dict[str, float] = {}
    for row in device.profiled_ledger:
        sums[row.entry] = sums.get(row.entry, 0.0) + row.ms
    return sums


def jitter_of(arrivals: pl.DataFrame | None) -> list[Jitter]:
    """Return the spread of each collective that recurs in FEWEST steps, largest spread first.

    `arrivals` are those of `late_ranks`, with `end_ns` on the same clock.
    """
    arrivals = in_whole_steps(arrivals)
    if arrivals is None:
        return []
    start = pl.col("start_ns")
    meetings = arrivals.group_by(MEETING).agg(
        operation=pl.col("operation").first(),
        last=start.max(),
        median=start.quantile(0.5, "lower"),
        end=pl.col("end_ns").median(),
    )
    figures = {
        f"{part}_{name}_ms": (time.quantile(q, "linear") / NS_PER_MS).clip(0.0)
        for part, time in _PARTS.items()
        for name, q in _PERCENTILES.items()
    }
    same = meetings.group_by(_SAME).agg(pl.col("operation").first(), n=pl.len(), **figures)
    same = same.filter(pl.col("n") >= FEWEST).sort(*_SAME)
    rows = [Jitter(**row) for row in same.iter_rows(named=True)]
    return sorted(rows, key=lambda row: row.total_p50_ms - row.total_p99_ms)


def expert_loads(collectives: Mapping[int, pl.DataFrame]) -> list[ExpertLoad]:
    """Return the load of each rank's experts relative to the mean; [] if all-to-alls deliver equal parts.

    `collectives` has those of each rank with the columns of `collectives_of`. The k-th all-to-all of one rank
    is matched with the k-th of the others. One that brings tokens back delivers equal parts, and is left out.
    """
    rows = [_received(rank, calls) for rank, calls in collectives.items()]
    if len(rows) < 2:
        return []
    received, size = pl.concat(rows), pl.col("received")
    uneven = size.max().over("call") > UNEVEN * size.mean().over("call")
    received = received.filter(uneven, pl.len().over("call") == len(rows))
    total = received.group_by("rank").agg(size.sum()).sort("rank")
    mean = total["received"].mean()
    return [ExpertLoad(rank, bytes_ / mean) for rank, bytes_ in total.iter_rows()] if mean else []


def _received(rank: int, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes that each all-to-all delivers to a rank, with the number of the `call`."""
    mine = calls.filter(operation="all_to_all").sort("start_ns")
    return mine.select("received", rank=pl.lit(rank), call=pl.int_range(pl.len())).drop_nulls()
