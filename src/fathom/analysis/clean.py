"""The ledger of the clean step: the profiled step's, with measured waits and without profiling overhead.

Work of devices is measured in the profiled steps and never rescaled. Waits that hooks time (input, garbage
collection, checkpoints, compilation) are measured in the clean steps themselves. What the profiled step takes
longer is profiling overhead, which is inferred: it comes off the rows in which the host works, in proportion
to their time, as far as that can be the profiler's: a pause of 5 ms with one recorded event stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from msgspec.structs import replace

from fathom.analysis.entries import Entry, cause_of, idle_entry
from fathom.analysis.intervals import Array
from fathom.analysis.results import LedgerRow
from fathom.analysis.rows import WORKING, Row
from fathom.units import NS_PER_MS

IN_WORK = "in device work"
LONGER = "clean steps took longer"
NEAR = 0.05  # of the median window: those that differ by less are typical
# What a profiler that records ops adds to the host's work: the share of its time, by non-negative least
# squares over 18 launch-bound recordings on H200s (relative error 19 %; by numbers of events 39 %), and how
# many milliseconds around each recorded event may be the profiler's doing.
INFLATION: dict[str, tuple[float, float]] = {
    Entry.DISPATCHING: (0.58, 0.02),
    Entry.PYTHON: (0.25, 0.01),
    Entry.LAUNCH_LATENCY: (0.80, 0.02),
    Entry.OPS: (0.58, 0.004),
}
MOST = 0.9  # of what may be profiling overhead, at first


class Profiled(msgspec.Struct, frozen=True):
    """The profiled step: `entries` with their work, and what was recorded in each row, a step.

    `ms` and `events` are of the windows that stand for the clean step, by row; a row that is missing there
    took no time in them.
    """

    entries: list[LedgerRow]
    ms: Mapping[Row, float]
    events: Mapping[Row, float]


def typical(lengths: Array) -> Array:
    """Which windows are near the median one."""
    if not len(lengths):
        return np.zeros(0, bool)
    middle = np.median(lengths)
    apart = np.abs(lengths - middle)
    return apart <= max(NEAR * float(middle), float(np.median(apart)))


def clean_entries(
    profiled: Profiled, waits: Mapping[str, float], mean_waits: Mapping[str, float], step_ms: float
) -> list[LedgerRow]:
    """The rows of a clean step of `step_ms`, to which they sum; largest first.

    `waits` are milliseconds of such a step by cause, measured by hooks; they are taken as they are as far as
    the step has room for them beside its device work. Where the step is longer than all that, it waits more,
    up to what the mean clean step does; what is left then is unattributed.
    """
    known = {(one.entry, one.detail): one for one in profiled.entries}
    ms = dict(profiled.ms)
    _measured_waits(ms, waits, step_ms)
    before = dict(ms)
    _wait_longer(ms, waits, mean_waits, step_ms - sum(ms.values()))
    _take_off(ms, profiled.events, waits, sum(ms.values()) - step_ms)
    left = step_ms - sum(ms.values())
    row = (Entry.UNATTRIBUTED, LONGER) if left > 0 else (Entry.OVERHEAD, IN_WORK)
    if abs(left) * NS_PER_MS >= 1:
        ms[row] = left
    inferred = {row} | {row for row in ms if ms[row] != before.get(row, 0.0)}
    found = [_entry(known, row, ms[row], profiled, row in inferred) for row in ms if ms[row]]
    found.sort(key=lambda one: (-one.ms, one.entry, one.detail))
    _whole_nanoseconds(found, step_ms)
    return found


def _measured_waits(ms: dict[Row, float], waits: Mapping[str, float], step_ms: float) -> None:
    """Set the rows of causes that hooks measured in the clean steps."""
    room = max(step_ms - sum(value for row, value in ms.items() if not _of_host(row)), 0.0)
    wanted = sum(waits.values())
    part = min(room / wanted, 1.0) if wanted > 0 else 1.0
    for cause, wait in waits.items():
        entry = idle_entry(cause)
        rows = {row: value for row, value in ms.items() if row[0] == entry}
        total = sum(rows.values())
        for row, value in rows.items():
            ms[row] = part * wait * value / total if total > 0 else 0.0
        if not total and wait > 0:
            ms[entry, ""] = part * wait


def _wait_longer(
    ms: dict[Row, float], waits: Mapping[str, float], mean_waits: Mapping[str, float], lacking: float
) -> None:
    """Lengthen waits by what the mean step waits more, to make up for `lacking` milliseconds."""
    more = {cause: max(wait - waits.get(cause, 0.0), 0.0) for cause, wait in mean_waits.items()}
    total = sum(more.values())
    if lacking <= 0 or total <= 0:
        return
    for cause, wait in more.items():
        row = next((row for row in ms if row[0] == idle_entry(cause)), (idle_entry(cause), ""))
        ms[row] = ms.get(row, 0.0) + wait * min(lacking / total, 1.0)


def _take_off(
    ms: dict[Row, float], events: Mapping[Row, float], waits: Mapping[str, float], excess: float
) -> None:
    """Take profiling overhead off hooks, then off the host's work, its waits, and gaps of the device."""
    hooked = {idle_entry(cause) for cause in waits}
    host = [row for row in ms if _of_host(row)]
    working = [row for row in host if row[0] in INFLATION]
    others = [row for row in host if row not in working and row[0] not in hooked]
    measured = [row for row in host if row[0] in hooked]
    gaps = [row for row in ms if row[0] == Entry.DEVICE_GAP]
    hooks = {row: ms[row] for row in host if row[0] == Entry.OWN_HOOKS}
    excess -= _share_out(ms, hooks, hooks, excess)
    likely = {row: min(ms[row], events.get(row, 0.0) * INFLATION[row[0]][1]) for row in working}
    weights = {row: INFLATION[row[0]][0] * likely[row] for row in working}
    excess -= _share_out(ms, {row: MOST * likely[row] for row in working}, weights, excess)
    rest = {row: INFLATION[row[0]][0] * ms[row] for row in working}
    excess -= _share_out(ms, {row: ms[row] for row in working}, rest, excess)
    for rows in (others, measured, gaps):
        room = {row: ms[row] for row in rows}
        excess -= _share_out(ms, room, room, excess)


