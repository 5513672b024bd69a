"""Build the account of one rank: its device ledgers, its clean step, and what was not analysed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.clean import Profiled, clean_entries, in_all_ranks, typical
from fathom.analysis.columns import filled
from fathom.analysis.communication import at_their_size, ceilings_of, communication_of
from fathom.analysis.entries import Entry, idle_entry
from fathom.analysis.feeding import copy_ms, input_waits
from fathom.analysis.intervals import Array, Spans, of_rows, spans
from fathom.analysis.kinds_by_batch import mixed
from fathom.analysis.micro import Micro, mean_by_place
from fathom.analysis.others import others_share
from fathom.analysis.processor import regions
from fathom.analysis.recording import TABLES_OF_TIMELINE, Timeline, read_timeline
from fathom.analysis.results import Abstained, Device, LedgerRow, Window, step_noun
from fathom.analysis.roofline import at_ceiling, check_rates, utilisation
from fathom.analysis.rows import RowKey, busy_ms, entries_of, step_of, windows_of
from fathom.analysis.sampled import makes_batches
from fathom.analysis.steps import (
    Clean,
    Stretch,
    clean_step,
    first_profiled,
    growth,
    lengths_of_ranks,
    ran_ahead,
    stretches,
    undisturbed,
)
from fathom.analysis.subjects import Subject, shaped_elsewhere, subjects, works
from fathom.analysis.views import categories_of
from fathom.analysis.waits import Waits, exposed
from fathom.analysis.windows import HOST, Windows, dominant
from fathom.machine import bounds_of, lack_of_limits, peaks_of, why_no_limits
from fathom.machine.datasheet import find as sheet_named
from fathom.machine.model import Machine
from fathom.sounding import REPETITION, TRACED, Problem, Store
from fathom.timing import median
from fathom.units import NS_PER_MS, NS_PER_S

AHEAD_OF_DEVICE = (
    "steps were launched faster than the device executes them, and no device events give their length"
)
LATER = "later clean steps"
OTHER_SHAPES = "the step whose shapes were recorded is of another kind"
ENOUGH = 20  # steps: enough for a clean phase after three steps, and then a timeline
SOON = 25  # steps: a timeline begins within them if the step time is stable from the start
MADE = "the median profiled step was {} than the clean one, so host times are estimates"
WERE = "the median profiled step was {} than the clean one: its work or the conditions differed"
GREW = "clean steps grew from {} to {} ms, and early ones were profiled; record later ones with `--at {}`"
WORTH = 0.02  # of the clean step: device work that exceeds it by more is reported
TRACING_US = 0.4, 1.5  # per Python call: torch.profiler with stacks, on fast and slow hosts
MOSTLY = 0.9  # of a recording: if repeated work covers less of it, the report says so
LARGE = 0.05  # of the clean step: more profiling overhead is reported


class Account(msgspec.Struct):
    """One rank. `devices` are the results of its `subjects`, in the same order."""

    timeline: Timeline
    rank: int
    kind: str
    source: str
    clean: Clean | None
    stretches: list[Stretch]
    subjects: list[Subject]
    input_waits: pl.DataFrame  # start_ns, end_ns
    steps: pl.DataFrame  # of all phases
    waits: Waits  # of the steps' thread
    copy_ms: float | None = None  # copies from the host per step
    devices: list[Device] = msgspec.field(default_factory=list)
    abstained: list[Abstained] = msgspec.field(default_factory=list)
    problems_of_clean: list[Problem] = msgspec.field(default_factory=list)
    lengths_of_ranks: dict[int, float] = msgspec.field(default_factory=dict)  # mean ns by step number
    contended: bool = False  # other programs than the job's ranks lengthened its steps
    _others: tuple[float, bool] | None = None

    @property
    def indices(self) -> list[int]:
        """Indices of the rank's devices; [] for a program without devices."""
        return [subject.index for subject in self.subjects if subject.index is not None]

    @property
    def windows(self) -> Windows | None:
        """The first device's windows."""
        return self.subjects[0].ledger.windows if self.subjects else None

    @property
    def problems(self) -> list[Problem]:
        """Problems of the ledgers and of the clean step."""
        own = [problem for subject in self.subjects for problem in subject.problems]
        return own + self.problems_of_clean

    def others(self, store: Store) -> tuple[float, bool]:
        """Return `others_share` of the clean steps, read once."""
        if self._others is None:
            self._others = others_share(store, self.rank, self.steps)
        return self._others

    def reduced(self) -> Account:
        """Return the account without the tables of its rank, which stay on disk."""
        timeline, replace = self.timeline, msgspec.structs.replace
        tables = {name: getattr(timeline, name).clear() for name in TABLES_OF_TIMELINE}
        return replace(
            self,
            timeline=replace(timeline, **tables, clean_stacks=None, _making=None, _hosts={}),
            subjects=[subject.reduced() for subject in self.subjects],
        )

    def measured(self) -> tuple[Spans, int]:
        """Return the times and the number of clean steps, or of the used windows if there are none."""
        if self.stretches:
            bounds = spans([s.timed_ns for s in self.stretches], [s.end_ns for s in self.stretches])
            return bounds, sum(s.count for s in self.stretches)
        if self.windows is None:
            return spans([], []), 0
        used = self.windows.used
        return Spans(self.windows.starts[used], self.windows.ends[used]), int(used.sum())


