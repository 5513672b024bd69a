"""Signals of the step as a whole, and of a rare long step."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.entries import ALIASES, Entry
from fathom.analysis.replay import Replay, replayed_device
from fathom.diagnosis.signals.recorded import NO_TIMELINE, PHASES, RAN, Recorded, UnknownSignalError
from fathom.diagnosis.signals.rows import Rare
from fathom.diagnosis.signals.value import signal
from fathom.units import NS_PER_MS

GAP = Entry.DEVICE_GAP
DIFFER = 0.1  # of compute time: above it, steps differ in their work
LEAST = 0.8  # of what the device computes in a recorded step: clocks differ by less
QUICK = 0.25  # quantile of steps, of which more may be long than short
SHORTEST = 0.05  # quantile of steps, without the odd one that was marked late
LONG = 3.0  # times a typical step
LIKE = 0.5  # of the longest clean step: a step this long is one of the rare ones
SEEN = [*PHASES, "slow"]
NONE = "none of the rare long steps was recorded in detail"
SHORTER = "the longest step recorded in detail took {seen:.1f} ms, the rare long ones up to {rare:.1f} ms"


@signal("step.ms", "ms")
def step_ms(recorded: Recorded) -> float | None:
    """Return the mean of the clean steps, including rare long ones, or else of the timeline's steps.

    It is at least the median, because device boundaries make steps too short while the device has no work.
    """
    step = recorded.step
    clean = [ms for ms in (step.clean_mean_ms, step.clean_ms) if ms is not None]
    return max(clean, default=step.timeline_ms)


@signal("step.ceilings", "")
def ceilings(recorded: Recorded) -> str | None:
    """Return the source of the device's ceilings: measured, or the datasheet."""
    return recorded.device.ceilings or None


@signal("step.clean_ledger", "ms per step")
def clean_ledger(recorded: Recorded) -> dict[tuple[str, str], float]:
    """Return the ledger of the step to which gains and shares refer, by (entry, detail)."""
    return {(row.entry, row.detail): row.ms for row in recorded.clean_ledger}


@signal("step.mean_ms", "ms")
def mean_ms(recorded: Recorded) -> float | None:
    """Return the mean step, including rare long ones; the timeline's mean if there are no clean steps.

    No step is shorter than its device work; a shorter mean was timed while the device had no work.
    """
    mean = recorded.step.clean_mean_ms
    rows = (row for device in recorded.account.devices[:1] for row in device.ledger)
    computing = sum(row.ms for row in rows if row.entry == Entry.COMPUTE)
    return mean if mean is not None and mean >= LEAST * computing else step_ms(recorded)


@signal("step.typical_ms", "ms")
def typical_ms(recorded: Recorded) -> float | None:
    """Return the time of a step without rare events: the shorter of a short clean and a short timeline step.

    Clean steps are often timed in groups, so each group may contain a long one.
    """
    clean = _clean_ms(recorded)
    windows = recorded.account.windows
    used = [] if windows is None else ((windows.ends - windows.starts)[windows.used] / NS_PER_MS).tolist()
    known = [float(np.quantile(some, QUICK, method="lower")) for some in (clean, used) if some]
    return min(known) if clean else None


def _clean_ms(recorded: Recorded) -> list[float]:
    return [ns / NS_PER_MS for stretch in recorded.account.stretches for ns, _ in stretch.durations()]


@signal("step.stalled_ms", "ms per step")
def stalled_ms(recorded: Recorded) -> float:
    """Return the time that rare long steps add to the mean, which includes the variation of steps."""
    mean, typical = mean_ms(recorded), typical_ms(recorded)
    if mean is None or typical is None:
        raise UnknownSignalError("no clean steps were recorded")
    return max(mean - typical, 0.0)


@signal("step.beyond_shortest_ms", "ms per step")
def beyond_shortest_ms(recorded: Recorded) -> float:
    """Return by how much the mean of the clean steps exceeds the shortest of them.

    What differs from step to step costs no more than that.
    """
    clean = _clean_ms(recorded)
    if not clean:
        raise UnknownSignalError("no clean steps were recorded")
    return float(np.mean(clean) - np.quantile(clean, SHORTEST, method="lower"))


@signal("step.idle_ms", "ms per step")
def idle_ms(recorded: Recorded) -> float:
    """Return the part of the mean step in which the device neither computes nor switches between kernels.

    A faster host could save at most this time. If recorded steps are longer than clean ones, for example
    because sequences grow, their share of idle time is used.
    """
    step, timeline = mean_ms(recorded) if recorded.index is not None else None, timeline_ms(recorded)
    if step is None or timeline is None:
        raise UnknownSignalError("no step was recorded")
    own = sum(e.ms for e in recorded.ledger if e.entry in (Entry.COMPUTE, GAP))
    if own > step and differing(recorded) > DIFFER:
        return step * (1 - own / timeline)
    return max(step - own, 0.0)


