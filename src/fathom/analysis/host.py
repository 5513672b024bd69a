"""The activity of each host thread, as disjoint sets of time by cause."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import polars as pl

from fathom.analysis import causes
from fathom.analysis.entries import ALIASES, PRECEDENCE, Entry
from fathom.analysis.intervals import NOTHING, Array, Spans, merge, of_rows, spans, subtract
from fathom.analysis.sampled import DISPATCHING, PYTHON, Label, Samples
from fathom.analysis.short_steps import ShortWaits

WAITS_NS = 1_000_000  # a copy begins within microseconds, unless it waits for other work
DETAILS = 8  # a cause with more different details is shown without them


class HostRecords(msgspec.Struct):
    """The host's records of one burst; every table has thread, start_ns and end_ns.

    `known` also has cause and detail. `ops` are framework ops, `calls` are runtime calls. `python` holds the
    threads with Python-level records, `autograd` the threads of autograd's engine. `caller` is the thread
    that runs the steps; `beside` are others that run steps too, as in a server with a pool of threads.
    """

    known: pl.DataFrame
    ops: pl.DataFrame
    calls: pl.DataFrame
    python: set[int]
    autograd: set[int]
    caller: int | None
    extent: dict[int, tuple[int, int]]  # first and last event of each thread
    samples: Samples | None = None  # stacks of the caller, if they were sampled
    waits: ShortWaits | None = None  # of the caller, if its steps are too short for samples of each
    lines_of_ops: bool = True  # whether samples name the lines that ops are dispatched from
    first: list[tuple[str, Spans]] = msgspec.field(
        default_factory=list
    )  # first use of all threads, by detail
    copying: Spans = NOTHING  # long calls that copy
    beside: set[int] = msgspec.field(default_factory=set)
    _own: dict[int, list[tuple[Label, Spans]]] = msgspec.field(default_factory=dict)
    _recorded: dict[int, list[tuple[Label, Spans]]] = msgspec.field(default_factory=dict)
    _began: dict[int | None, Array] = msgspec.field(default_factory=dict)

    def activity(self, thread: int | None) -> list[tuple[Label, Spans]]:
        """Return the activity of `thread` by cause and detail, as disjoint times.

        A backward pass runs on the threads of autograd's engine while its caller waits, so they form a team:
        while `thread` has no record, the records of the other threads count. Time without a record counts as
        Python if the thread runs Python.
        """
        if thread is None:
            return []
        if thread in self._own:
            return self._own[thread]
        team = self.autograd | ({self.caller} if self.caller is not None else set())
        others = sorted(team - {thread}, key=lambda t: t != self.caller) if thread in team else []
        labelled: list[tuple[Label, Spans]] = []
        taken = NOTHING
        for member in [thread, *others]:
            for label, times in self._records(member):
                left = subtract(times, taken)
                if len(left.starts):
                    labelled.append((label, left))
                    taken = merge(taken, left)
        runs = subtract(self._running_python(thread), taken)
        labelled = [*labelled, ((PYTHON, ""), runs)]
        self._own[thread] = [
            part for label, times in labelled for part in self._by_line(thread, label, times)
        ]
        return self._own[thread]

    @property
    def joined(self) -> HostRecords:
        """The records with those of all threads that run steps as one team.

        Then no time without a record counts as Python: the threads wait for requests, locks and each other.
        """
        if not self.beside:
            return self
        team = self.autograd | self.beside
        return msgspec.structs.replace(self, autograd=team, python=set(), _own={}, _began={})

    def _by_line(self, thread: int, label: Label, times: Spans) -> list[tuple[Label, Spans]]:
        """Split the time of Python and of dispatching by the lines and causes of the nearest samples."""
        runner = self.caller if thread in self.autograd else thread
        parts, python = [(label, times)], label[0] == PYTHON
        if self.samples and label[0] in (PYTHON, DISPATCHING) and runner == self.samples.thread:
            parts = self.samples.split(times, label[0], python or self.lines_of_ops)
        return self.waits.place(parts) if self.waits and python and runner == self.waits.thread else parts

    def began(self, thread: int | None) -> Array:
        """Return the sorted start times of ops and calls of `thread`, or of its whole team (`activity`)."""
        team = self.autograd | {self.caller}
        threads = [member for member in (team if thread in team else {thread}) if member is not None]
        if thread not in self._began:
            tables = (self.ops, self.calls)
            starts = [t.filter(pl.col("thread").is_in(threads))["start_ns"].to_numpy() for t in tables]
            self._began[thread] = np.sort(np.concatenate(starts))
        return self._began[thread]

    def _records(self, thread: int) -> list[tuple[Label, Spans]]:
        """Return the thread's own records by cause, in order of precedence; they may overlap."""
        if thread not in self._recorded:
            self._recorded[thread] = self._read(thread)
        return self._recorded[thread]

    def _read(self, thread: int) -> list[tuple[Label, Spans]]:
        mine = self.known.filter(pl.col("thread") == thread)
        records = []
        for (cause, detail), rows in mine.group_by("cause", "detail", maintain_order=True):
            records.append(((str(cause), str(detail)), of_rows(rows)))
        records.append(((DISPATCHING, ""), merge(*(_of(t, thread) for t in (self.ops, self.calls)))))
        return sorted(records, key=lambda record: _rank(record[0][0]))

    def _running_python(self, thread: int) -> Spans:
        """Return the time from first to last record of a thread that runs Python; empty for other threads."""
        runner = self.caller if thread in self.autograd else thread
        if runner is None or runner not in self.python or runner not in self.extent:
            return NOTHING
        first, last = self.extent[runner]
        return spans([first], [last]) if last > first else NOTHING


