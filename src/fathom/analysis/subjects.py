"""The ledgers of a rank: one per device that it used, or that of its processor if it used none."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import polars as pl

from fathom.analysis.communication import (
    collectives_of,
    host_collectives,
    slowed_by_collectives,
    slowed_on_host,
)
from fathom.analysis.device import detail, device_work
from fathom.analysis.entries import Entry
from fathom.analysis.integrity import check_device, check_processor, check_timeline
from fathom.analysis.intervals import NOTHING, Spans, of_rows
from fathom.analysis.ledger import Ledger, device_ledger
from fathom.analysis.micro import Micro, divided, micro_windows
from fathom.analysis.peers import PIECE
from fathom.analysis.processor import nested_in, not_waiting, processor_ledger
from fathom.analysis.recording import Timeline, read_timeline
from fathom.analysis.results import SlowStep
from fathom.analysis.rows import entries_of
from fathom.analysis.views import Views, views_of
from fathom.analysis.windows import HOST, Boundary, base, make_windows
from fathom.analysis.work import op_work
from fathom.analysis.work.families import work_by_family, works_in_windows
from fathom.analysis.work.links import LINKED, Links, connect
from fathom.machine import Limits, bounds_of
from fathom.machine.model import Machine
from fathom.sounding import Problem, Store
from fathom.units import NS_PER_MS

CPU = "cpu"
_ENTRIES = {
    "entry": pl.String, "ns": pl.Int64, "rank": pl.Int64, "device": pl.String, "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}  # fmt: skip
_NOT_OF_WORK = ["module", "source", "rank"]  # columns of ops that do not affect FLOPs


class Subject(msgspec.Struct):
    """One device, or the processor (index None), with its ledger and the problems of that ledger."""

    index: int | None
    ledger: Ledger
    problems: list[Problem]
    micro: list[Micro]
    usual: int | None = None  # the stream with the most compute time
    links: Links | None = None  # from its LINKED kernels to the ops; None if ops were left out
    collectives: pl.DataFrame | None = None  # its communication
    slowed: dict[str, float] = {}  # ns that families or ops take longer beside collectives, in used windows
    computing: Spans = NOTHING  # time with compute kernels; of a processor, time not spent waiting for peers
    views: Views | None = None  # of its work by category and by shapes; None for a processor
    nested: pl.DataFrame | None = None  # a processor's ops that other ops call, see `nested_in`

    @property
    def label(self) -> str:
        """`cuda:0` or `cpu`."""
        return label(self.index)

    def reduced(self) -> Subject:
        """Return the subject without the rows of its ledger, its links and its collectives."""
        rows, own = self.ledger.rows.clear(), self.ledger.own.clear()
        ledger = msgspec.structs.replace(self.ledger, rows=rows, own=own)
        return Subject(self.index, ledger, self.problems, self.micro, self.usual)


def label(index: int | None) -> str:
    """Return the name of a device."""
    return CPU if index is None else f"cuda:{index}"


def gpu_name(machine: Machine, index: int | None) -> str:
    """Return the model of the GPU with this index in a machine's inventory; "" if it is unknown."""
    gpus = (gpu for gpu in machine.get("gpus") or [] if gpu.get("index") == index)
    return next((str(gpu.get("name") or "") for gpu in gpus), "")


def subjects(timeline: Timeline, kind: str | None = None) -> list[Subject]:
    """Return a rank's ledgers, over steps of `kind` (by default of the most time); [] without a timeline."""
    if timeline.steps.is_empty():
        return []
    every = list(_devices(timeline, kind)) or [_processor(timeline, kind)]
    every[0].problems[:0] = check_timeline(timeline.lost)
    return every


def window_entries(store: Store) -> pl.DataFrame:
    """Return the ledger of every window: rank, device (`cuda:0`), start_ns, end_ns, entry, ns."""
    parts = [
        subject.ledger.rows.group_by("window", "entry", maintain_order=True)
        .agg(pl.col("ns").sum())
        .select(
            "entry", "ns", rank=pl.lit(rank, pl.Int64), device=pl.lit(subject.label),
            start_ns=pl.col("window").replace_strict(dict(enumerate(subject.ledger.windows.starts.tolist()))),
            end_ns=pl.col("window").replace_strict(dict(enumerate(subject.ledger.windows.ends.tolist()))),
        )
        for rank in store.ranks
        for subject in subjects(read_timeline(store, rank))
        if len(subject.ledger.rows)
    ]  # fmt: skip
    return pl.concat(parts) if parts else pl.DataFrame(schema=_ENTRIES)


def _devices(timeline: Timeline, kind: str | None) -> Iterator[Subject]:
    for index in timeline.devices:
        work = device_work(timeline.kernels.filter(device=index))
        boundary = Boundary.of(work)
        windows = make_windows(timeline.steps, boundary, kind, timeline.holes)
        ledger = device_ledger(work, windows, timeline.host(windows.bursts))
        asked = timeline.kernels.filter(device=index).select(
            "burst", at=pl.coalesce("launched", "start_ns"), ns=pl.col("end_ns") - pl.col("start_ns")
        )
        micro = micro_windows(divided(timeline.steps, asked), windows, boundary)
        yield Subject(index, ledger, check_device(work, ledger, label(index)), micro, work.usual_stream)