def account_of(
    store: Store,
    rank: int,
    machine: Machine,
    met: pl.DataFrame | None = None,
    kind: str | None = None,
) -> Account:
    """Return the account of one rank of a sounding, with the ceilings of `machine`.

    `met` has the arrival times of the peers of collectives (`Meetings.of`), if all ranks were recorded. The
    account covers steps of `kind`, or by default the kind with the most time.
    """
    timeline = read_timeline(store, rank, met=met)
    steps, every_wait = timeline.every, store.table("waits", rank).collect()
    devices = subjects(timeline, kind)
    asked, kind = kind is not None, kind or _kind(steps, devices)
    waits = input_waits(every_wait, timeline.ops)
    runs, left_out = undisturbed(stretches(steps, kind), first_profiled(steps), of_rows(waits))
    ahead = _ahead_of_device(runs, devices, asked)
    runs = [] if ahead else runs
    source, hooked = _source(timeline.steps, steps), Waits(every_wait, timeline.caller)
    result = Account(timeline, rank, kind, source, clean_step(runs), runs, devices, waits, steps, hooked)
    result.lengths_of_ranks = lengths_of_ranks(store)
    result.contended = len(store.ranks) == 1 and result.others(store)[1]
    for subject, work in zip(devices, works(store, rank, devices, machine, met), strict=True):
        _add(result, machine, subject, work, _name(store, timeline, subject.index))
    _add_regions_and_copies(result)
    result.abstained += _not_analysed(result, ahead, left_out)
    return result


def _ahead_of_device(runs: list[Stretch], devices: list[Subject], asked: bool) -> bool:
    """Return whether the length of the clean steps is unknown because the host runs ahead of the device.

    Steps of a kind that the user asked for (`asked`) need device boundaries: if other steps lie between them,
    their marks do not give their length.
    """
    busy = [busy_ms(subject.ledger) for subject in devices if subject.index is not None]
    unmeasured = bool(runs) and not runs[0].measured
    return ran_ahead(runs, max(busy, default=0.0)) or bool(asked and busy and unmeasured)


def _add_regions_and_copies(to: Account) -> None:
    kernels = to.timeline.kernels
    for subject, device in zip(to.subjects, to.devices, strict=True):
        own = kernels.filter(device=-1 if subject.index is None else subject.index)
        device.regions = regions(to.timeline.ops, own, subject.ledger.windows)
    if to.indices:
        first = to.subjects[0]
        to.copy_ms = copy_ms(kernels.filter(device=first.index), first.ledger.windows)


