"""Align one burst's samples with the kernels' clock, and show an excerpt of both around a launch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.device import detail
from fathom.analysis.folding.kinds import activity, base, kind_of
from fathom.analysis.folding.profile import Mixture, precise
from fathom.analysis.folding.readings import Readings, readings_of
from fathom.analysis.folding.results import Alignment, Folding
from fathom.analysis.folding.states import IDLE, States
from fathom.analysis.intervals import Array, Spans, covered
from fathom.sounding import Store
from fathom.units import NS_PER_MS

REACH_NS = 250_000  # usually, the clocks differ by less
FAR_NS = 2_500_000  # in the first burst too, although its sampling takes long to start
LONGEST_NS = 1_000_000_000  # the largest uncertainty of a burst's start that is searched
FEWEST_STEPS = 16  # fewest steps of half an interval that are searched on either side
FEWEST = 64  # samples
STEADY = 0.99  # share of a burst in one state, from which on its samples are alike at any shift
COARSE = 4000  # samples in the search over the full range
CLEAR = 8.0  # nats by which the peak must beat all others, if a tenth of the samples is independent
DRIFT_SEGMENT, DRIFT_SEGMENTS = 1000, 4  # fewest samples per segment, most segments
DRIFT_SIGMA = 4.0
_AROUND = 2.0  # multiple of the launch's length, before and after it
_LEAST_NS = 100_000


def align(readings: Readings, burst: int, states: States, unsure_ns: int = 0) -> Alignment:
    """Return the alignment of one burst: the shift with kernel time = sample time + shift.

    The coarse search, within REACH_NS, maximises the correlation of an activity counter with the busy time of
    kernels. Without a clear peak, it maximises the variance of all counters that the mixture of states
    explains. If samples may have begun more than FAR_NS before their timestamps (`unsure_ns`), only the
    correlation is used, over that range. The mixture of states then refines the shift to less than a sample
    interval, with an error by block bootstrap. A drift counts if the shifts of parts of the burst show it.
    """
    count = len(readings.starts)
    middle = int(readings.starts[count // 2]) if count else 0
    unsure_ns = min(unsure_ns, LONGEST_NS)
    refuse = _refusal(readings, states, unsure_ns)
    rough = None if refuse else _rough(readings, states, unsure_ns)
    if rough is None:
        steady = not refuse and _steady(states)
        error = float(max(unsure_ns, FAR_NS)) if steady else 0.0
        why = "" if steady else refuse or _unclear(unsure_ns)
        return Alignment(readings.device, burst, 0.0, error, 0.0, middle, 0.0, count, why, steady)
    if unsure_ns > FAR_NS:
        readings = _recorded(readings, states, rough)
    shift, error, explained = precise(readings, states, rough)
    drift = 1e6 * _drift(readings, states, shift, middle)
    return Alignment(readings.device, burst, shift, error, drift, middle, explained, count)


def moved(readings: Readings, alignment: Alignment, extra_ns: float = 0.0) -> tuple[Array, Array]:
    """Return the starts and ends of one burst's samples on the kernels' clock, in ns."""
    age = (readings.starts - alignment.middle_ns).astype(float)
    by = np.rint(alignment.shift_ns + extra_ns + alignment.drift_ppm * 1e-6 * age).astype(np.int64)
    return readings.starts + by, readings.ends + by


def _steady(states: States) -> bool:
    times = states.times
    return bool(times.argmax() != IDLE and times.max() >= STEADY * times.sum())


def _refusal(readings: Readings, states: States, unsure_ns: int) -> str:
    if len(readings.starts) < FEWEST:
        return f"only {len(readings.starts)} samples were taken"
    if not len(states.state):
        return "no kernel was recorded with them"
    reach = max(unsure_ns, FAR_NS)
    if readings.ends[-1] + reach <= states.spans.starts[0]:
        return "they end before the first kernel began"
    if readings.starts[0] - reach >= states.spans.ends[-1]:
        return "they begin after the last kernel ended"
    return ""


def _unclear(unsure_ns: int) -> str:
    why = "no shift of the samples explains them clearly better than others"
    if unsure_ns <= FAR_NS:
        return why
    return f"starting to sample took {unsure_ns / NS_PER_MS:.0f} ms, and {why} within that"


def _rough(readings: Readings, states: States, unsure_ns: int) -> float | None:
    """Return the shift in ns to within half an interval; None if no peak is clear."""
    if unsure_ns > FAR_NS:
        return _wide(readings, states, unsure_ns)
    few = readings.only(slice(0, COARSE))  # type: ignore[arg-type]
    count, interval = len(few.starts), readings.interval_ns
    near, far = _shifts(interval, REACH_NS), _shifts(interval, FAR_NS)
    best = _peak(near, _busy_scores(few, states, near), count, interval)
    if best is None:
        mixture = Mixture(few, states, columns=24, counters=8)
        best = _peak(near, mixture.explained(near), count, interval)
    return _peak(far, _busy_scores(few, states, far), count, interval) if best is None else best


def _shifts(interval: float, reach: float) -> Array:
    step = max(interval / 2, 1.0)
    steps = max(np.ceil(reach / step), FEWEST_STEPS)
    return np.arange(-steps, steps + 1) * step


def _wide(readings: Readings, states: States, unsure_ns: int) -> float | None:
    """Return the shift in ns to within half an interval if samples may have begun up to `unsure_ns` early.

    Work that was launched before the recording may run unrecorded. So samples before the first kernel are
    left out at first; if that gives no clear peak, the device counts as idle before the first kernel. None if
    no peak is clear.
    """
    interval, known = readings.interval_ns, _activity(readings)
    if known is None:
        return None
    step = max(interval / 2, 1.0)
    shifts = step * np.arange(-np.ceil((unsure_ns + REACH_NS) / step), np.ceil(REACH_NS / step) + 1)
    active, sampled = known
    for since in (int(states.spans.starts[0]), 0):
        scores = wide_scores(states.spans, readings.starts[sampled], interval, active, shifts, since)
        best = _peak(shifts, scores, len(active), interval)
        if best is not None:
            return best
    return None


def _recorded(readings: Readings, states: States, shift: float) -> Readings:
    """Return the samples without those before the first kernel (unknown work), unless too few are left."""
    later = readings.starts + shift >= states.spans.starts[0] + 2 * readings.interval_ns
    return readings.only(later) if later.sum() >= FEWEST else readings


def _activity(readings: Readings) -> tuple[Array, Array] | None:
    """Return the counter that best shows activity, and a mask of the samples in which it has a value."""
    place = activity(readings.names)
    if place is None:
        return None
    sampled = np.isfinite(readings.values[:, place])
    active = readings.values[sampled, place]
    return (active, sampled) if len(active) >= FEWEST and np.ptp(active) > 0 else None


def _busy_scores(readings: Readings, states: States, shifts: Array) -> Array:
    """Return the squared correlation of activity with the busy share at each shift, 0 where negative."""
    activity_values = _activity(readings)
    if activity_values is None:
        return np.zeros(len(shifts))
    active, known = activity_values
    starts, ends = readings.starts[known], readings.ends[known]
    centred = (active - active.mean()) / active.std()
    scores = np.zeros(len(shifts))
    for place, by in enumerate(np.rint(shifts).astype(np.int64)):
        busy = covered(states.spans, starts + by, ends + by)
        if spread := float(busy.std()):
            scores[place] = max(float(busy @ centred) / len(busy) / spread, 0.0) ** 2
    return scores


def _peak(shifts: Array, score: Array, samples: int, interval: float) -> float | None:
    """Return the best shift if it clearly beats all shifts more than two intervals away, else None."""
    best = int(np.argmax(score))
    others = np.abs(shifts - shifts[best]) > 2 * interval
    if not others.any() or score[best] <= 0.02:
        return None
    rival = score[others].max()
    gain = 0.5 * samples / 10 * np.log(max(1 - rival, 1e-12) / max(1 - score[best], 1e-12))
    return float(shifts[best]) if gain > CLEAR else None


def _drift(readings: Readings, states: States, shift: float, middle: int) -> float:
    """Return the drift in ns per ns; 0 if the parts of the burst show none beyond their errors."""
    count = min(len(readings.starts) // DRIFT_SEGMENT, DRIFT_SEGMENTS)
    if count < 3:
        return 0.0
    segments = []
    for rows in np.array_split(np.arange(len(readings.starts)), count):
        segment = readings.only(rows)
        own, error, _ = precise(segment, states, shift, widely=False)
        segments.append((float(segment.starts[len(rows) // 2] - middle), own, max(error, 1.0)))
    age, own, error = np.array(segments).T
    weight = error**-2
    centred = age - np.average(age, weights=weight)
    spread = float((weight * centred**2).sum())
    slope = float((weight * centred * own).sum()) / spread
    misfit = own - np.average(own, weights=weight) - slope * centred
    noise = max(1.0, float((weight * misfit**2).sum()) / (count - 2))
    return slope if abs(slope) > DRIFT_SIGMA * np.sqrt(noise / spread) else 0.0


MOST_STEPS = 1 << 21  # in half intervals: longer searches or bursts are refused
LEAST = 0.5  # of the most samples that any shift has: a shift with fewer has no score
SMALL = 1e-9  # of the largest possible variance: rounding errors of the transforms


def wide_scores(
    spans: Spans, starts: Array, interval: float, active: Array, shifts: Array, since: int = 0
) -> Array:
    """Return the squared correlation of `active` with the busy share for many shifts, 0 where negative.

    `spans` are the times in which kernels ran. `starts` are those at which samples began, each `interval`
    long, in ns, and `active` has one value per sample. `shifts` are half an interval apart. Samples are
    placed on that grid, so that fast Fourier transforms compute all sums. Samples that begin before `since`,
    on the kernels' clock, do not count.
    """
    step, scale = interval / 2, float(np.abs(active).max())
    place = np.rint((starts - starts[0]) / step).astype(np.int64)
    if place[-1] + len(shifts) > MOST_STEPS:
        return np.zeros(len(shifts))
    begins = starts[0] + np.rint(shifts[0] + step * np.arange(place[-1] + len(shifts))).astype(np.int64)
    counts = (begins >= since).astype(float)
    busy = counts * covered(spans, begins, begins + round(interval)) / interval
    there, own, squared = (
        np.bincount(place, weights, place[-1] + 1)
        for weights in (np.ones(len(active)), active / scale, (active / scale) ** 2)
    )
    number = np.rint(_sliding(there, counts))
    sums = (_sliding(own, counts), _sliding(there, busy), _sliding(own, busy))
    squares = (_sliding(squared, counts), _sliding(there, busy**2))
    return np.where(number >= max(LEAST * number.max(), 1), _squared(number, sums, squares), 0.0)


def _squared(number: Array, sums: tuple[Array, Array, Array], squares: tuple[Array, Array]) -> Array:
    """Return the squared correlation from the sums of x, y and xy, and of x² and y²."""
    number = np.maximum(number, 1)
    x, y, both = sums
    spread_x, spread_y = squares[0] - x**2 / number, squares[1] - y**2 / number
    varies = (spread_x > SMALL * number) & (spread_y > SMALL * number)
    covariance = np.clip(both - x * y / number, 0.0, None) ** 2
    return np.divide(covariance, spread_x * spread_y, out=np.zeros(len(number)), where=varies)


def _sliding(weights: Array, over: Array) -> Array:
    """Return the sum of `weights` times `over` for lags of 0, 1, … steps."""
    size = len(weights) + len(over)
    product = np.conj(np.fft.rfft(weights, size)) * np.fft.rfft(over, size)
    return np.fft.irfft(product, size)[: len(over) - len(weights) + 1]


class Excerpt(NamedTuple):
    """Kernels and samples of a stretch of time, in ns since its start, both on the kernels' clock.

    `kernels` has label, stream, start and end. `values` holds counters in per cent by their names without
    prefix, one value per sample.
    """

    length_ns: int
    kernels: pl.DataFrame
    starts: Array
    ends: Array
    values: dict[str, Array]


def excerpt_around(store: Store, rank: int, device: str, family: str, folding: Folding) -> Excerpt | None:
    """Return the stretch around the family's median launch in the aligned bursts; None if none was sampled.

    `device` is a label such as `cuda:0`.
    """
    kernels, readings, aligned = _sampled(store, rank, device, folding)
    own = kernels.filter(pl.col("label") == family, pl.col("burst").is_in(list(aligned)))
    if not readings or own.is_empty():
        return None
    launch = own.sort("time", "start_ns").row(own.height // 2, named=True)
    reading = next((r for r in readings if (r.burst == launch["burst"]).any()), None)
    around = max(int(_AROUND * launch["time"]), _LEAST_NS)
    begin, end = launch["start_ns"] - around, launch["end_ns"] + around
    return None if reading is None else _cut(kernels, reading, aligned[launch["burst"]], begin, end)


def excerpt_of_step(store: Store, rank: int, device: str, folding: Folding) -> Excerpt | None:
    """Return a step of median length, between the host's marks, with the most counters sampled at once.

    None if no step was sampled in an aligned burst.
    """
    kernels, readings, aligned = _sampled(store, rank, device, folding)
    richest = max(readings, key=lambda reading: len(reading.names), default=None)
    if richest is None:
        return None
    bursts = [burst for burst in aligned if (richest.burst == burst).any()]
    steps = store.table("steps", rank).filter(
        pl.col("parent").is_null(), pl.col("burst").is_in(bursts), phase="counters"
    )
    marks = steps.select("burst", begin="mark_ns", end="end_ns").drop_nulls().collect()
    marks = marks.sort(pl.col("end") - pl.col("begin"), "begin")
    if marks.is_empty():
        return None
    burst, begin, end = marks.row(marks.height // 2)
    return _cut(kernels, richest, aligned[burst], begin, end)


def _sampled(
    store: Store, rank: int, device: str, folding: Folding
) -> tuple[pl.DataFrame, list[Readings], dict[int, Alignment]]:
    """Return labelled kernels and readings of the counters phase, and the aligned bursts by number."""
    index = int(device.rpartition(":")[2]) if device[-1:].isdigit() else -1
    kernels = store.table("kernels", rank).filter(phase="counters", device=index).collect()
    samples = store.table("samples", rank).filter(phase="counters", device=index).collect()
    about = next((r for r in store.manifest.ranks if r.rank == rank), None)
    readings, _ = readings_of(samples, about.facts.get("counter_groups") if about else None)
    aligned = {burst.burst: burst for burst in folding.alignment if burst.device == index and not burst.why}
    labelled = kernels.with_columns(label=detail(), time=pl.col("end_ns") - pl.col("start_ns"))
    return labelled, readings, aligned


def _cut(kernels: pl.DataFrame, readings: Readings, alignment: Alignment, begin: int, end: int) -> Excerpt:
    own = readings.only(readings.burst == alignment.burst)
    starts, ends = moved(own, alignment)
    inside = (ends > begin) & (starts < end)
    near = kernels.filter(
        pl.col("burst") == alignment.burst, pl.col("end_ns") > begin, pl.col("start_ns") < end
    ).select(
        "label",
        "stream",
        start=(pl.col("start_ns") - begin).clip(0),
        end=(pl.col("end_ns") - begin).clip(0, end - begin),
    )
    values = {
        base(name): own.values[inside, place]
        for place, name in enumerate(own.names)
        if (kind := kind_of(name)) is not None and kind.unit == "%"
    }
    starts, ends = (np.clip(times[inside] - begin, 0, end - begin) for times in (starts, ends))
    return Excerpt(end - begin, near, starts, ends, values)
