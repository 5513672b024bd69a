"""Where one burst's samples lie on the kernels' clock: the shift at which kernels explain counters best."""

from __future__ import annotations

import numpy as np

from fathom.analysis.folding.kinds import activity
from fathom.analysis.folding.profile import Mixture, precise
from fathom.analysis.folding.readings import Readings
from fathom.analysis.folding.results import Alignment
from fathom.analysis.folding.states import IDLE, States
from fathom.analysis.folding.wide import wide_scores
from fathom.analysis.intervals import Array, covered
from fathom.units import NS_PER_MS

REACH_NS = 250_000  # how far clocks usually lie apart
FAR_NS = 2_500_000  # and the first burst's, where starting to sample takes long
LONGEST_NS = 1_000_000_000  # no start is less sure
FEWEST_STEPS = 16  # of half an interval, to either side
FEWEST = 64  # samples
STEADY = 0.99  # of a burst's time in one state, and its samples are alike wherever they lie
COARSE = 4000  # samples that the search over the whole reach looks at
CLEAR = 8.0  # nats by which the peak must beat all others, were a tenth of the samples independent
DRIFT_SEGMENT, DRIFT_SEGMENTS = 1000, 4  # samples a segment at least, segments at most
DRIFT_SIGMA = 4.0


def align(readings: Readings, burst: int, states: States, unsure_ns: int = 0) -> Alignment:
    """The shift of one burst: kernels' time = samples' time + shift.

    First the shift that maximises the correlation of an activity counter with the time that kernels were
    busy, within REACH_NS; where that shows no clear peak, the one at which the mixture of states explains
    most of all counters. Where samples may have begun more than FAR_NS before their times say (`unsure_ns`),
    the former alone, over all of that. Then the latter decides below the interval of a sample. Its error is a
    block bootstrap's. A drift counts where shifts of parts of the burst show it.
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
    """Starts and ends of one burst's samples on the kernels' clock."""
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
    """The shift to half an interval; None where no peak is clear."""
    if unsure_ns > FAR_NS:
        return _wide(readings, states, unsure_ns)
    few = readings.only(slice(0, COARSE))  # type: ignore[arg-type]
    count, interval = len(few.starts), readings.interval_ns
    near, far = _shifts(interval, REACH_NS), _shifts(interval, FAR_NS)
    found = _peak(near, _busy_scores(few, states, near), count, interval)
    if found is None:
        mixture = Mixture(few, states, columns=24, counters=8)
        found = _peak(near, mixture.explained(near), count, interval)
    return _peak(far, _busy_scores(few, states, far), count, interval) if found is None else found


def _shifts(interval: float, reach: float) -> Array:
    step = max(interval / 2, 1.0)
    steps = max(np.ceil(reach / step), FEWEST_STEPS)
    return np.arange(-steps, steps + 1) * step


def _wide(readings: Readings, states: States, unsure_ns: int) -> float | None:
    """The same, where samples may have begun that much before their times say, or a little later.

    What was launched before the recording began may run on unrecorded, so first without what precedes the
    first kernel; only where that shows no clear peak, as if the device had been idle.
    """
    interval, known = readings.interval_ns, _activity(readings)
    if known is None:
        return None
    step = max(interval / 2, 1.0)
    shifts = step * np.arange(-np.ceil((unsure_ns + REACH_NS) / step), np.ceil(REACH_NS / step) + 1)
    active, told = known
    for since in (int(states.spans.starts[0]), 0):
        scores = wide_scores(states.spans, readings.starts[told], interval, active, shifts, since)
        found = _peak(shifts, scores, len(active), interval)
        if found is not None:
            return found
    return None


def _recorded(readings: Readings, states: States, shift: float) -> Readings:
    """Without the samples before the first kernel, where what ran is not known; all where few are left."""
    later = readings.starts + shift >= states.spans.starts[0] + 2 * readings.interval_ns
    return readings.only(later) if later.sum() >= FEWEST else readings


def _activity(readings: Readings) -> tuple[Array, Array] | None:
    """The values that tell best whether anything runs, and which samples have one."""
    place = activity(readings.names)
    if place is None:
        return None
    told = np.isfinite(readings.values[:, place])
    active = readings.values[told, place]
    return (active, told) if len(active) >= FEWEST and np.ptp(active) > 0 else None


def _busy_scores(readings: Readings, states: States, shifts: Array) -> Array:
    """Squared correlation of activity with the busy share, 0 where it is negative."""
    found = _activity(readings)
    if found is None:
        return np.zeros(len(shifts))
    active, known = found
    starts, ends = readings.starts[known], readings.ends[known]
    centred = (active - active.mean()) / active.std()
    scores = np.zeros(len(shifts))
    for place, by in enumerate(np.rint(shifts).astype(np.int64)):
        busy = covered(states.spans, starts + by, ends + by)
        if spread := float(busy.std()):
            scores[place] = max(float(busy @ centred) / len(busy) / spread, 0.0) ** 2
    return scores


def _peak(shifts: Array, score: Array, samples: int, interval: float) -> float | None:
    """The best shift, if it beats all that lie more than two intervals away."""
    best = int(np.argmax(score))
    others = np.abs(shifts - shifts[best]) > 2 * interval
    if not others.any() or score[best] <= 0.02:
        return None
    rival = score[others].max()
    gain = 0.5 * samples / 10 * np.log(max(1 - rival, 1e-12) / max(1 - score[best], 1e-12))
    return float(shifts[best]) if gain > CLEAR else None


def _drift(readings: Readings, states: States, shift: float, middle: int) -> float:
    """Nanoseconds a nanosecond; 0 where the parts of the burst show none beyond their errors."""
    count = min(len(readings.starts) // DRIFT_SEGMENT, DRIFT_SEGMENTS)
    if count < 3:
        return 0.0
    found = []
    for rows in np.array_split(np.arange(len(readings.starts)), count):
        segment = readings.only(rows)
        own, error, _ = precise(segment, states, shift, widely=False)
        found.append((float(segment.starts[len(rows) // 2] - middle), own, max(error, 1.0)))
    age, own, error = np.array(found).T
    weight = error**-2
    centred = age - np.average(age, weights=weight)
    spread = float((weight * centred**2).sum())
    slope = float((weight * centred * own).sum()) / spread
    misfit = own - np.average(own, weights=weight) - slope * centred
    noise = max(1.0, float((weight * misfit**2).sum()) / (count - 2))
    return slope if abs(slope) > DRIFT_SIGMA * np.sqrt(noise / spread) else 0.0