def _not_analysed(account: Account, ahead: bool, left_out: str) -> list[Abstained]:
    reasons = {
        "clean step": AHEAD_OF_DEVICE if ahead else "",
        f"work of {step_noun(account.kind)}s": (
            OTHER_SHAPES if shaped_elsewhere(account.steps, account.kind) else ""
        ),
        LATER: left_out,
        "batches of one size": mixed(account.steps, account.kind),
        "ledger": _on_threads(account) if account.subjects else _no_timeline(account.steps),
        "host times": _traced(account),
    }
    return [Abstained(what, why) for what, why in reasons.items() if why]


def _on_threads(account: Account) -> str:
    """Return why a ledger of the host's work has time without a cause; "" if one thread runs the steps."""
    others = len(account.timeline.beside)
    if not others or any(subject.index is not None for subject in account.subjects):
        return ""
    return (
        f"steps ran on {others + 1} threads: time in which none of them runs an operation has no cause, "
        "because waits for requests, locks and Python of other threads look alike"
    )


def _traced(account: Account) -> str:
    """Return how long the tracing of Python calls may take in a step; "" without."""
    calls, windows = account.timeline.about.facts.get(TRACED) or 0, account.windows
    if not calls or windows is None or not windows.used.any():
        return ""
    per_step = calls * windows.total_ns / int(windows.used.sum()) / max(account.timeline.length_ns, 1)
    low, high = (per_step * cost for cost in TRACING_US)
    return (
        f"the trace records Python stacks (with_stack), about {per_step:,.0f} calls per step; tracing them "
        f"takes {low / 1e3:.2g} to {high / 1e3:.2g} ms of the host's time, which is part of this step"
    )


def _no_timeline(steps: pl.DataFrame) -> str:
    count = steps.filter(pl.col("parent").is_null()).height
    if not 0 < count < SOON:
        return "no timeline was recorded"
    ran = f"{count} complete step{'s' if count > 1 else ''}"
    sooner = "--settle 3" if count >= ENOUGH else "--settle 0 --at 1"
    return (
        f"no timeline was recorded: the program ended after {ran}; let it run longer, or record it with "
        f"`{sooner}`"
    )


def _beyond(timeline: Timeline, windows: Windows) -> Iterator[str]:
    """Yield how much of a recording lies outside the windows of its repeated work, if it is much."""
    if not (timeline.steps["source"] == REPETITION).any():
        return
    covered_ns, length_ns = int((windows.ends - windows.starts).sum()), timeline.length_ns
    if covered_ns < MOSTLY * length_ns:
        yield (
            f"only {covered_ns / NS_PER_S:.3g} of the {length_ns / NS_PER_S:.3g} recorded seconds consist of "
            "repeated work, so the rest is in no window; mark steps to choose the windows"
        )


def _add(to: Account, machine: Machine, subject: Subject, work: pl.DataFrame, name: str) -> None:
    ledger, windows = subject.ledger, subject.ledger.windows
    for problem in subject.problems:
        problem.rank = to.rank
    to.abstained += [Abstained("windows", note) for note in (*windows.notes, *_beyond(to.timeline, windows))]
    device = Device(to.rank, subject.label, windows_of(ledger), None, [], None, name=name)
    device.windows += [_part(micro, windows) for micro in subject.micro]
    device.micro_ms = mean_by_place(subject.micro)
    to.devices.append(device)
    count = int(windows.used.sum())
    if not count:
        return
    device.total_ms = windows.total_ns / count / NS_PER_MS
    device.ledger = device.profiled_ledger = entries_of(ledger, work)
    if subject.index is not None:
        device.carried_in_ms = float(ledger.carried_in_ns[windows.used].mean()) / NS_PER_MS
        device.carried_out_ms = float(ledger.carried_out_ns[windows.used].mean()) / NS_PER_MS
    _communicate(to, device, machine, subject)
    if to.clean is not None:
        _observe(to, device, subject, to.clean)
    _bound(to, device, machine, subject.index)
    if subject.views is not None:
        device.shapes = subject.views.shapes
    device.categories = categories_of(device.ledger, subject.views)