def _share_out(
    ms: dict[Row, float], room: dict[Row, float], weights: Mapping[Row, float], excess: float
) -> float:
    """Take `excess` off the rows of `room` by weight, and from none more than its room; return what went."""
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


def _of_host(row: Row) -> bool:
    """Whether the host sets its length: work of a device and gaps between it do not change."""
    entry = row[0]
    return entry == Entry.OPS or (cause_of(entry) != "" and entry != Entry.DEVICE_GAP)


def _entry(
    known: Mapping[Row, LedgerRow], row: Row, ms: float, profiled: Profiled, inferred: bool
) -> LedgerRow:
    """The row at its new length; its work is that of as many pieces as it holds."""
    old = known.get(row)
    if old is None:
        return LedgerRow(row[0], row[1], ms, inferred=inferred, clean_ms=ms)
    new = replace(old, ms=ms, clean_ms=ms, inferred=inferred)
    if old.count and row[0] in WORKING:
        _scale_work(new, profiled.events.get(row, old.count) / old.count)
    return new


def _scale_work(entry: LedgerRow, factor: float) -> None:
    """Rates are over the pieces' own durations, and stay."""
    for name in ("count", "flops", "bytes", "at_ceiling_ms", "own_ms"):
        value = getattr(entry, name)
        if value is not None:
            setattr(entry, name, value * factor)
    entry.product_flops *= factor
    entry.recomputed_flops *= factor


def _whole_nanoseconds(entries: Iterable[LedgerRow], step_ms: float) -> None:
    """Set `ns` of each row, so that they sum to the step exactly."""
    rows = list(entries)
    exact = np.array([one.ms * NS_PER_MS for one in rows])
    floor = np.floor(exact).astype(np.int64)
    missing = round(step_ms * NS_PER_MS) - int(floor.sum())
    order = np.argsort(floor - exact, kind="stable")
    if 0 < missing <= len(rows):
        floor[order[:missing]] += 1
    for one, ns in zip(rows, floor.tolist(), strict=True):
        one.ns = ns
