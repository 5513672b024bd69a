"""Intervals of a trace in Chrome's format: complete events (X), and pairs of begin and end (B, E)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from msgspec import field

from fathom.sounding.events.arrays import DAMAGED, ints, to_ns
from fathom.sounding.kineto.events import Event, ExactEvent
from fathom.sounding.kineto.stream import collected

_NAMES = {"process_name", "thread_name"}
_TEXTS = ("correlation_id", "step_num", "hlo_op", "kernel_details", "memcpy_details")
_SCHEMA = {
    "lane": pl.Int64, "name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64,
    **dict.fromkeys(_TEXTS, pl.String),
}  # fmt: skip
Lane = tuple[Any, Any]  # ids of a process and of its thread: numbers, or any text


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments that are read; all but the name are XProf's."""

    label: Any = field(default=None, name="name")
    correlation_id: Any = None
    step_num: Any = None
    hlo_op: Any = None
    kernel_details: Any = None
    memcpy_details: Any = None


class _Event(Event, gc=False):
    args: Args = Args()  # type: ignore[assignment]


class _ExactEvent(ExactEvent, gc=False):
    args: Args = Args()  # type: ignore[assignment]


class Intervals:
    """The intervals of a trace, and the names of its processes and threads (lanes)."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, int] = {}
        self.processes: dict[Any, str] = {}
        self.threads: dict[Lane, str] = {}
        self.unmatched = 0  # begins without an end, and ends without a begin
        self._frames: list[pl.DataFrame] = []
        self._open: defaultdict[int, list[tuple[int, bool, Event]]] = defaultdict(list)

    def add(self, events: list[Event]) -> None:
        """Add one block. Raises InexactError if the events' times must be read as text."""
        named = [event for event in events if event.ph == "M" and event.name in _NAMES]
        for event in named:
            label = str(event.args.label)[:200]  # type: ignore[attr-defined]
            if event.name == "process_name":
                self.processes[_id(event.pid)] = label
            else:
                self.threads[_id(event.pid), _id(event.tid)] = label
        complete = [event for event in events if event.ph == "X"]
        if complete:
            start, length = to_ns([event.ts for event in complete]), to_ns([event.dur for event in complete])
            self._frames.append(self._frame(complete, start.tolist(), length.tolist()))
        halves = [event for event in events if event.ph in ("B", "E")]
        if halves:
            for event, time in zip(halves, to_ns([event.ts for event in halves]).tolist(), strict=True):
                self._open[self._lane(event)].append((time, event.ph == "E", event))

    def table(self) -> pl.DataFrame:
        """Return all intervals, in columns of _SCHEMA; times that are not numbers are null."""
        return pl.concat(
            [*self._frames, *map(self._paired, self._open.values())] or [pl.DataFrame(schema=_SCHEMA)]
        )

    def _paired(self, halves: list[tuple[int, bool, Event]]) -> pl.DataFrame:
        """Return the begins of one lane with the ends that close them, innermost first."""
        begun: list[tuple[int, Event]] = []
        pairs: list[tuple[Event, int, int]] = []
        for time, ends, event in sorted(halves, key=lambda half: half[0]):
            if not ends:
                begun.append((time, event))
            elif begun:
                start, begin = begun.pop()
                pairs.append((begin, start, time - start))
            else:
                self.unmatched += 1
        self.unmatched += len(begun)
        return self._frame([p[0] for p in pairs], [p[1] for p in pairs], [p[2] for p in pairs])

    def _frame(self, events: list[Event], starts: list[int], lengths: list[int]) -> pl.DataFrame:
        ends = [None if DAMAGED in (a, b) else a + b for a, b in zip(starts, lengths, strict=True)]
        columns: dict[str, list[Any]] = {
            "lane": [self._lane(event) for event in events],
            "name": [event.name or None for event in events],
            "start_ns": [None if start == DAMAGED else start for start in starts],
            "end_ns": ends,
        }
        for name in _TEXTS:
            columns[name] = [_text(getattr(event.args, name)) for event in events]
        return pl.DataFrame(columns, schema=_SCHEMA)

    def _lane(self, event: Event) -> int:
        return self.lanes.setdefault((_id(event.pid), _id(event.tid)), len(self.lanes))

    def threads_of(self) -> dict[int, int]:
        """Return each lane's thread id, or the lane's index if ids are not unique."""
        ids = ints([tid for _, tid in self.lanes]).tolist() if self.lanes else []
        own = len(set(ids)) == len(ids) and all(0 <= number < 2**53 for number in ids)
        return {lane: ids[place] if own else lane for place, lane in enumerate(self.lanes.values())}


def read_intervals(path: Path) -> Intervals:
    """Read a trace of any size, plain or gzipped. Raises BadInputError if it is none."""
    return collected(path, Intervals, (_Event, _ExactEvent, Args))[0]


def _id(value: Any) -> Any:
    return value if isinstance(value, int | str) else str(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
