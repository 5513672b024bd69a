"""Signals of communication: collectives by size, their repetition, and ranks that arrive late."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import numpy as np
import polars as pl

from fathom.analysis import CPU
from fathom.analysis.communication import (
    NO_CAUSE,
    ON_HOST,
    Communication,
    LateRank,
    LostTime,
    fixed_time,
    in_whole_steps,
    lead_ms,
    ms_by_entry,
    operation,
    shared_out,
)
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import covered, intersect, merge, of_rows, subtract, union
from fathom.analysis.results import Claim, LedgerRow
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Lead, Repeated, Skew, SmallMessages
from fathom.diagnosis.signals.value import signal
from fathom.units import KIB, MIB, NS_PER_MS

SMALL = 256 * KIB  # bytes: below it, latency sets the time of a collective
LARGE = MIB  # bytes: a gradient's bucket, no metric
RUN = 8  # collectives in a row
LONG_NS = 500_000  # of an op of a processor that separates runs of collectives
CALLS = "^c10d::"  # ops that call collectives
REDUCES = ("all_reduce", "reduce_scatter")
FORWARD = "DistributedDataParallel.forward"  # annotated by torch
REDUCTION = "^c10d::_?(allreduce|reduce_scatter)"  # ops
_GROUP = ["operation", "dtype", "group"]


@signal("communication.account", "ms per step")
def account(recorded: Recorded) -> Communication:
    """Return total, overlapped and exposed communication, and its collectives."""
    if recorded.device.communication is None:
        raise UnknownSignalError("the device did not communicate")
    return recorded.device.communication


def calls(recorded: Recorded) -> pl.DataFrame:
    """Return every collective that starts in a used window of the timeline, in order."""
    rows = recorded.subject.collectives
    if rows is None or rows.is_empty():
        raise UnknownSignalError("the device did not communicate")
    return rows.filter(recorded.inside(rows)).sort("start_ns")


@signal("communication.small", "ms per step")
def small(recorded: Recorded) -> list[SmallMessages]:
    """Return collectives smaller than SMALL that run back to back, at least RUN in a row."""
    rows = calls(recorded).with_columns(run=_runs(recorded, calls(recorded)))
    rows = rows.filter(pl.col("bytes") <= SMALL)
    rows = rows.filter(pl.len().over(*_GROUP, "run") >= RUN)
    return [_small(recorded, mine) for _, mine in rows.group_by(*_GROUP, maintain_order=True)]


def _runs(recorded: Recorded, rows: pl.DataFrame) -> pl.Series:
    """For each collective, number the stretches between starts of steps, compute kernels or longer ops."""
    if recorded.account.indices:
        computing = recorded.kernels.filter(kind="compute", phase="timeline")["start_ns"].to_numpy()
    else:
        ops = recorded.ops.filter(pl.col("kind") == "op", phase="timeline")
        long = ops.filter(
            pl.col("end_ns") - pl.col("start_ns") >= LONG_NS, ~pl.col("name").str.contains(CALLS)
        )
        computing = long["start_ns"].to_numpy()
    between = np.sort(np.concatenate((computing, recorded.used.starts)))
    return pl.Series(np.searchsorted(between, rows["start_ns"].to_numpy(), "right"))


def _small(recorded: Recorded, rows: pl.DataFrame) -> SmallMessages:
    length, steps = (rows["end_ns"] - rows["start_ns"]) / NS_PER_MS, recorded.steps
    begun = pl.min_horizontal(pl.coalesce("arrived_ns", "start_ns"), "end_ns")
    rows = rows.with_columns(begun=begun)
    moving = shared_out(rows["begun"].to_numpy(), rows["end_ns"].to_numpy())
    fixed = fixed_time(rows["bytes"].to_numpy(), moving, not recorded.account.indices)
    return SmallMessages(
        operation=rows["operation"][0],
        dtype=rows["dtype"][0] or "",
        bytes=float(rows["bytes"].sum()) / steps,
        count=rows.height / steps,
        runs=rows["run"].n_unique() / steps,
        ms=float(length.sum()) / steps,
        fixed=min(fixed.ns / max(float(moving.mean()), 1.0), 1.0),
        families=tuple(rows["family"].drop_nulls().unique().sort()),
        exposed_ms=0.0 if recorded.account.indices else _exposed_ms(recorded, rows),
        source=_calling_line(recorded, rows["operation"][0]),
    )


def _exposed_ms(recorded: Recorded, rows: pl.DataFrame) -> float:
    """Return the time per step that runs of collectives on host threads take from their callers.

    A run lasts from the last rank's arrival at its first collective, for which a merged one waits as well,
    to its last end. Ops between the calls remain, and so does their share of the Python between all ops.
    """
    bounds = rows.group_by("run").agg(pl.col("begun").min(), pl.col("end_ns").max())
    runs = union(bounds["begun"].to_numpy(), bounds["end_ns"].to_numpy())
    ops = recorded.ops.filter(pl.col("kind") == "op", phase="timeline").with_columns(
        calls=pl.col("name").str.contains(CALLS)
    )
    ops = ops.filter(pl.col("thread").is_in(ops.filter("calls")["thread"].unique().implode()))
    calling = of_rows(ops.filter("calls"))
    beside = covered(calling, ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()) == 0  # contain no call
    others = intersect(of_rows(ops.filter(pl.Series(beside, dtype=pl.Boolean))), runs)
    python = subtract(runs, merge(calling, others, of_rows(rows)))
    between = rows.height / (rows.height + len(others.starts))
    return recorded.per_step_ms(runs.length - others.length - (1 - between) * python.length)


@signal("communication.contended")
def contended(recorded: Recorded) -> bool:
    """Return whether other programs used the processors so much that steps took longer."""
    return recorded.account.others(recorded.store)[1]


def _calling_line(recorded: Recorded, name: str) -> str | None:
    """Return the line that calls most collectives of an operation; None if no lines were recorded."""
    ops = recorded.ops.filter(pl.col("name").str.contains(CALLS)).drop_nulls("ran")
    mine = [
        line
        for op, line in ops.select("name", "ran").iter_rows()
        if operation(op[len("c10d::") :].strip("_")) == name
    ]
    return max(sorted(set(mine)), key=mine.count, default=None)


@signal("communication.repeated", "ms per step")
def repeated(recorded: Recorded) -> list[Repeated]:
    """Return large reductions that run the same number of times in each micro-step, by size."""
    micro = recorded.subject.micro
    rows = calls(recorded).filter(pl.col("operation").is_in(REDUCES), pl.col("bytes") >= LARGE)
    groups = [mine for _, mine in rows.group_by(*_GROUP, "bytes", maintain_order=True)]
    if micro:
        parts = 1 + max(part.place for part in micro)
        starts = np.array([part.start_ns for part in micro])
        again = [mine for mine in groups if _in_each(mine, starts)]
    else:
        parts = _forward_passes(recorded)
        again = [mine for mine in groups if mine.height >= parts * recorded.steps]
    return [_repeated(recorded, mine, parts) for mine in again]


def _in_each(rows: pl.DataFrame, starts: np.ndarray) -> bool:
    """Return whether equally many of these collectives run in each micro-step."""
    at = np.searchsorted(starts, rows["start_ns"].to_numpy(), "right") - 1
    return _equal(np.bincount(at[at >= 0], minlength=len(starts)))


def _equal(counts: np.ndarray) -> bool:
    """Return whether the counts are equal and above 0."""
    return len(counts) > 0 and counts[0] > 0 and bool((counts == counts[0]).all())


def _forward_passes(recorded: Recorded) -> int:
    """Return how many forward passes of DistributedDataParallel a step has, if equally many reductions follow
    each. Raises UnknownSignalError if a step has only one, or they differ.
    """
    ops, steps = recorded.ops, recorded.table("steps").filter(pl.col("parent").is_null())
    phase = "attribution" if "attribution" in ops["phase"].cast(pl.String).unique() else "timeline"
    ops, steps = ops.filter(phase=phase), steps.filter(phase=phase)
    forward = ops.filter(name=FORWARD)["start_ns"].sort().to_numpy()
    reductions = ops.filter(pl.col("name").str.contains(REDUCTION))["start_ns"].sort().to_numpy()
    parts = set()
    for mark, end in steps.select("mark_ns", "end_ns").drop_nulls().iter_rows():
        begun = forward[(forward >= mark) & (forward < end)]
        each = np.diff(np.searchsorted(reductions, [*begun, end]))
        parts.add(len(begun) if _equal(each) else 0)
    if len(parts) != 1 or max(parts) < 2:
        raise UnknownSignalError("no micro-steps were recorded")
    return max(parts)


def _repeated(recorded: Recorded, rows: pl.DataFrame, parts: int) -> Repeated:
    length = int((rows["end_ns"] - rows["start_ns"]).sum()) / NS_PER_MS / recorded.steps
    families = tuple(rows["family"].drop_nulls().unique().sort())
    operation, size = rows["operation"][0], float(rows["bytes"][0])
    return Repeated(operation, size, parts, rows.height / recorded.steps, length, families)


@signal("communication.skew", "ms per step")
def skew(recorded: Recorded) -> Skew:
    """Return the waits of this rank for later ranks at reductions that each micro-step repeats.

    All ranks leave a reduction together, so lateness at the next one is that of a single micro-step.
    """
    reductions = repeated(recorded)
    arrivals = in_whole_steps(recorded.peers.arrivals if recorded.peers else None)
    if not reductions or arrivals is None:
        raise UnknownSignalError("the arrival of all ranks at the reductions of micro-steps is unknown")
    parts, step = reductions[0].micro_steps, ["burst", "step"]
    rows = arrivals.filter(pl.col("operation").is_in(REDUCES), pl.len().over(*step, "rank") % parts == 0)
    rows = rows.with_columns(part=pl.col("start_ns").rank("ordinal").over(*step, "rank") - 1)
    rows = rows.with_columns(part=pl.col("part") * parts // pl.len().over(*step, "rank"))
    last = rows.group_by(*step, "part", "rank").agg(pl.col("start_ns").max())
    early = pl.col("start_ns").max().over(*step, "part") - pl.col("start_ns")
    sums = last.with_columns(early=early).group_by(*step, "rank").agg(pl.col("early").sum())
    sums = sums.with_columns(once=pl.col("early") - pl.col("early").min().over(step))
    mean = sums.filter(rank=recorded.account.rank).select(pl.col("early", "once").mean() / NS_PER_MS)
    if mean["early"].item() is None:
        raise UnknownSignalError("no micro-step has a reduction of all ranks")
    return Skew(*mean.row(0))


@signal("communication.engine", "ms per step")
def engine(recorded: Recorded) -> float:
    """Return the time in which a backward pass runs no op of a CPU while host threads communicate.

    The thread was sampled as running: it waits for a core, or looks for the next op.
    """
    timeline, windows = recorded.account.timeline, recorded.account.windows
    moving = intersect(of_rows(calls(recorded)), recorded.used)
    if recorded.account.indices or windows is None:
        return 0.0
    idle = [
        intersect(spans, moving).length
        for records in timeline.host(windows.bursts).values()
        for (cause, detail), spans in records.activity(records.caller)
        if cause == Entry.DISPATCHING.cause and detail
    ]
    return recorded.per_step_ms(sum(idle))


@signal("communication.slowed", "ms per step")
def slowed(recorded: Recorded) -> dict[str, float]:
    """Return by how much kernels of each family, or a CPU's ops, take longer beside collectives."""
    return {family: recorded.per_step_ms(ns) for family, ns in recorded.subject.slowed.items()}


