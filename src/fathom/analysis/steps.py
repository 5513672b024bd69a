"""The clean step: steps that ran undisturbed by the profiler."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array, Spans, covered
from fathom.sounding import Store
from fathom.timing import interval, mad, median
from fathom.units import MS_PER_S, NS_PER_MS

EPOCH_START = "+epoch start"
MOSTLY = 0.5  # waits explain longer steps if they are more than this share of the additional time
AHEAD = 0.9  # of the device's work per step: marks closer together time launches, not steps
LEAST = 8  # fewest steps after the profiler that show its aftereffect
PROFILED = ["timeline", "attribution", "slow"]
UNEVEN = 0.02  # of the median: if the mean is longer by more, steps are uneven
GREW = 0.2  # of the first third's median: the last third of steps that is longer by more has grown
CERTAIN = 6.0  # times the noise of a median
MOST_RANKS = 16  # with more, each rank keeps to its own steps
ALIKE = 0.02  # relative difference below which steps before and after the profiler are alike


class Stretch(msgspec.Struct):
    """Consecutive steps of one kind in one burst; device boundaries are NaN if unmeasured. Times in ns."""

    start_ns: int
    end_ns: int
    marks: Array  # relative to start_ns; one more than steps
    device: Array  # boundaries, relative to start_ns
    samples: int | None
    tokens: int | None

    @property
    def count(self) -> int:
        """The number of steps."""
        return len(self.marks) - 1

    @property
    def measured(self) -> bool:
        """Whether device boundaries, in order, time the steps; if not, the host may run far ahead."""
        known = self.device[np.isfinite(self.device)]
        return len(known) >= 2 and bool((np.diff(known) > 0).all())

    @property
    def timed_ns(self) -> int:
        """The start of the measured time: the first device boundary, if it lies in the first step.

        Until then, Fathom prepares to measure; what it allocates may start a garbage collection.
        """
        late = self.measured and 0.0 < self.device[0] < self.marks[1]
        return self.start_ns + (int(self.device[0]) if late else 0)

    def durations(self) -> Iterator[tuple[float, int]]:
        """Yield (ns per step, steps) between neighbouring device boundaries, or else between marks."""
        for ns, first, last in self._between():
            yield ns, last - first

    def host_spans(self) -> Iterator[tuple[float, int, int, int]]:
        """Yield (ns per step, steps, start, end) of each duration; start and end are host marks in ns."""
        for ns, first, last in self._between():
            start, end = (self.start_ns + int(self.marks[i]) for i in (first, last))
            yield ns, last - first, start, end

    def _between(self) -> Iterator[tuple[float, int, int]]:
        """Yield (ns per step, first mark, last mark) of each duration."""
        times = self.device if self.measured else self.marks.astype(float)
        known = np.flatnonzero(np.isfinite(times))
        for first, last in zip(known[:-1].tolist(), known[1:].tolist(), strict=True):
            yield float(times[last] - times[first]) / (last - first), first, last


class Clean(msgspec.Struct):
    """Statistics of the clean phase's steps of one kind."""

    median_ms: float
    mean_ms: float
    ci_ms: tuple[float, float] | None
    steps: int
    samples_per_s: float | None
    tokens_per_s: float | None

    @property
    def basis_ms(self) -> float:
        """The step time to which gains refer: the mean if steps are uneven, else the median."""
        return self.mean_ms if self.uneven else self.median_ms

    @property
    def uneven(self) -> bool:
        """Whether a few long steps raise the mean well above the median."""
        return self.mean_ms > (1 + UNEVEN) * self.median_ms


def stretches(steps: pl.DataFrame, kind: str, phase: str = "clean") -> list[Stretch]:
    """Return runs of consecutive complete steps of `kind`, only those timed on the device if there are any.

    A step that starts an epoch counts as its kind.
    """
    rows = steps.filter(
        pl.col("phase") == phase, pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns")
    ).sort("mark_ns")
    started = pl.col("kind").fill_null("step").str.strip_suffix(EPOCH_START)
    same = started == kind.removesuffix(EPOCH_START)
    unbroken = pl.struct(pl.col("burst"), same.alias("same"), pl.col("step") - pl.int_range(pl.len()))
    runs = rows.with_columns(run=unbroken.rle_id()).filter(same).partition_by("run", maintain_order=True)
    every = [_stretch(run) for run in runs]
    return [stretch for stretch in every if stretch.measured] or every


def _stretch(rows: pl.DataFrame) -> Stretch:
    marks = np.append(rows["mark_ns"].to_numpy(), rows["end_ns"][-1])
    base = marks[0]  # differences stay exact as floats
    opened = (rows["device_ns"] - base).cast(pl.Float64).to_list()
    closed = rows["device_end_ns"][-1]
    device = np.array([*opened, None if closed is None else closed - base], float)
    return Stretch(
        int(marks[0]), int(marks[-1]), marks - base, device, _sum(rows["samples"]), _sum(rows["tokens"])
    )


def _sum(column: pl.Series) -> int | None:
    return int(column.sum()) if column.null_count() == 0 else None


def first_profiled(steps: pl.DataFrame) -> int | None:
    """Return the time in ns when the profiler first ran; None if it never ran."""
    return steps.filter(pl.col("phase").is_in(PROFILED))["mark_ns"].min()  # type: ignore[return-value]


