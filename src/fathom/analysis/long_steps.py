"""Clean steps that take far longer than usual: their frequency, cost, and place in the program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.counted import bins_of, like
from fathom.analysis.intervals import Array
from fathom.analysis.kinds_by_work import interval_of
from fathom.analysis.making import LIBRARY
from fathom.analysis.results import LongSteps, Place
from fathom.analysis.steps import stretches
from fathom.sounding import Store
from fathom.timing import weighted_quantile
from fathom.units import NS_PER_MS

LONG = 3.0  # a step is long from this multiple of the usual one on
LEAST_SHARE = 0.05  # least extra time of long steps, as a share of the time of all clean steps
MOST = 0.2  # of the steps: more are not rare
ENOUGH = 20  # clean steps
MOSTLY = 0.8  # a call accounts for the extra time if it has this share of it
SHARED = 0.02  # usual steps run a call too if they have this share of its time in long steps
WORTH, MOST_PLACES = 0.1, 3
FEW = 5  # fewest samples that give a place
_FRAME = re.compile(r"^(?P<function>.*) \((?P<source>.*)\)$", re.S)

Path = tuple[str, ...]  # frames, outermost first


class Timed(msgspec.Struct):
    """Clean steps between neighbouring boundaries, as arrays of equal length."""

    ns: Array  # per step
    count: Array  # steps: a device may be timed only every few steps
    start: Array
    end: Array  # by the host's marks
    number: Array  # step number of the first step
    usual_ns: float  # duration of the median step

    @property
    def extra_ns(self) -> Array:
        """Time of each entry beyond the time of as many usual steps, in ns."""
        return (self.ns - self.usual_ns) * self.count

    @property
    def long(self) -> Array:
        """Whether each entry holds a long step."""
        return self.extra_ns >= (LONG - 1) * self.usual_ns


def long_steps_of(store: Store, rank: int, steps: pl.DataFrame, kind: str) -> LongSteps | None:
    """Return the rare long steps among the clean steps of `kind`; None if there are none worth reporting.

    A step is long if it takes LONG times the median. Long steps are worth reporting if their extra time is at
    least LEAST_SHARE of the time of all clean steps. `places` come from samples of the host's stacks in long
    steps, minus those in usual steps; they are empty without enough samples.
    """
    bins = bins_of(store.table("summaries", rank).filter(like(kind)).collect())
    timed = _timed(steps, kind, bins)
    if timed is None:
        return None
    usual, long = timed.usual_ns, timed.long
    counted = bins.filter(pl.col("ns") >= LONG * usual)
    n, of = int(long.sum() + counted["count"].sum()), int(timed.count.sum() + bins["count"].sum())
    extra = np.concatenate([timed.extra_ns[long], counted["ns"].to_numpy() - usual])
    times = np.concatenate([np.ones(long.sum(), np.int64), counted["count"].to_numpy()])
    share = float((extra * times).sum() / ((timed.ns * timed.count).sum() + bins["total"].sum()))
    if not n or n > MOST * of or share < LEAST_SHARE:
        return None
    stacks = (
        store.table("stacks", rank).filter(phase="clean").select("time_ns", "function", "source", "stack")
    )
    return LongSteps(
        rank=rank,
        kind=kind,
        n=n,
        of=of,
        every=None if (timed.count != 1).any() else interval_of(timed.number, long),
        usual_ms=usual / NS_PER_MS,
        ms=(usual + weighted_quantile(extra, times, 0.5)) / NS_PER_MS,
        share=share,
        places=_places(stacks.collect(), timed, long),
    )


def _timed(steps: pl.DataFrame, kind: str, bins: pl.DataFrame) -> Timed | None:
    """Return the recorded clean steps; None if there are too few. The usual step is that of `bins` too."""
    numbers = dict(zip(steps["mark_ns"].to_list(), steps["step"].to_list(), strict=True))
    rows = [
        (ns, count, start, end, numbers.get(start, -1))
        for stretch in stretches(steps, kind)
        for ns, count, start, end in stretch.host_spans()
    ]
    if sum(row[1] for row in rows) < ENOUGH:
        return None
    ns, count, start, end, number = (np.array(column) for column in zip(*rows, strict=True))
    every = np.concatenate([ns, bins["ns"].to_numpy()])
    usual = weighted_quantile(every, np.concatenate([count, bins["count"].to_numpy()]), 0.5)
    return Timed(ns, count, start, end, number, usual)


def _places(stacks: pl.DataFrame, timed: Timed, long: Array) -> list[Place]:
    """Return the calls in which long steps spend their extra time, longest first."""
    times = stacks["time_ns"].to_numpy()
    at = np.maximum(np.searchsorted(timed.start, times, "right") - 1, 0)
    inside = (times >= timed.start[at]) & (times < timed.end[at])
    in_long, in_usual = inside & long[at], inside & ~long[at]
    if in_long.sum() < FEW:
        return []
    paths = [_path(*row) for row in stacks.select("function", "source", "stack").iter_rows()]
    usual_ns = timed.usual_ns * timed.count[long].sum()
    calls = CallTimes(
        _inclusive(paths, in_long, float((timed.ns * timed.count)[long].sum())),
        _inclusive(paths, in_usual, float(usual_ns)),
    )
    extra: Counter[tuple[str, str]] = Counter()
    for path in filter(None, calls.split(())):
        extra[_place(calls.within(path))] += max(calls.extra(path), 0.0)  # type: ignore[assignment]
    most = max(calls.extra(()), extra.total())  # some calls take less time than in usual steps
    shares = [(place, ns / most) for place, ns in extra.most_common(MOST_PLACES)]
    return [Place(*place, share) for place, share in shares if share >= WORTH]


def _path(function: str, source: str, stack: str) -> Path:
    """Return the frames down to the program's innermost frame, or all frames if the program has none."""
    head, frame, _ = stack.rpartition(f"{function} ({source})")
    return tuple(((head + frame) or stack).split(";"))


