"""The source of signals: one rank's account and its tables, each read once."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import Account, Meetings, Step, Subject, first_uses
from fathom.analysis.causes import LAUNCH, OPTIMIZER_STEP, STEPS
from fathom.analysis.columns import distinct, filled
from fathom.analysis.communication import LateRank
from fathom.analysis.intervals import NOTHING, Spans, containing, covered, of_rows
from fathom.analysis.results import Device, Input, LedgerRow, Memory, Trial
from fathom.analysis.work import LINKED, NONE, Links, chosen, connect, rows_of
from fathom.machine.model import Gpu, Machine
from fathom.sounding import Facts, Store
from fathom.units import NS_PER_MS

PHASES = ["timeline", "attribution"]
_PHASE = pl.Enum(sorted(PHASES))  # sorts, groups and compares as numbers do
# The source of an op by the line that ran, where it is known.
RAN = pl.coalesce(
    pl.col("source").str.replace(r"\(\d+\):", pl.format("({}):", pl.col("line"))), pl.col("source")
)
BACKWARD = "autograd::"  # begins the names of what the engine evaluates
NO_TIMELINE = "no timeline with a whole step was recorded"
NO_DEVICE = "the program used no device"


class UnknownSignalError(Exception):
    """The recording does not contain the signal; the message is the reason."""


class Recorded(msgspec.Struct, dict=True):
    """One rank of a sounding, with the results of its examination so far."""

    store: Store
    machine: Machine
    account: Account
    step: Step
    feeding: Input | None = None
    memory: Memory | None = None
    tried: dict[str, Trial] = msgspec.field(default_factory=dict)  # by kind
    asked: str | None = None  # the kind of steps, if not the one that takes most time
    read: dict[str, Any] = msgspec.field(default_factory=dict)  # signals that were read already
    late: list[LateRank] = []  # ranks that others wait for
    every: list[Device] = []  # the devices of all ranks
    peers: Meetings | None = None  # the arrivals of all ranks at collectives
    accounts: list[Account] = []  # of all ranks; of a large job, only of the first ones

    @property
    def facts(self) -> Facts:
        """The rank's facts that no table holds."""
        return next((r.facts for r in self.store.manifest.ranks if r.rank == self.account.rank), {})

    @property
    def device(self) -> Device:
        """The first device (or processor). Raises UnknownSignalError if there is no ledger."""
        device = next(iter(self.account.devices), None)
        if device is None or not device.ledger:
            raise UnknownSignalError(NO_TIMELINE)
        return device

    @property
    def subject(self) -> Subject:
        """The first device (or processor) while it ran. Raises UnknownSignalError if there is none."""
        if not self.account.subjects:
            raise UnknownSignalError(NO_TIMELINE)
        return self.account.subjects[0]

    @property
    def ledger(self) -> list[LedgerRow]:
        """The ledger of the profiled step, which rules compare with records."""
        return self.device.profiled_ledger

    @property
    def clean_ledger(self) -> list[LedgerRow]:
        """The ledger of the step that gains refer to: the clean one, or the mean one if steps are uneven."""
        return self.device.mean_ledger or self.device.ledger

    @property
    def index(self) -> int:
        """The device's number. Raises UnknownSignalError on a processor."""
        index = self.subject.index if self.device else None
        if index is None:
            raise UnknownSignalError(NO_DEVICE)
        return index

    @property
    def gpu(self) -> Gpu:
        """The device in the inventory. Raises UnknownSignalError if it is not listed."""
        index = self.index
        gpu = next((g for g in self.machine.get("gpus") or [] if g.get("index") == index), None)
        if gpu is None:
            raise UnknownSignalError("the device is not in the recorded inventory of its machine")
        return gpu

    @cached_property
    def steps(self) -> int:
        """Number of steps over which the ledger is averaged."""
        windows = self.account.windows
        count = 0 if windows is None else int(windows.used.sum())
        if not count:
            raise UnknownSignalError(NO_TIMELINE)
        return count

    def per_step_ms(self, ns: float) -> float:
        """Convert nanoseconds in the recorded steps to milliseconds per step."""
        return ns / self.steps / NS_PER_MS

    def rows(self, name: str) -> pl.LazyFrame:
        """Return a table of this rank, with the rows of all phases."""
        return self.store.table(name, self.account.rank)

    def table(self, name: str) -> pl.DataFrame:
        """Return a table's rows of the timeline and attribution phases."""
        rows = self.rows(name).filter(pl.col("phase").is_in(PHASES))
        return rows.with_columns(pl.col("burst").fill_null(0), pl.col("phase").cast(_PHASE)).collect()

    @cached_property
    def ops(self) -> pl.DataFrame:
        """The ops. `source` names a function, and `ran` is `source` with the line that ran, if known."""
        return outside_closures(self.table("ops").with_columns(ran=RAN))

    @cached_property
    def calls(self) -> pl.DataFrame:
        return self.table("launches")

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Kernels of the ledger's device."""
        return self.table("kernels").filter(device=self.index)

    @cached_property
    def used(self) -> Spans:
        """The windows over which the ledger is averaged. Raises UnknownSignalError if there are none."""
        windows = self.account.windows
        if windows is None or not self.steps:
            raise UnknownSignalError(NO_TIMELINE)
        return Spans(windows.starts[windows.used], windows.ends[windows.used])

    @cached_property
    def busy(self) -> Spans:
        """The times in which the device was busy."""
        return of_rows(self.kernels)

    @cached_property
    def links(self) -> Links:
        """Links from each kernel to its ops; the account's links if they are complete."""
        known = self.subject.links
        if known is not None:
            ops, kernels = (self._of_phases(name) for name in ("ops", "kernels"))
            return chosen(known, ops, kernels)
        steps = self.rows("steps").collect()
        return connect(self.ops, self.calls, self.kernels, steps)

    def _of_phases(self, name: str) -> np.ndarray:
        """Return a mask of the rows that `table` returns; for kernels, among the device's linked kernels."""
        rows = self.rows(name)
        rows = rows.filter(LINKED, device=self.index) if name == "kernels" else rows
        return rows.select(pl.col("phase").is_in(PHASES).fill_null(False)).collect()["phase"].to_numpy()

    @cached_property
    def launching(self) -> pl.Series:
        """The threads that launch work."""
        return self.calls.filter(pl.col("api").str.contains(LAUNCH))["thread"].unique()

    @cached_property
    def own_calls(self) -> pl.DataFrame:
        """Calls of launching threads, because a loader's pinning thread may synchronise without harm."""
        return self.calls.filter(pl.col("thread").is_in(self.launching.implode()))

    @cached_property
    def first(self) -> Spans:
        """The times in which libraries and code of the timeline loaded for the first time."""
        if self.calls.is_empty():
            return NOTHING
        tables = (self.calls, self.kernels, self.ops)
        calls, kernels, ops = (rows.filter(phase="timeline") for rows in tables)
        return of_rows(first_uses(calls, kernels, ops))

    @cached_property
    def callers(self) -> np.ndarray:
        """The row of the op that made each call, or NONE."""
        return rows_of(self.ops, self.calls, "op")

    @cached_property
    def meets(self) -> np.ndarray:
        """Whether each op, or an op beneath it, called the runtime."""
        meeting = np.zeros(self.ops.height + 1, bool)  # NONE is the last
        rows = distinct(self.callers)
        while len(rows := rows[(rows != NONE) & ~meeting[rows]]):
            meeting[rows] = True
            rows = distinct(self.parents[rows])
        return meeting[:-1]

    @cached_property
    def parents(self) -> np.ndarray:
        """The row of each op's caller, or NONE."""
        return rows_of(self.ops, self.ops, "parent")

    def inside(self, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of the rows of the timeline that start in a used window."""
        return self.window(rows) >= 0

    def window(self, rows: pl.DataFrame, used: bool = True) -> pl.Series:
        """Return the index of the (used) window in which each row of the timeline starts, -1 for none."""
        windows = self.account.windows
        count = self.steps
        assert windows is not None and count
        chosen = windows.used | (not used)
        starts, ends = windows.starts[chosen], windows.ends[chosen]
        times = filled(rows["start_ns"], -1).to_numpy()
        place = np.maximum(np.searchsorted(starts, times, "right") - 1, 0)
        within = (times >= starts[place]) & (times < ends[place]) & (rows["phase"] == "timeline").to_numpy()
        return pl.Series(np.where(within, place, -1), dtype=pl.Int64)

    def loading(self, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of the rows of the timeline that begin in a first use."""
        begins = filled(rows["start_ns"], -1).to_numpy()
        return pl.Series(covered(self.first, begins, begins + 1) > 0) & (rows["phase"] == "timeline")

    def ahead(self, rows: pl.DataFrame) -> pl.Series:
        """Return a mask of the rows between mark and device window of a step alone in its burst.

        They belong to this step; if there were several steps, they would be in the previous window.
        """
        windows = self.account.windows
        times = filled(rows["start_ns"], -1).to_numpy()
        early = np.zeros(len(times), bool)
        if windows is not None:
            alone = windows.used & (np.bincount(windows.bursts)[windows.bursts] == 1)
            for start, lead in zip(windows.starts[alone], windows.start_leads[alone], strict=True):
                early |= (times >= start - lead) & (times < start)
        return pl.Series(early & (rows["phase"] == "timeline").to_numpy())

    @cached_property
    def paths(self) -> OpPaths:
        return OpPaths(self.ops, self.parents)


def outside_closures(ops: pl.DataFrame) -> pl.DataFrame:
    """Return the ops with each region of an optimizer's step cut to the part after its closure.

    Lightning computes the forward and the backward pass in a closure that the optimizer calls.
    """
    steps = ops.filter(pl.col("name").str.starts_with(OPTIMIZER_STEP)).drop_nulls("end_ns")
    backward = ops.filter(pl.col("name").str.starts_with(BACKWARD))
    within_steps = containing(of_rows(steps), backward["start_ns"].to_numpy()) >= 0
    backward = backward.filter(pl.Series(within_steps, dtype=pl.Boolean))  # none without a closure
    keys = ["phase", "burst"]
    within = steps.select(*keys, "id", "parent", "start_ns", "end_ns").join(
        backward.select(*keys, at="start_ns", closed="end_ns"), on=keys
    )
    within = within.filter(pl.col("at").is_between("start_ns", "end_ns"))
    if within.is_empty():
        return ops
    closures = within.group_by("id").agg(pl.col("parent").first(), pl.col("closed").max())
    inner = closures.rename({"id": "parent", "parent": "outer"})
    ops = ops.join(inner, on="parent", how="left", maintain_order="left")
    early = (pl.col("start_ns") < pl.col("closed")).fill_null(False)
    ops = ops.with_columns(parent=pl.when(early).then("outer").otherwise("parent")).drop("outer", "closed")
    ops = ops.join(closures.select("id", "closed"), on="id", how="left", maintain_order="left")
    return ops.with_columns(start_ns=pl.max_horizontal("start_ns", "closed")).drop("closed")


class OpPaths:
    """Names, source and module of ops and their callers; each op is looked up once."""

    def __init__(self, ops: pl.DataFrame, parents: np.ndarray) -> None:
        self._rows, self._parents = parents, parents.tolist()
        self._names = ops["name"].to_list()
        step = filled(ops["name"], "").str.contains(STEPS)
        self._shown = (ops["kind"].ne_missing("python") & ~step).to_list()
        region = pl.when(pl.lit(~step) & (ops["kind"] == "annotation")).then(pl.col("name"))
        self._ops = ops.select("source", "ran", "module", region=region)
        self._marks: dict[str, pl.Series] = {}
        self._found: dict[int, tuple[str, ...]] = {NONE: ()}

    def names(self, row: int) -> tuple[str, ...]:
        """Return the names from the outermost op to this one, without Python frames and regions of steps."""
        climb: list[int] = []
        while row not in self._found and len(climb) < len(self._parents):
            climb.append(row)
            row = self._parents[row]
        names = self._found.get(row, ())
        for climbed in reversed(climb):
            names = (*names, self._names[climbed] or "") if self._shown[climbed] else names
            self._found[climbed] = names
        return names

    def mark(self, what: str, row: int) -> str | None:
        """Return the nearest `source`, line that `ran`, `module` or annotated `region` of op and callers."""
        return self._marked(what)[row]

    def marks(self, what: str, rows: np.ndarray) -> pl.Series:
        """Return `mark` of each of `rows`, null if there is none."""
        return self._marked(what).gather(np.where(rows == NONE, len(self._rows), rows))

    def _marked(self, what: str) -> pl.Series:
        """Return the mark of each op, then null for NONE; each kind is made once."""
        if what not in self._marks:
            column, end = self._ops[what].extend_constant(None, 1), len(self._rows)
            known = np.append(column[:end].is_not_null().to_numpy(), True)
            place = np.append(np.where(known[:end], np.arange(end), self._rows), end)
            place[place == NONE] = end
            for _ in range(end.bit_length() + 1):  # each pass doubles the way to the marked caller
                going = np.flatnonzero(~known[place])
                place[going] = place[place[going]]
            place[~known[place]] = end
            self._marks[what] = column.gather(place)
        return self._marks[what]
