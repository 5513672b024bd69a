"""The step as the undisturbed program ran it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array, Spans, covered
from fathom.timing import interval, mad, median
from fathom.units import MS_PER_S, NS_PER_MS

EPOCH_START = "+epoch start"
MOSTLY = 0.5  # of what later steps take longer
AHEAD = 0.9  # of what a device works in a step: one that is shorter was launched, not done
LEAST = 8  # steps that tell what the profiler left
PROFILED = ["timeline", "attribution", "slow"]
UNEVEN = 0.02  # of the median: a mean that is longer by more is another step
ALIKE = 0.02  # steps before and after the profiler ran that differ by less are one population


class Stretch(msgspec.Struct):
    """Steps of one kind that followed each other in one burst; device boundaries are NaN where unmeasured."""

    start_ns: int
    end_ns: int
    marks: Array  # since start_ns; one more than there are steps
    device: Array  # likewise
    samples: int | None
    tokens: int | None

    @property
    def count(self) -> int:
        """How many steps."""
        return len(self.marks) - 1

    @property
    def measured(self) -> bool:
        """Whether the device's own boundaries tell the steps' lengths: the host may run far ahead of it."""
        return bool(np.isfinite(self.device).sum() >= 2)

    def durations(self) -> Iterator[tuple[float, int]]:
        """(nanoseconds a step, steps) between neighbouring device boundaries, or else between marks."""
        for ns, first, last in self._between():
            yield ns, last - first

    def host_spans(self) -> Iterator[tuple[float, int, int, int]]:
        """Of each duration (nanoseconds a step, steps, start and end by the host's marks)."""
        for ns, first, last in self._between():
            start, end = (self.start_ns + int(self.marks[i]) for i in (first, last))
            yield ns, last - first, start, end

    def _between(self) -> Iterator[tuple[float, int, int]]:
        """(nanoseconds a step, first mark, last mark) of each duration."""
        times = self.device if self.measured else self.marks.astype(float)
        known = np.flatnonzero(np.isfinite(times))
        for first, last in zip(known[:-1].tolist(), known[1:].tolist(), strict=True):
            yield float(times[last] - times[first]) / (last - first), first, last


class Clean(msgspec.Struct):
    """The clean phase's steps of one kind."""

    median_ms: float
    mean_ms: float
    ci_ms: tuple[float, float] | None
    steps: int
    samples_per_s: float | None
    tokens_per_s: float | None

    @property
    def basis_ms(self) -> float:
        """The step that gains are of: the mean one where steps are uneven, else the median one."""
        return self.mean_ms if self.uneven else self.median_ms

    @property
    def uneven(self) -> bool:
        """Whether a few long steps make the mean another step than the median."""
        return self.mean_ms > (1 + UNEVEN) * self.median_ms


def stretches(steps: pl.DataFrame, kind: str, phase: str = "clean") -> list[Stretch]:
    """Unbroken runs of whole steps of `kind` in a phase; starting an epoch is part of the work."""
    rows = steps.filter(
        pl.col("phase") == phase, pl.col("parent").is_null(), pl.col("end_ns") > pl.col("mark_ns")
    ).sort("mark_ns")
    started = pl.col("kind").fill_null("step").str.strip_suffix(EPOCH_START)
    same = started == kind.removesuffix(EPOCH_START)
    unbroken = pl.struct(pl.col("burst"), same.alias("same"), pl.col("step") - pl.int_range(pl.len()))
    runs = rows.with_columns(run=unbroken.rle_id()).filter(same).partition_by("run", maintain_order=True)
    found = [_stretch(run) for run in runs]
    return [stretch for stretch in found if stretch.measured] or found


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
    """When the profiler first ran, in ns; None where it never did."""
    return steps.filter(pl.col("phase").is_in(PROFILED))["mark_ns"].min()  # type: ignore[return-value]


def undisturbed(
    found: list[Stretch], first_profiled_ns: int | None, waits: Spans | None = None
) -> tuple[list[Stretch], str]:
    """The stretches to count, and why others were left out ("" where none were).

    A profiler that ran may stay in the way of every launch, and a program may have settled only after it ran:
    where the steps before and after differ by more than 2 % and their noise, the quicker ones count. But
    where later ones are longer because they wait for batches (`waits`), the first ones lived on batches that
    were made before they began, and the later ones count. Where those that follow the profiler are no longer
    than those before it, it is the program that takes longer later, and all count.
    """
    if first_profiled_ns is None:
        return found, ""
    before = [stretch for stretch in found if stretch.end_ns <= first_profiled_ns]
    after = [stretch for stretch in found if stretch.end_ns > first_profiled_ns]
    if not before or not after:
        return found, ""
    early, late = (_each(side) for side in (before, after))
    change = median(late) / median(early) - 1
    if _alike(early, late):
        return found, ""
    if change < 0 or (waits is not None and _out_of_batches(before, after, waits)):
        return after, ""
    if _alike(early, late[: max(len(early), LEAST)]):
        return found, ""
    count = sum(stretch.count for stretch in before)
    return (
        before,
        f"steps after the profiler had run were {change:.0%} longer, be it its doing or the program's: "
        f"only the {count} before it count",
    )


def _alike(early: Array, late: Array) -> bool:
    return abs(median(late) - median(early)) <= max(ALIKE * median(early), mad(early))


def ran_ahead(found: list[Stretch], busy_ms: float) -> bool:
    """Whether steps were launched faster than the device, which works so long in one, can do them.

    Their marks then say nothing of their length, and no device boundary does.
    """
    launched = [stretch for stretch in found if not stretch.measured]
    return bool(launched) and median(_each(launched)) < AHEAD * busy_ms * NS_PER_MS


def _out_of_batches(before: list[Stretch], after: list[Stretch], waits: Spans) -> bool:
    """Whether waiting is most of what later steps take longer."""
    (early, fed), (late, starved) = (_taken(side, waits) for side in (before, after))
    return starved - fed > MOSTLY * (late - early) > 0


def _taken(found: list[Stretch], waits: Spans) -> tuple[float, float]:
    """Nanoseconds a step, and of them in `waits`."""
    steps = sum(stretch.count for stretch in found)
    starts, ends = (np.array([getattr(s, name) for s in found], np.int64) for name in ("start_ns", "end_ns"))
    waited = covered(waits, starts, ends).sum()
    return float((ends - starts).sum()) / steps, float(waited) / steps


def _each(found: list[Stretch]) -> Array:
    return np.array([ns for stretch in found for ns, _ in stretch.durations()])


def clean_step(found: list[Stretch]) -> Clean | None:
    """Median and mean of the steps, the median's interval, and their throughput; None of none."""
    each, weights = _timed(found)
    if not len(each):
        return None
    mean = float(np.average(each, weights=weights))
    # Of as many steps of that mean: the marks of a host that runs ahead lie closer than the steps are long.
    seconds = sum(stretch.count for stretch in found) * mean / MS_PER_S
    return Clean(
        median(each),
        mean,
        interval(each),
        int(weights.sum()),
        _per_second([stretch.samples for stretch in found], seconds),
        _per_second([stretch.tokens for stretch in found], seconds),
    )


def mean_ms(found: list[Stretch]) -> float | None:
    """The mean of the steps alone; None of none."""
    each, weights = _timed(found)
    return float(np.average(each, weights=weights)) if len(each) else None


def _timed(found: list[Stretch]) -> tuple[Array, Array]:
    """(milliseconds a step, steps) of each duration."""
    timed = np.array([pair for stretch in found for pair in stretch.durations()], float).reshape(-1, 2)
    return timed[:, 0] / NS_PER_MS, timed[:, 1].astype(np.int64)


def _per_second(amounts: list[int | None], seconds: float) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) / seconds if known and len(known) == len(amounts) and seconds > 0 else None