@signal("step.differing")
def differing(recorded: Recorded) -> float:
    """Return the share of compute time in families whose number of launches differs between steps."""
    rows = recorded.kernels.with_columns(window=recorded.window(recorded.kernels))
    rows = rows.filter(pl.col("window") >= 0, kind="compute")
    rows = rows.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    each = rows.group_by("family", "window").agg(pl.len(), pl.col("ns").sum())
    same = (pl.len() == recorded.steps) & (pl.col("len").n_unique() == 1)
    kinds = each.group_by("family").agg(pl.col("ns").sum(), same.alias("same"))
    total = int(kinds["ns"].sum())
    return int(kinds.filter(~pl.col("same"))["ns"].sum()) / total if total else 0.0


@signal("step.timeline_ms", "ms")
def timeline_ms(recorded: Recorded) -> float | None:
    return recorded.device.total_ms


@signal("step.replay")
def replay(recorded: Recorded) -> Replay:
    """Return the recorded timeline as a graph that can be replayed with changes."""
    account = recorded.account
    read = {account.rank: account.timeline}
    others = [late.rank for late in recorded.late]
    met = recorded.peers
    replay = Replay(recorded.store, account.rank, recorded.asked, read, replayed_device(account), met, others)
    replay.clean = recorded.account.clean
    replay.collectives = account.subjects[0].collectives if account.subjects else None
    if replay.device is None:
        raise UnknownSignalError(NO_TIMELINE)
    return replay


@signal("step.rare", "ms")
def rare(recorded: Recorded) -> Rare:
    """Return the longest rare step that was recorded in detail, because it was slow or by chance."""
    typical = typical_ms(recorded)
    if typical is None:
        raise UnknownSignalError("no clean steps were recorded")
    table = recorded.rows("steps").filter(pl.col("parent").is_null())
    steps = table.with_columns(ms=(pl.col("end_ns") - pl.col("mark_ns")) / NS_PER_MS).collect()
    longest = steps.filter(phase="clean")["ms"].max()
    seen = steps.filter(pl.col("phase").is_in(SEEN)).sort("ms", descending=True)
    least = max(LONG * typical, LIKE * float(longest or 0.0))  # type: ignore[arg-type]
    if longest is None or seen.is_empty():
        raise UnknownSignalError(NONE)
    if seen["ms"][0] < least:
        slow = seen.filter(phase="slow").height
        raise UnknownSignalError(SHORTER.format(seen=seen["ms"][0], rare=longest) if slow else NONE)
    step, others = seen.row(0, named=True), seen.tail(-1)
    copies = _rows(recorded, "kernels").filter(
        pl.col("direction").str.starts_with("DtoH"), pl.col("device").eq_missing(recorded.index)
    )
    copied = [_copied(copies, work) for work in others.iter_rows(named=True)]
    count, size = _copied(copies, step)
    return Rare(
        step["ms"],
        count,
        float(pl.Series([number for number, _ in copied] or [0]).median() or 0.0),  # type: ignore[arg-type]
        size,
        _waits(recorded, step),
        _source(recorded, step),
    )


def _rows(recorded: Recorded, name: str) -> pl.DataFrame:
    """Return a table's rows from all phases that recorded steps in detail."""
    return recorded.rows(name).filter(pl.col("phase").is_in(SEEN)).collect()


def _during(rows: pl.DataFrame, step: dict) -> pl.DataFrame:
    return rows.filter(pl.col("start_ns").is_between(step["mark_ns"], step["end_ns"]))


def _copied(copies: pl.DataFrame, step: dict) -> tuple[float, float]:
    """Return the number of copies from the device, and their bytes."""
    rows = _during(copies, step)
    return float(rows.height), float(rows["bytes"].sum() or 0)


def _waits(recorded: Recorded, step: dict) -> dict[str, float]:
    rows = _during(recorded.rows("waits").collect(), step)
    rows = rows.with_columns(pl.col("cause").replace(ALIASES))
    total = rows.group_by("cause").agg((pl.col("end_ns") - pl.col("start_ns")).sum() / NS_PER_MS)
    return {cause: float(ms) for cause, ms in total.iter_rows()}


def _source(recorded: Recorded, step: dict) -> str | None:
    """Return the program's line with most of the step's time, by its outermost ops."""
    ops = _during(_rows(recorded, "ops").filter(pl.col("kind") == "op"), step).drop_nulls("source")
    by_line = ops.group_by(source=RAN).agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"))
    return by_line.sort("ns", "source", descending=[True, False])["source"].first()  # type: ignore[return-value]