@signal("communication.late", "ms per step")
def late(recorded: Recorded) -> list[LateRank]:
    """Return the ranks that others wait for, costliest first."""
    if not recorded.late:
        raise UnknownSignalError("the arrival of all ranks at collectives is unknown")
    return recorded.late


@signal("communication.excess", "ms per step")
def excess(recorded: Recorded) -> list[LostTime]:
    """Return the entries in which the latest rank spends more time than the median rank, largest first."""
    (worst, *_), devices = late(recorded), recorded.every
    own = [ms_by_entry(device) for device in devices if device.rank == worst.rank]
    others = [ms_by_entry(device) for device in devices if device.rank != worst.rank]
    if not own or not others:
        raise UnknownSignalError("the ledgers of the other ranks are unknown")
    more = {
        entry: ms - median(other.get(entry, 0.0) for other in others)
        for entry, ms in own[0].items()
        if entry not in NO_CAUSE
    }
    return sorted((LostTime(entry, ms) for entry, ms in more.items() if ms > 0), key=lambda row: -row.ms)


@signal("communication.lead", "ms per step")
def lead(recorded: Recorded) -> Lead:
    """Return how much longer the others spend in collectives that host threads run than the latest rank,
    but no more than the clean step has of the time that a punctual rank would save.
    """
    (worst, *_), devices = late(recorded), recorded.every
    if any(device.device != CPU for device in devices):
        raise UnknownSignalError("the ranks have devices, so collectives run beside the host")
    spent = {d.rank: _sum(row for row in d.profiled_ledger if row.entry in ON_HOST) for d in devices}
    if worst.rank not in spent or len(spent) < 2:
        raise UnknownSignalError("the ledgers of the other ranks are unknown")
    if recorded.account.rank == worst.rank:
        longer = {row.entry: row.ms for row in excess(recorded)}
        rows = [row for row in recorded.clean_ledger if row.entry in longer]
        sums = ms_by_entry(recorded.device)
        claims = [Claim(r.entry, r.detail, min(1.0, longer[r.entry] / sums[r.entry]) * r.ms) for r in rows]
        most = sum(min(ms, _sum(row for row in rows if row.entry == entry)) for entry, ms in longer.items())
    else:
        rows = [row for row in recorded.clean_ledger if row.entry in ON_HOST]
        claims, most = [Claim(row.entry, row.detail, row.ms) for row in rows], _sum(rows)
    return Lead(min(lead_ms(spent, worst.rank), most), claims)


def _sum(rows: Iterable[LedgerRow]) -> float:
    return sum(row.ms for row in rows)