def _communicate(to: Account, device: Device, machine: Machine, subject: Subject) -> None:
    """Set the device's communication within its used windows."""
    if subject.collectives is None or subject.collectives.is_empty():
        return
    windows = subject.ledger.windows
    used = Spans(windows.starts[windows.used], windows.ends[windows.used])
    ceilings, world = ceilings_of(machine, device.name), to.timeline.about.world
    device.communication = communication_of(subject.collectives, subject.computing, used, ceilings, world)
    if device.communication is not None:
        limits = bounds_of(machine, subject.index)
        if limits is not None and limits.link:
            at_their_size(device.ledger, device.communication.collectives, limits.link)
        device.communication.slowed_ms = sum(subject.slowed.values()) / len(used.starts) / NS_PER_MS


def _part(micro: Micro, windows: Windows) -> Window:
    step = int(windows.steps[micro.window])
    return Window(micro.start_ns, micro.end_ns, "micro-step", False, step, "it is a part of its step")


def _bound(to: Account, device: Device, machine: Machine, index: int | None) -> None:
    """Set the speed of light of the step and its utilisation (MFU and HFU)."""
    limits = bounds_of(machine, index)
    device.ceilings = limits.source if limits else ""
    if limits is None:
        device.no_ceilings = lack_of_limits(machine, index)
        to.abstained.append(Abstained(f"{device.device} at ceiling", why_no_limits(machine, index)))
    check_rates(device.ledger, limits, sheet_named({"name": device.name}))
    at_ceiling(device, limits)
    step_ms = to.clean.median_ms if to.clean else device.total_ms
    if step_ms:
        device.utilisation = utilisation(device.ledger, step_ms, limits, peaks_of(machine, index))


def _observe(to: Account, device: Device, subject: Subject, clean: Clean) -> None:
    """Set the profiling overhead and the clean step's ledger, and the mean ledger if steps are uneven."""
    windows, clean_ms, total_ms = subject.ledger.windows, clean.median_ms, device.total_ms or 0.0
    usual_ms = median((windows.ends - windows.starts)[windows.used]) / NS_PER_MS
    device.observer_ms, device.added_ms = clean_ms - total_ms, usual_ms - clean_ms
    device.ledger = _clean(to, device, subject, clean_ms, usual=True)
    if clean.uneven:
        device.mean_ledger = _clean(to, device, subject, clean.mean_ms, usual=False)
    to.problems_of_clean += _too_busy(device, clean_ms)
    share, uneven = device.added_ms / clean_ms, total_ms / usual_ms - 1
    why = []
    if abs(share) > LARGE:
        why.append((MADE if share > 0 else WERE).format(_change(share)))
        why += _outgrown(to) if share < 0 else []
    if abs(uneven) > LARGE and not clean.uneven:  # else the report shows the mean clean step
        why.append(f"the profiled steps are uneven: their mean is {_change(uneven)} than their median")
    to.abstained += [Abstained(f"profiling overhead of {device.device}", reason) for reason in why]