def _inclusive(paths: list[Path], chosen: Array, ns: float) -> Counter[Path]:
    """Return the inclusive ns of each path over the `chosen` samples, which represent `ns` in total."""
    counts = Counter(path for path, mine in zip(paths, chosen.tolist(), strict=True) if mine)
    below: Counter[Path] = Counter()
    for path, count in counts.items():
        for depth in range(len(path) + 1):
            below[path[:depth]] += count * ns / counts.total()  # type: ignore[assignment]
    return below


class CallTimes(msgspec.Struct, dict=True):
    """Inclusive time of each call in ns, in all long steps and in as many usual steps."""

    long: Counter[Path]
    usual: Counter[Path]

    @cached_property
    def usual_frames(self) -> set[str]:
        """Frames in samples of usual steps."""
        return {frame for path in self.usual for frame in path}

    def extra(self, path: Path) -> float:
        """Return the nanoseconds that long steps spend in a call beyond those of usual steps."""
        return self.long[path] - self.usual[path]

    def split(self, path: Path) -> Iterator[Path]:
        """Yield the innermost calls that hold most of the extra time below `path`.

        If usual steps run a call too, it belongs to the loop, and the search goes on in all calls below it.
        If only long steps run it, the search ends where no call has MOSTLY of the time, or where usual steps
        run the code too. The result is an evaluation rather than the model that it calls.
        """
        below = [call for call in self.long if len(call) == len(path) + 1 and call[:-1] == path]
        main = max(below, key=self.extra, default=None)
        shared = self.usual[path] >= SHARED * self.long[path]
        if main is not None and self.extra(main) >= MOSTLY * self.extra(path):
            yield from self.split(main) if shared or main[-1] not in self.usual_frames else [path]
        elif shared and below:
            for call in below:
                yield from self.split(call)
        else:
            yield path

    def within(self, path: Path) -> Path:
        """Return the longest line of the function that has MOSTLY of the extra time in a call, else `path`.

        No single line below `path` has that much. Code that usual steps run too, or that a library calls (as
        an evaluation does its model), is not named.
        """
        functions: dict[str, list[Path]] = {}
        for call in self.long:
            if len(call) == len(path) + 1 and call[:-1] == path:
                functions.setdefault(call[-1].rpartition(":")[0], []).append(call)
        lines = max(functions.values(), key=lambda calls: sum(map(self.extra, calls)), default=[])
        mostly = sum(map(self.extra, lines)) >= MOSTLY * self.extra(path)
        usual = any(call[-1] in self.usual_frames for call in lines)
        direct = bool(path) and not LIBRARY.search(path[-1])
        return max(lines, key=self.extra) if lines and mostly and direct and not usual else path


def _place(path: Path) -> tuple[str, str]:
    """Return the function and line of the innermost frame outside libraries, else of the innermost frame."""
    frame = next((frame for frame in reversed(path) if not LIBRARY.search(frame)), path[-1])
    match = _FRAME.match(frame)
    return (match["function"], match["source"]) if match else (frame, "")