def _processor(timeline: Timeline, kind: str | None) -> Subject:
    boundary = Boundary.of(None)
    windows = make_windows(timeline.steps, boundary, kind, timeline.holes)
    host = timeline.host(windows.bursts)
    collectives = timeline.collectives
    ledger = processor_ledger(timeline.ops, windows, host, collectives)
    outermost = timeline.ops.filter(pl.col("kind") == "op", pl.col("parent").is_null())
    asked = outermost.select("burst", at="start_ns", ns=pl.col("end_ns") - pl.col("start_ns"))
    micro = micro_windows(divided(timeline.steps, asked), windows, boundary)
    problems = check_processor(timeline.calls, ledger, CPU)
    nested = nested_in(timeline.ops, windows)
    computing = not_waiting(timeline.ops, windows, host, collectives)
    return Subject(None, ledger, problems, micro, computing=computing, nested=nested)


def works(
    store: Store,
    rank: int,
    subjects: list[Subject],
    machine: Machine,
    met: pl.DataFrame | None = None,
) -> list[pl.DataFrame]:
    """Return the work of each subject's entries by name (kernel family, direction of copies, or op).

    The columns are those of `work_by_family` or `op_work`. `met` has the arrival times of the peers of
    collectives (`Meetings.of`).
    """
    if not subjects:
        return []
    ops = store.table("ops", rank).drop(_NOT_OF_WORK).collect()
    calls = store.table("launches", rank).filter(LINKED).collect()
    steps = store.table("steps", rank).collect()
    bursts = shaped_elsewhere(steps, subjects[0].ledger.windows.kind)
    foreign = ((pl.col("phase") == "attribution") & pl.col("burst").is_in(bursts)).fill_null(False)
    if bursts:
        ops, steps = ops.filter(~foreign), steps.filter(~foreign)
    bounds = [bounds_of(machine, subject.index) for subject in subjects]
    tables = ops, calls, steps
    return [
        _work(store, rank, subject, limits, tables, met, not bursts)
        for subject, limits in zip(subjects, bounds, strict=True)
    ]


def shaped_elsewhere(steps: pl.DataFrame, kind: str) -> list[int]:
    """Return the bursts that recorded shapes of another kind of step, such as prefill instead of decoding."""
    if kind in ("", HOST):
        return []
    other = pl.col("kind").str.split("+").list.first() != base(kind)
    rows = steps.filter(pl.col("parent").is_null(), other, phase="attribution")
    return rows["burst"].drop_nulls().unique().to_list()


def _work(
    store: Store,
    rank: int,
    subject: Subject,
    limits: Limits | None,
    tables: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame],
    met: pl.DataFrame | None,
    all_ops: bool,
) -> pl.DataFrame:
    """Return the work of one subject; `tables` are ops, calls and steps; `all_ops` if no op was left out."""
    ops, calls, steps = tables
    windows = subject.ledger.windows
    bounds = pl.DataFrame({"start_ns": windows.starts, "end_ns": windows.ends, "used": windows.used})
    used = Spans(windows.starts[windows.used], windows.ends[windows.used])
    if subject.index is None:
        subject.collectives = host_collectives(ops, steps, met)
        if not subject.collectives.is_empty():
            subject.slowed = slowed_on_host(ops, steps, used)
        return op_work(ops, bounds, steps, limits).with_columns(entry=pl.lit(Entry.OPS))
    rows = store.table("kernels", rank).filter(LINKED, device=subject.index)
    kernels = rows.with_columns(family=detail()).collect()
    if met is not None:
        kernels = kernels.join(met, on=PIECE, how="left", nulls_equal=True, maintain_order="left")
    links = connect(ops, calls, kernels, steps)
    subject.links = links if all_ops else None
    subject.collectives = collectives_of(kernels, links, ops)
    subject.computing = of_rows(kernels.filter(kind="compute", phase="timeline"))
    if not subject.collectives.is_empty():
        subject.slowed = slowed_by_collectives(kernels, links, ops, used)
    each = works_in_windows(ops, calls, kernels, bounds, steps, limits, links)
    subject.views = views_of(each, ops, links.parent, int(windows.used.sum()))
    return work_by_family(each, bounds).rename({"family": "name"})


SLOW = "slow"  # phase


def slow_steps(store: Store, rank: int) -> list[SlowStep]:
    """Return the slowest step of each burst of `fathom run --on-slow-step`, per device, with its ledger."""
    if store.table("ops", rank).filter(phase=SLOW).head(1).collect().is_empty():
        return []
    timeline = read_timeline(store, rank, SLOW)
    recorded = timeline.steps.filter(pl.col("burst").is_in(timeline.ops["burst"].unique().to_list()))
    complete = recorded.filter(pl.col("parent").is_null()).drop_nulls("end_ns")
    slowest = complete.sort(pl.col("end_ns") - pl.col("mark_ns"), descending=True)
    result = []
    for step in slowest.unique("burst", keep="first", maintain_order=True).iter_slices(1):
        timeline.steps = step
        result += [_slow(rank, step["step"][0], subject) for subject in subjects(timeline)]
    return result


def _slow(rank: int, step: int, subject: Subject) -> SlowStep:
    total = subject.ledger.windows.total_ns / NS_PER_MS
    return SlowStep(rank, step, subject.label, total, entries_of(subject.ledger, None))