def undisturbed(
    runs: list[Stretch], first_profiled_ns: int | None, waits: Spans | None = None
) -> tuple[list[Stretch], str]:
    """Return the stretches to count, and the reason why others were left out ("" if none were).

    Steps after the profiler ran may be slower because of it, or faster because the program settled late. If
    the steps before and after differ by more than 2 % and more than their noise, the faster ones count, with
    exceptions. If later steps are longer because they wait for batches (`waits`), the first ones used
    prefetched batches, so the later ones count. If the steps right after the profiler are as fast as those
    before it, the program itself slows down later, so all count; likewise if no device times the steps,
    because only the profiler of a device stays attached.
    """
    if first_profiled_ns is None:
        return runs, ""
    before = [stretch for stretch in runs if stretch.end_ns <= first_profiled_ns]
    after = [stretch for stretch in runs if stretch.end_ns > first_profiled_ns]
    if not before or not after:
        return runs, ""
    early, late = (_each(side) for side in (before, after))
    change = median(late) / median(early) - 1
    if _alike(early, late):
        return runs, ""
    if change < 0 or (waits is not None and _out_of_batches(before, after, waits)):
        return after, ""
    if not any(stretch.measured for stretch in runs):
        return runs, ""
    if _alike(early, late[: max(len(early), LEAST)]):
        return runs, ""
    return (
        before,
        f"steps after profiling were {100 * change:.0f} % longer, because of the profiler or the program, "
        "so only steps before profiling are used",
    )


def _alike(early: Array, late: Array) -> bool:
    return abs(median(late) - median(early)) <= max(ALIKE * median(early), mad(early))


def growth(lengths: Array) -> tuple[float, float]:
    """Return the medians of the first and last third if they grew beyond GREW and noise, else (0, 0)."""
    third = len(lengths) // 3
    if third < LEAST:
        return 0.0, 0.0
    first, last = lengths[:third], lengths[-third:]
    before, after = median(first), median(last)
    noise = CERTAIN * max(mad(first), mad(last)) / third**0.5  # of a median
    grew = after - before > max(GREW * before, noise)
    return (before, after) if grew else (0.0, 0.0)


def ran_ahead(runs: list[Stretch], busy_ms: float) -> bool:
    """Return whether steps were launched faster than the device, busy for `busy_ms` in each, executes them.

    If so, neither marks nor device boundaries give their length.
    """
    launched = [stretch for stretch in runs if not stretch.measured]
    return bool(launched) and median(_each(launched)) < AHEAD * busy_ms * NS_PER_MS


def _out_of_batches(before: list[Stretch], after: list[Stretch], waits: Spans) -> bool:
    """Return whether waits for batches make up most of the additional time of later steps."""
    (early, fed), (late, starved) = (_taken(side, waits) for side in (before, after))
    return starved - fed > MOSTLY * (late - early) > 0


def _taken(runs: list[Stretch], waits: Spans) -> tuple[float, float]:
    """Return the mean ns per step, and the part of it in `waits`."""
    steps = sum(stretch.count for stretch in runs)
    starts, ends = (np.array([getattr(s, name) for s in runs], np.int64) for name in ("start_ns", "end_ns"))
    waited = covered(waits, starts, ends).sum()
    return float((ends - starts).sum()) / steps, float(waited) / steps


def _each(runs: list[Stretch]) -> Array:
    return np.array([ns for stretch in runs for ns, _ in stretch.durations()])


def clean_step(runs: list[Stretch]) -> Clean | None:
    """Statistics of the steps in `runs`: median with its interval, mean, throughput; None without steps."""
    each, weights = _timed(runs)
    if not len(each):
        return None
    mean = float(np.average(each, weights=weights))
    # Use the duration of that many mean steps, because the marks of a host that runs ahead are too close.
    seconds = sum(stretch.count for stretch in runs) * mean / MS_PER_S
    return Clean(
        median(each),
        mean,
        interval(each),
        int(weights.sum()),
        _per_second([stretch.samples for stretch in runs], seconds),
        _per_second([stretch.tokens for stretch in runs], seconds),
    )


def mean_ms(runs: list[Stretch]) -> float | None:
    """Return the mean of the steps in ms; None if there are no steps."""
    each, weights = _timed(runs)
    return float(np.average(each, weights=weights)) if len(each) else None


def _timed(runs: list[Stretch]) -> tuple[Array, Array]:
    """Return the milliseconds per step and the number of steps of each duration."""
    timed = np.array([pair for stretch in runs for pair in stretch.durations()], float).reshape(-1, 2)
    return timed[:, 0] / NS_PER_MS, timed[:, 1].astype(np.int64)


def _per_second(amounts: list[int | None], seconds: float) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / seconds if known and len(known) == len(amounts) and seconds > 0 else None


def lengths_of_ranks(store: Store) -> dict[int, float]:
    """Return the mean length in ns, over all ranks, of each step of the timeline that all of them recorded.

    {} for a single rank, or for more than MOST_RANKS.
    """
    if not 1 < len(store.ranks) <= MOST_RANKS:
        return {}
    complete = pl.col("parent").is_null() & (pl.col("end_ns") > pl.col("mark_ns"))
    length = (pl.col("end_ns") - pl.col("mark_ns")).alias("ns")
    each = [
        store.table("steps", rank).filter(complete, pl.col("phase") == "timeline").select("step", length)
        for rank in store.ranks
    ]
    means = pl.concat(each).group_by("step").agg(pl.col("ns").mean(), ranks=pl.len()).collect()
    return dict(means.filter(ranks=len(store.ranks)).select("step", "ns").iter_rows())