def _rank(cause: str) -> int:
    """Return the precedence of a cause; unknown causes come first because they were recorded on purpose."""
    return PRECEDENCE.index(cause) if cause in PRECEDENCE else -1


def _of(table: pl.DataFrame, thread: int) -> Spans:
    return of_rows(table.filter(pl.col("thread") == thread))


def host_records(
    ops: pl.DataFrame,
    calls: pl.DataFrame,
    waits: pl.DataFrame,
    marks: Array,
    caller: int | None,
    pid: int | None,
    first: pl.DataFrame | None = None,
) -> HostRecords:
    """Return the records of one burst. `ops` needs kind and name, `calls` api, `waits` cause and detail.

    `first` has the times of first use, with the columns of `first_uses`.

    Inferred ops were recorded in other steps. They show when the framework dispatched, but not the length of
    regions with a cause.
    """
    measured = ops.filter(~pl.col("inferred").fill_null(False)) if "inferred" in ops.columns else ops
    regions = _named(measured, "name", causes.region_cause, pl.lit(""))
    known = pl.concat([_waits(waits), regions, _named(calls, "api", causes.api_cause, pl.col("api"))])
    if first is not None and len(first):
        loads = known["cause"] == Entry.FIRST_USE.cause  # named by their op instead
        known = pl.concat([known.filter(~loads), first.select(*_TIMES, cause=_FIRST, detail="detail")])
    known = _few_details(known)
    framework = ops.filter(pl.col("kind") == "op")
    autograd = set(_threads(framework.filter(causes.of_engine()))) - {caller}
    python = (
        set(_threads(_python_records(ops))) | set(_threads(waits)) | {pid, caller if len(marks) else None}
    )
    return HostRecords(
        known,
        framework.select(_TIMES),
        calls.select(_TIMES),
        {thread for thread in python if thread is not None},
        {thread for thread in autograd if thread is not None},
        pid if caller is None else caller,
        _extent([ops, calls, waits], marks, caller),
        copying=of_rows(_long_copies(calls)),
        first=[
            (str(detail), of_rows(rows))
            for (detail,), rows in known.filter(cause=Entry.FIRST_USE.cause).group_by(
                "detail", maintain_order=True
            )
        ],
    )


def _long_copies(calls: pl.DataFrame) -> pl.DataFrame:
    took = pl.col("end_ns") - pl.col("start_ns")
    return calls.filter(pl.col("api").str.contains(causes.COPIES), took >= WAITS_NS)


_FIRST = pl.lit(Entry.FIRST_USE.cause)
_TIMES = ["thread", "start_ns", "end_ns"]


def _named(
    table: pl.DataFrame, column: str, cause: Callable[[str], str | None], detail: pl.Expr
) -> pl.DataFrame:
    """Return the rows whose name indicates a cause, with that cause and `detail`."""
    names = table[column].unique().drop_nulls().to_list()
    causes = {name: why for name in names if (why := cause(name))}
    shown = pl.col(column).replace_strict(causes, default=None, return_dtype=pl.String)
    return table.filter(pl.col(column).is_in(list(causes))).select(*_TIMES, cause=shown, detail=detail)


def _waits(waits: pl.DataFrame) -> pl.DataFrame:
    """Return recorded waits, without details if regions show their cause too, so that both share an entry."""
    cause = pl.col("cause").replace(ALIASES)
    detail = (
        pl.when(cause.is_in(list(causes.REGIONS))).then(pl.lit("")).otherwise(pl.col("detail").fill_null(""))
    )
    return waits.select(*_TIMES, cause=cause, detail=detail)


def _few_details(known: pl.DataFrame) -> pl.DataFrame:
    many = pl.col("detail").n_unique().over("cause") > DETAILS
    return known.with_columns(detail=pl.when(many).then(pl.lit("")).otherwise(pl.col("detail")))


def _python_records(ops: pl.DataFrame) -> pl.DataFrame:
    native = pl.col("name").str.contains(causes.NATIVE_REGION.pattern)
    return ops.filter((pl.col("kind") == "python") | ((pl.col("kind") == "annotation") & ~native))


def _threads(table: pl.DataFrame) -> list[int | None]:
    return table["thread"].unique().to_list()


def _extent(tables: list[pl.DataFrame], marks: Array, caller: int | None) -> dict[int, tuple[int, int]]:
    both = pl.concat([table.select(_TIMES) for table in tables]).drop_nulls("thread").group_by("thread")
    rows = both.agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    extent = {thread: (first, last) for thread, first, last in rows.iter_rows()}
    if caller is not None and len(marks):
        first, last = extent.get(caller, (int(marks.min()), int(marks.max())))
        extent[caller] = (min(first, int(marks.min())), max(last, int(marks.max())))
    return extent
