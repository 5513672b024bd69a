"""Compute the clean step's ledger: the profiled ledger with measured waits and without profiling overhead.

Device work is measured in the profiled steps and never rescaled. Waits that hooks time (input, garbage
collection, checkpoints, compilation) are measured in the clean steps. The additional time of the profiled
step is profiling overhead. It is inferred, and subtracted from the host's rows in proportion to their time,
up to the overhead that their recorded events can cause: a pause of 5 ms with one event stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from fathom.analysis.entries import COLLECTIVES, DISTORTED, Entry, cause_of, idle_entry
from fathom.analysis.intervals import Array
from fathom.analysis.results import LedgerRow
from fathom.analysis.rows import WORKING, RowKey, rate_of, rounded_ns
from fathom.analysis.sampled import makes_batches
from fathom.units import NS_PER_MS

IN_WORK = "in device work"
LONGER = "clean steps took longer"
NEAR = 0.05  # of the median window: windows that differ from it by less are typical
# Profiling overhead on host work, if ops are recorded: its share of the recorded time, and the most ms per
# recorded event. The shares are from non-negative least squares over 18 launch-bound recordings on H200s
# (relative error 19 %; 39 % for a fit to event counts).
INFLATION: dict[str, tuple[float, float]] = {
    Entry.DISPATCHING: (0.58, 0.02),
    Entry.PYTHON: (0.25, 0.01),
    Entry.LAUNCH_LATENCY: (0.80, 0.02),
    Entry.OPS: (0.58, 0.004),
}
PEERS = INFLATION[Entry.DISPATCHING][0]  # weight of waits for other ranks, whose hosts are slowed down, too
BEYOND = 5.0  # times the clean step: the host's time in a longer profiled step says nothing of the clean one
MOST = 0.9  # share of the possible profiling overhead that is subtracted first


class Profiled(msgspec.Struct, frozen=True):
    """The profiled step: its ledger `entries`, and for each row its ms and recorded events per step.

    `ms` and `events` are means over the windows that represent the clean step. Rows without time in these
    windows are missing. `added` are the events whose recording lengthens each row, if it is not its own.
    """

    entries: list[LedgerRow]
    ms: Mapping[RowKey, float]
    events: Mapping[RowKey, float]
    added: Mapping[RowKey, float] | None = None


def typical(lengths: Array, least: float = 0.0) -> Array:
    """Return a mask of the lengths near their median, or near `least` if the median is below it."""
    if not len(lengths):
        return np.zeros(0, bool)
    middle = max(float(np.median(lengths)), least)
    distance = np.abs(lengths - middle)
    return distance <= max(NEAR * middle, float(np.median(distance)))


def in_all_ranks(means: Mapping[int, float], steps: Array, lengths: Array) -> Array:
    """Return the lengths of steps in the mean of all ranks (`means`), or `lengths` if one of them is unknown.

    A step is late in one rank and waited for in another, so all ranks have to choose the same usual steps.
    """
    known = [means.get(step) for step in steps.tolist()]
    return lengths if None in known else np.array(known, float)


def clean_entries(profiled: Profiled, waits: Mapping[str, float], step_ms: float) -> list[LedgerRow]:
    """Return the rows of a clean step, largest first; they sum to `step_ms`.

    `waits` are the step's waits by cause in ms, as hooks measured them. They count in full if they fit into
    the step beside its device work. If the step is longer than all rows, the rest is unattributed.
    """
    known = {(row.entry, row.detail): row for row in profiled.entries}
    ms = dict(profiled.ms)
    _measured_waits(ms, waits, step_ms)
    before = dict(ms)
    distorted = sum(ms.values()) > BEYOND * step_ms
    if distorted:
        ms = {row: value for row, value in ms.items() if row[0] not in INFLATION}
    added = profiled.events if profiled.added is None else profiled.added
    _take_off(ms, added, waits, sum(ms.values()) - step_ms)
    left = step_ms - sum(ms.values())
    longer = (Entry.UNATTRIBUTED, DISTORTED if distorted else LONGER)
    row = longer if left > 0 else (Entry.OVERHEAD, IN_WORK)
    if abs(left) * NS_PER_MS >= 1:
        ms[row] = left
    inferred = {row} | {row for row in ms if ms[row] != before.get(row, 0.0)}
    result = [_entry(known, row, ms[row], profiled, row in inferred) for row in ms if ms[row]]
    result.sort(key=lambda row: (-row.ms, row.entry, row.detail))
    _whole_nanoseconds(result, step_ms)
    return result


def _measured_waits(ms: dict[RowKey, float], waits: Mapping[str, float], step_ms: float) -> None:
    """Set the rows of the causes that hooks measured in the clean steps."""
    room = max(step_ms - sum(value for row, value in ms.items() if not _of_host(row)), 0.0)
    wanted = sum(waits.values())
    part = min(room / wanted, 1.0) if wanted > 0 else 1.0
    for cause, wait in waits.items():
        entry = idle_entry(cause)
        rows = {row: value for row, value in ms.items() if row[0] == entry and not _sampled(row)}
        total = sum(rows.values())
        for row, value in rows.items():
            ms[row] = part * wait * value / total if total > 0 else 0.0
        if not total and wait > 0:
            ms[entry, ""] = part * wait


def _take_off(
    ms: dict[RowKey, float], events: Mapping[RowKey, float], waits: Mapping[str, float], excess: float
) -> None:
    """Subtract `excess` ms of profiling overhead: from hooks, then host work, waits, and device gaps.

    Waits for peers shrink with the host's work, because other ranks' hosts were slowed down too. So do
    collectives of a step without device work: host threads run them, on the processors of the program.
    """
    hooked = {idle_entry(cause) for cause in waits}
    host = [row for row in ms if _of_host(row)]
    working = [row for row in host if row[0] in INFLATION]
    measured = [row for row in host if row[0] in hooked and not _sampled(row)]
    others = [row for row in host if row not in working and row not in measured]
    gaps = [row for row in ms if row[0] == Entry.DEVICE_GAP]
    hooks = {row: ms[row] for row in host if row[0] == Entry.OWN_HOOKS}
    excess -= _share_out(ms, hooks, hooks, excess)
    likely = {row: min(ms[row], events.get(row, 0.0) * INFLATION[row[0]][1]) for row in working}
    weights = {row: INFLATION[row[0]][0] * likely[row] for row in working}
    excess -= _share_out(ms, {row: MOST * likely[row] for row in working}, weights, excess)
    rest = {row: INFLATION[row[0]][0] * ms[row] for row in working}
    on_host = any(row[0] == Entry.OPS for row in events)  # a distorted step has no ops left in `ms`
    shared = (*COLLECTIVES, Entry.HOST_WAITS_FOR_PEERS) if on_host else (Entry.WAITING_FOR_PEERS,)
    rest |= {row: PEERS * ms[row] for row in ms if row[0] in shared}
    excess -= _share_out(ms, {row: ms[row] for row in rest}, rest, excess)
    for rows in (others, measured, gaps):
        room = {row: ms[row] for row in rows}
        excess -= _share_out(ms, room, room, excess)


def _share_out(
    ms: dict[RowKey, float], room: dict[RowKey, float], weights: Mapping[RowKey, float], excess: float
) -> float:
    """Subtract `excess` ms from rows by weight, at most `room` from each; return the ms subtracted."""
    gone = 0.0
    left = dict(room)
    while excess - gone > 0 and left:
        weight = {row: weights.get(row, 0.0) for row in left}
        total = sum(weight.values())
        if total <= 0:
            weight, total = dict(left), sum(left.values())
        if total <= 0:
            break
        share = {row: (excess - gone) * weight[row] / total for row in left}
        full = [row for row in left if share[row] >= left[row]]
        for row in full or left:
            taken = min(share[row], left[row])
            ms[row], gone = max(ms[row] - taken, 0.0), gone + taken
        if not full:
            break
        left = {row: value for row, value in left.items() if row not in full}
    return gone


def _sampled(row: RowKey) -> bool:
    """Whether the row is of an iterator that makes batches: hooks do not time it."""
    return makes_batches((cause_of(row[0]), row[1]))


def _of_host(row: RowKey) -> bool:
    """Return whether the host determines the row's length; it does not for device work and device gaps."""
    entry = row[0]
    return entry == Entry.OPS or (cause_of(entry) != "" and entry != Entry.DEVICE_GAP)


