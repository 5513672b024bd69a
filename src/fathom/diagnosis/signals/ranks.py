"""Signals that compare ranks: clocks, work, and how much lateness and transfers vary over steps."""

from __future__ import annotations

from statistics import median

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import Account
from fathom.analysis.communication import (
    HOST,
    INPUT,
    MEETING,
    WORK,
    LateRank,
    in_whole_steps,
    undisturbed_ms,
)
from fathom.analysis.entries import Entry
from fathom.analysis.intervals import of_rows
from fathom.analysis.results import Device
from fathom.diagnosis.signals.communication import late
from fathom.diagnosis.signals.device import BUSY
from fathom.diagnosis.signals.recorded import Recorded, UnknownSignalError
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

SAME = ["name", "place"]  # identifies a collective within every step
LEAST = 0.25  # quantile over steps
LONGER = 1.5  # times the usual transfer: less is not jitter, but adds up over many collectives


class Varying(msgspec.Struct, frozen=True):
    """Time lost per step because collectives take longer in some steps than in others."""

    late_ms: float  # lost to late ranks, a different one each time
    ranks: int  # that were the last
    largest: float  # share of that time of one rank
    transfer_ms: float  # transfers longer than usual, since the last rank arrived
    transfer_p50_ms: float  # of the collective that varies most
    transfer_p99_ms: float
    operation: str


@signal("ranks.clocks", "MHz")
def clocks(recorded: Recorded) -> dict[int, float]:
    """Return the median clock of each rank's devices while they were busy."""
    result = {}
    for rank in recorded.store.manifest.ranks:
        rows = recorded.store.table("telemetry", rank.rank).filter(
            pl.col("device") >= 0, pl.col("busy_percent") >= BUSY
        )
        own = rows.filter(pl.col("device").is_in(list(rank.devices))) if rank.devices else rows
        clock = own.select(pl.col("sm_clock_mhz").median()).collect().item()
        if clock:
            result[rank.rank] = float(clock)
    if len(result) < 2:
        raise UnknownSignalError("the clocks of several ranks' devices were not recorded")
    return result


@signal("ranks.flops", "FLOP per step")
def flops(recorded: Recorded) -> dict[int, float]:
    """Return the model FLOPs of each rank."""
    first: dict[int, Device] = {}
    for device in recorded.every:
        first.setdefault(device.rank, device)
    return {
        rank: sum(row.flops or 0.0 for row in device.profiled_ledger)
        for rank, device in first.items()
        if device.profiled_ledger
    }


@signal("ranks.undisturbed", "ms per step")
def undisturbed(recorded: Recorded) -> dict[str, float]:
    """Return by cause how much longer the latest rank takes than the median rank if nothing disturbs both.

    A thread that loses its core is late in some steps only. So each op and the time before it count as in the
    fastest step, and input as in the lower quartile of steps.
    """
    worst = late(recorded)[0].rank
    each = {account.rank: _least(recorded, account) for account in recorded.accounts if account.subjects}
    if worst not in each or len(each) < 2:
        raise UnknownSignalError("the steps of the other ranks are unknown")
    others = [least for rank, least in each.items() if rank != worst]
    return {cause: ms - median(other[cause] for other in others) for cause, ms in each[worst].items()}


def _least(recorded: Recorded, account: Account) -> dict[str, float]:
    """Return a rank's undisturbed ms per step by cause of lateness."""
    ops, steps, waits = (recorded.store.table(t, account.rank).collect() for t in ("ops", "steps", "waits"))
    ledger, windows = account.subjects[0].ledger.rows, account.windows
    if windows is None:
        raise UnknownSignalError("a rank has no steps")
    work, host = undisturbed_ms(ops, steps, of_rows(waits.filter(phase="timeline")), windows.thread)
    sums = dict(ledger.filter(entry=Entry.INPUT).group_by("window").agg(pl.col("ns").sum()).iter_rows())
    each = [sums.get(window, 0) for window in np.flatnonzero(windows.used).tolist()]
    return {WORK: work, HOST: host, INPUT: float(np.quantile(each or [0], LEAST)) / NS_PER_MS}


@signal("communication.varying", "ms per step")
def varying(recorded: Recorded) -> Varying:
    """Return the time lost to varying late ranks and to slow transfers, without transfers of host threads."""
    ranks: list[LateRank] = late(recorded)
    arrivals = in_whole_steps(recorded.peers.arrivals) if recorded.peers else None
    total = _late_ms(arrivals) if arrivals is not None else 0.0
    usual = _transfers(arrivals) if arrivals is not None and recorded.account.indices else None
    largest = max((rank.score for rank in ranks), default=0.0)
    if usual is None or usual.is_empty():
        return Varying(total, len(ranks), largest, 0.0, 0.0, 0.0, "")
    added = float(usual["transfer_ms"].sum())
    worst = usual.select("transfer_p50_ms", "transfer_p99_ms", "operation").row(0)
    return Varying(total, len(ranks), largest, added, *worst)


def _late_ms(arrivals: pl.DataFrame) -> float:
    """Return the mean over steps of the largest wait for the last rank.

    A rank that is late at one collective is so at the next ones of its step, which costs nothing more.
    """
    start = pl.col("start_ns").sort()
    waits = arrivals.group_by(MEETING).agg(wait=start.get(-1) - start.get(-2))
    largest = waits.group_by("burst", "step").agg(pl.col("wait").max())
    return float(largest["wait"].mean() or 0.0) / NS_PER_MS  # type: ignore[arg-type]


def _transfers(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Return each recurring collective with the time that its longer transfers add to a step."""
    steps = arrivals.select("burst", "step").unique().height
    taken = arrivals.group_by(MEETING).agg(
        operation=pl.col("operation").first(),
        taken=(pl.col("end_ns").median() - pl.col("start_ns").max()).clip(0) / NS_PER_MS,
    )
    usual = pl.col("taken").quantile(0.25)
    slow = pl.col("taken") > LONGER * usual
    rows = taken.group_by(SAME).agg(
        operation=pl.col("operation").first(),
        n=pl.len(),
        transfer_ms=(pl.col("taken") - usual).filter(slow).sum() / steps,
        transfer_p50_ms=pl.col("taken").median(),
        transfer_p99_ms=pl.col("taken").quantile(0.99, "linear"),
    )
    return rows.filter(pl.col("n") >= 4).sort("transfer_ms", descending=True)
