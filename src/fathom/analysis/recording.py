"""The timeline of one rank, with the columns that the ledger needs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.causes import LAUNCH, of_engine
from fathom.analysis.communication import met_on_host
from fathom.analysis.device import COLUMNS, detail, join_launches
from fathom.analysis.first_use import first_uses
from fathom.analysis.host import HostRecords, host_records
from fathom.analysis.intervals import Spans, of_rows, union
from fathom.analysis.kinds_by_batch import split_by_batch
from fathom.analysis.kinds_by_work import split_by_work
from fathom.analysis.loading import with_pace
from fathom.analysis.making import Making, makers
from fathom.analysis.peers import PIECE
from fathom.analysis.processor import Collectives
from fathom.analysis.sampled import Setting, rare_lines, samples_of
from fathom.analysis.short_steps import PLACED, ShortWaits, short_waits
from fathom.analysis.steps import EPOCH_START, stretches
from fathom.analysis.windows import HOST
from fathom.sounding import REPETITION, SILENCE, Rank, Store, hole_in

_OPS = ["id", "parent", "thread", "kind", "name", "start_ns", "end_ns", "inferred", "phase", "burst"]
_CALLS = ["correlation", "op", "thread", "api", "start_ns", "end_ns", "burst"]
_WAITS = ["thread", "cause", "detail", "start_ns", "end_ns", "burst"]
_STACKS = ["time_ns", "thread", "running", "call", "function", "source", "stack", "iterators", "burst"]
TIMES = (
    *("start_ns", "end_ns", "mark_ns", "device_ns", "device_end_ns", "time_ns"),
    *("launched", "arrived_ns"),
)
BESIDE = 0.1  # of the steps: a thread that marks as many runs steps, as those of a server's pool do
TABLES_OF_TIMELINE = ("steps", "ops", "calls", "kernels", "waits", "every", "stacks")


class Timeline(msgspec.Struct):
    """The tables of one rank in a phase that Kineto recorded; `kernels` are joined with their launches."""

    about: Rank
    steps: pl.DataFrame
    ops: pl.DataFrame
    calls: pl.DataFrame
    kernels: pl.DataFrame
    waits: pl.DataFrame
    every: pl.DataFrame  # steps of all phases
    stacks: pl.DataFrame  # sampled stacks of the thread that runs the steps
    meetings: pl.DataFrame | None = None  # collectives of host threads, with arrived_ns if peers are known
    lost: int = 0  # steps left out because the profiler lost the calls of their bursts
    holes: list[tuple[int, int]] = msgspec.field(default_factory=list)  # gaps in the recording
    clean_stacks: pl.DataFrame | None = None  # sampled in clean steps, if the profiled ones have too few
    _making: dict[str, Making] | None = None
    _hosts: dict[int, HostRecords] = msgspec.field(default_factory=dict)

    def on_shared_clock(self, shifts: Mapping[int, int]) -> Timeline:
        """Return the timeline on the clock that all ranks share; `shifts` maps bursts to its lead."""
        if not any(shifts.values()) or self.holes:
            return self
        lead = pl.col("burst").replace_strict(shifts, default=0, return_dtype=pl.Int64)
        moved = {
            name: rows.with_columns(pl.col(column) - lead for column in rows.columns if column in TIMES)
            for name in TABLES_OF_TIMELINE
            if name != "every" and not (rows := getattr(self, name)).is_empty()
        }
        return msgspec.structs.replace(self, **moved, _hosts={}, _making=None)

    @property
    def length_ns(self) -> int:
        """The time from the first record to the last."""
        tables = [table for table in (self.ops, self.calls, self.kernels) if len(table)]
        starts, ends = (
            np.concatenate([table[side].to_numpy() for table in tables]) for side in ("start_ns", "end_ns")
        )
        return int(ends.max() - starts.min())

    @property
    def devices(self) -> list[int]:
        """Indices of the devices with work, sorted."""
        return self.kernels["device"].drop_nulls().unique().sort().to_list()

    @property
    def caller(self) -> int | None:
        """The thread that runs the steps: that of the marks, the main thread, or the one with most ops."""
        marked = self.steps["thread"].drop_nulls()
        engine = self.ops.filter(of_engine())["thread"].unique()
        if len(marked):
            thread = int(marked.mode().min())  # type: ignore[arg-type]
            inferred = (self.steps["source"] == REPETITION).all()
            return self._beside(engine) or thread if inferred and thread in engine else thread
        own = self.ops.filter(~of_engine())["thread"].drop_nulls()
        if self.about.pid is not None and (own == self.about.pid).any():
            return self.about.pid
        return int(own.mode().min()) if len(own) else None  # type: ignore[arg-type]

    @property
    def beside(self) -> set[int]:
        """The threads other than the caller that run some of the steps."""
        marked = self.steps["thread"].drop_nulls()
        often = marked.value_counts().filter(pl.col("count") >= BESIDE * len(marked))
        return {int(thread) for thread in often["thread"]} - {self.caller}

    def _beside(self, engine: pl.Series) -> int | None:
        """The thread beside autograd's engine that launches most; None if the engine's thread is alone."""
        launching = self.calls.filter(
            pl.col("api").str.contains(LAUNCH), ~pl.col("thread").is_in(engine.implode())
        )
        threads = launching["thread"].drop_nulls().mode()
        return int(threads.min()) if len(threads) else None  # type: ignore[arg-type]

    def host(self, bursts: np.ndarray) -> dict[int, HostRecords]:
        """Return the host's records of each burst in `bursts`."""
        wanted = sorted(set(bursts.tolist()))
        if not self._hosts.keys() >= {*wanted}:
            self._read_hosts([burst for burst in wanted if burst not in self._hosts])
        return {burst: self._hosts[burst] for burst in wanted}

    def _read_hosts(self, bursts: list[int]) -> None:
        caller, beside, setting, rare = self.caller, self.beside, self.setting, rare_lines(self.stacks)
        collectives = self.collectives
        for burst in bursts:
            ops, calls, waits, steps = (_of(t, burst) for t in (self.ops, self.calls, self.waits, self.steps))
            marked = steps.drop_nulls("thread")
            marks = pl.concat([marked["mark_ns"], marked["end_ns"]]).drop_nulls().to_numpy()
            first = first_uses(calls, _of(self.kernels, burst), ops)
            records = host_records(ops, calls, waits, marks, caller, self.about.pid, first)
            stacks = _of(self.stacks, burst)
            records.samples = samples_of(stacks, setting, self.making, marks, rare, collectives.running)
            records.waits = self._short_waits(steps)
            records.lines_of_ops = setting.engine
            records.beside = beside
            self._hosts[burst] = records

    def _short_waits(self, profiled: pl.DataFrame) -> ShortWaits | None:
        """Return the waits of clean steps like the `profiled` ones; None if those have enough samples."""
        named = self.steps.filter(pl.col("parent").is_null())["kind"].fill_null("step")
        kinds = named.str.strip_suffix(EPOCH_START).unique().to_list()
        if self.clean_stacks is None or len(kinds) != 1:
            return None
        own = self.clean_stacks.filter(thread=self.caller)
        setting = msgspec.structs.replace(self.setting, in_ops=True)
        samples = samples_of(own, setting, makers(own), rare=rare_lines(own))
        clean = stretches(self.every, kinds[0])
        complete = profiled.filter(pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns"))
        bounds = Spans(complete["mark_ns"].to_numpy(), complete["end_ns"].to_numpy())
        return short_waits(samples, clean, bounds, self.stacks.height) if samples and clean else None

    @property
    def collectives(self) -> Collectives:
        """The times in which host threads ran collectives, and in which all peers had arrived."""
        if self.meetings is None:
            return Collectives()
        met = self.meetings.drop_nulls("arrived_ns")
        moving = union(met["arrived_ns"].to_numpy(), met["end_ns"].to_numpy())
        return Collectives(of_rows(self.meetings), moving)

    @property
    def making(self) -> dict[str, Making]:
        """The iterators that make batches in the thread that runs the steps, by the text of the stack."""
        if self._making is None:
            self._making = makers(self.stacks)
        return self._making

    @property
    def setting(self) -> Setting:
        """Facts about the program that decide between causes of a sample."""
        kinds = self.steps["kind"].drop_nulls()
        training = bool(kinds.str.starts_with("train").any())
        return Setting(training, (self.about.world or 1) > 1, bool(self.devices))


def read_timeline(
    store: Store, rank: int, phase: str = "timeline", met: pl.DataFrame | None = None
) -> Timeline:
    """Read the timeline of one rank; without complete steps, each burst counts as one step.

    `met` has the arrival times of the peers of collectives (`Meetings.of`).
    """
    about = next(r for r in store.manifest.ranks if r.rank == rank)
    calls = _read(store, rank, phase, "launches", _CALLS)
    kernels = join_launches(_read(store, rank, phase, "kernels", COLUMNS), calls)
    if met is not None:
        kernels = kernels.join(met, on=PIECE, how="left", nulls_equal=True, maintain_order="left")
    ops, waits = _read(store, rank, phase, "ops", _OPS), _read(store, rank, phase, "waits", _WAITS)
    waits = with_pace(waits, store, rank)
    every, lost = _not_lost(_of_the_program(store.table("steps", rank).collect()), phase, calls)
    if phase == "timeline":
        work = _ran(ops, kernels)
        every = split_by_work(split_by_batch(every, work), work)
    steps = every.filter(phase=phase)
    stacks = _read(store, rank, phase, "stacks", _STACKS)
    meetings = met_on_host(ops, met) if kernels.is_empty() else None
    timeline = Timeline(about, steps, ops, calls, kernels, waits, every, stacks, meetings, lost)
    alone = kernels.is_empty() and (about.world or 1) == 1
    if phase == "timeline" and alone and stacks.height < PLACED:
        timeline.clean_stacks = _read(store, rank, "clean", "stacks", _STACKS)
    if any(problem.what == SILENCE for problem in store.manifest.problems):
        timeline.holes = _holes(timeline)
    complete = every.filter(pl.col("parent").is_null(), pl.col("end_ns").is_not_null())
    if complete.filter(pl.col("phase").is_in([phase, "clean"])).is_empty():  # else clean steps are no match
        timeline.steps = _host_steps(timeline)
    return timeline


def _not_lost(steps: pl.DataFrame, phase: str, calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the steps without those of bursts that lack runtime calls, and the number of steps dropped.

    If a device is used, a burst ends with a call that waits for it. If that call is missing, CUPTI recorded
    nothing. Nothing is dropped if no burst of the phase has calls.
    """
    burst = pl.col("burst").fill_null(0)
    lost = pl.col("phase").eq_missing(phase) & ~burst.is_in(calls["burst"].unique().to_list())
    kept = steps.filter(~lost)
    nothing = calls.is_empty() or kept.filter(phase=phase).is_empty()
    return (steps, 0) if nothing else (kept, steps.height - kept.height)


def _ran(ops: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels (or else host ops) of steps, with their name (`what`) and launch time (`at`)."""
    if len(kernels):
        return kernels.drop_nulls("launched").with_columns(at="launched", what=detail())
    return ops.filter(pl.col("kind") == "op").with_columns(at="start_ns", what="name")


def _of_the_program(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps; the thread is null for the window that the recorder marked."""
    ours = pl.col("source") == HOST
    return steps.with_columns(thread=pl.when(ours.fill_null(False)).then(None).otherwise("thread"))


def _read(store: Store, rank: int, phase: str, table: str, columns: list[str]) -> pl.DataFrame:
    rows = store.table(table, rank).filter(phase=phase).select(columns)
    return rows.with_columns(pl.col("burst").fill_null(0)).collect()


def _holes(timeline: Timeline) -> list[tuple[int, int]]:
    """Return the gaps in the recording, at most one per burst; between bursts there is nothing to record."""
    records = [timeline.ops.filter(pl.col("kind") == "op"), timeline.calls, timeline.kernels]
    bursts = pl.concat([table["burst"] for table in records]).unique().to_list()
    holes = (hole_in(_of(table, burst) for table in records) for burst in bursts)
    return [hole for hole in holes if hole]


def _of(table: pl.DataFrame, burst: int) -> pl.DataFrame:
    return table.filter(pl.col("burst") == burst)


def _host_steps(timeline: Timeline) -> pl.DataFrame:
    """Return one step per burst, from the host's first record to its last (or else the device's)."""
    times = ["burst", "start_ns", "end_ns"]
    host = pl.concat([timeline.ops.select(times), timeline.calls.select(times)])
    records = timeline.kernels.select(times) if host.is_empty() else host
    extent = records.group_by("burst").agg(mark_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max())
    step = extent.sort("burst").with_row_index("step").with_columns(pl.col("step").cast(pl.Int64))
    columns = {"kind": HOST, "source": HOST, "phase": "timeline"}
    missing = {name: kind for name, kind in timeline.steps.schema.items() if name not in step.columns}
    return step.with_columns(
        pl.lit(columns.get(name), dtype=kind).alias(name) for name, kind in missing.items()
    ).select(timeline.steps.columns)