def _entry(
    known: Mapping[RowKey, LedgerRow], row: RowKey, ms: float, profiled: Profiled, inferred: bool
) -> LedgerRow:
    """Return the row with its new length, and its work scaled to its new count of pieces."""
    old = known.get(row)
    if old is None:
        return LedgerRow(row[0], row[1], ms, inferred=inferred, clean_ms=ms)
    new = replace(old, ms=ms, clean_ms=ms, inferred=inferred)
    if old.count and row[0] in WORKING:
        _scale_work(new, profiled.events.get(row, old.count) / old.count)
    if row[0] == Entry.OPS and old.ms > 0:
        _in_clean_time(new, (old.own_ms or old.ms) * ms / old.ms)
    return new


def _in_clean_time(op: LedgerRow, own_ms: float) -> None:
    """Set the rates of an op of the processor over its time in the clean step, beside which they are shown.

    A device runs its work as fast as recorded, but the overhead of profiling an op is part of its time.
    """
    op.own_ms = own_ms
    op.flops_per_s = rate_of(op.flops, own_ms)
    op.bytes_per_s = rate_of(op.bytes, own_ms)


def _scale_work(entry: LedgerRow, factor: float) -> None:
    """Scale the amounts of work in a row, but not its rates, which refer to the durations of its pieces."""
    for name in ("count", "flops", "bytes", "at_ceiling_ms", "own_ms"):
        value = getattr(entry, name)
        if value is not None:
            setattr(entry, name, value * factor)
    entry.product_flops *= factor
    entry.recomputed_flops *= factor


def _whole_nanoseconds(entries: Iterable[LedgerRow], step_ms: float) -> None:
    """Set `ns` of each row, in whole nanoseconds that sum exactly to the step."""
    rows = list(entries)
    for row, ns in zip(rows, rounded_ns([row.ms for row in rows], round(step_ms * NS_PER_MS)), strict=True):
        row.ns = ns