def _outgrown(to: Account) -> list[str]:
    """Return a note if clean steps grew, with the way to record later ones; else nothing."""
    rows = to.steps.filter(pl.col("parent").is_null(), phase="clean", kind=to.kind).drop_nulls("end_ns")
    rows = rows.sort("mark_ns")
    first, last = growth((rows["end_ns"] - rows["mark_ns"]).to_numpy() / NS_PER_MS)
    if not last:
        return []
    return [GREW.format(f"{first:.3g}", f"{last:.3g}", int(rows["step"][len(rows) // 2]))]


def _clean(to: Account, device: Device, subject: Subject, step_ms: float, usual: bool) -> list[LedgerRow]:
    """Return the ledger of a clean step of `step_ms`, with `usual` only from windows near the median.

    If the clean step is longer than the median window, the host was slower then; windows near it are used.
    Other programs lengthen some windows of a CPU by chance, so the mean step then uses usual ones, too. The
    extra time of long steps is unattributed then, even if the program causes it.
    """
    windows = subject.ledger.windows
    chosen = windows.used.copy()
    if to.clean is not None and (usual or (to.contended and subject.index is None)):
        lengths = (windows.ends - windows.starts)[windows.used]
        if subject.index is None:
            lengths = in_all_ranks(to.lengths_of_ranks, windows.steps[windows.used], lengths)
        chosen[windows.used] = typical(lengths, to.clean.median_ms * NS_PER_MS)
    rows = step_of(subject.ledger, chosen)
    ms, events = ({row: pair[i] for row, pair in rows.items()} for i in (0, 1))
    waits = to.waits.of_steps(to.stretches, usual)
    if subject.index is not None:
        idle = {cause: _waited(ms, cause) for cause in waits}
        before = to.waits.of_windows(windows.starts[chosen], windows.ends[chosen])
        waits = exposed(waits, before, idle)
    added = _added_in(subject, chosen, events)
    return clean_entries(Profiled(device.profiled_ledger, ms, events, added), waits, step_ms)


def _added_in(subject: Subject, chosen: Array, events: Mapping[RowKey, float]) -> Mapping[RowKey, float]:
    """Return the events per step whose recording lengthens each row.

    The profiler takes the first time when an op begins and the last when it ends, so that its own work
    lengthens the op's caller, or the Python before an outermost op.
    """
    if subject.nested is None:
        return events
    nested = subject.nested.filter(pl.col("window").is_in(np.flatnonzero(chosen).tolist()))
    calls = dict(nested.group_by("caller").len().iter_rows())
    steps = max(1, int(chosen.sum()))
    ops = {row: calls.get(row[1], 0) / steps for row in events if row[0] == Entry.OPS}
    return {**events, **ops}


def _waited(ms: Mapping[RowKey, float], cause: str) -> float:
    """Return the idle time of a cause that hooks time, without that of iterators which make batches."""
    rows = [(detail, value) for (entry, detail), value in ms.items() if entry == idle_entry(cause)]
    return sum(value for detail, value in rows if not makes_batches((cause, detail)))


def _too_busy(device: Device, clean_ms: float) -> list[Problem]:
    """Return a problem if the device works longer in the profiled step than the clean step takes, else []."""
    over = sum(-row.ms for row in device.ledger if row.entry == Entry.OVERHEAD)
    if over <= WORTH * clean_ms:
        return []
    text = (
        f"{device.device} is busy {over:.3g} ms longer in the profiled step than the clean step lasts: "
        "either the profiler slowed its kernels, or the profiled steps differ from the clean ones."
    )
    return [Problem("busy-beyond-clean", text, rank=device.rank)]


def _change(share: float) -> str:
    return f"{abs(share) * 100:.0f} % {'longer' if share > 0 else 'shorter'}"


def _kind(steps: pl.DataFrame, devices: list[Subject]) -> str:
    """Return the kind of step that the account covers: the ledger's, else that of the clean phase."""
    rows = steps.filter(pl.col("parent").is_null(), pl.col("phase") == "clean").drop_nulls("end_ns")
    clean = dominant(filled(rows["kind"], "step").to_list(), (rows["end_ns"] - rows["mark_ns"]).to_numpy())
    ledger = devices[0].ledger.windows.kind if devices else ""
    return clean or ledger if ledger in ("", HOST) else ledger


def _source(timeline: pl.DataFrame, steps: pl.DataFrame) -> str:
    """Return the first known source of step marks, "" if there is none."""
    known = pl.concat([timeline["source"], steps["source"]]).drop_nulls()
    return str(known[0]) if len(known) else ""


def _name(store: Store, timeline: Timeline, index: int | None) -> str:
    if index is not None:
        return timeline.about.devices.get(index, "")
    cpu = store.machine.get("host", {}).get("cpu", {})
    return str(cpu.get("model") or "")
