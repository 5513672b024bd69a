"""Figures of the whole step beside its entries: throughput, memory, energy, input, clocks, counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, log
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from fathom.analysis.compare.causes import FEW
from fathom.analysis.compare.noise import HOST, band, between_runs, variances
from fathom.analysis.compare.results import Figure
from fathom.analysis.compare.run import Counter, Run
from fathom.analysis.compare.sides import SideEntry
from fathom.timing import median
from fathom.units import MS_PER_S, NS_PER_MS

COUNTERS = 0.05  # relative change of a counter that counts, beside its standard error
PERCENT = 1.0  # points: the least change of a counter in %
SURE = 3.0  # standard errors
MATERIAL = 0.01  # of the step: smaller changes of a time do not count
OF_DATASHEET = " of the datasheet's peak"  # ends the names of shares without a measured ceiling
DIFFERENT = 0.05  # relative difference of peaks from which shares of them are not compared
TERA = 1e12
Better = Literal["lower", "higher", ""]
Interval = tuple[float, float]


class Row(msgspec.Struct, frozen=True):
    """A figure: where it is in a run, and its relative standard deviation between runs.

    `peak` names the peak that a share refers to; both sides must share it.
    """

    group: str
    name: str
    unit: str
    better: Better
    scatter: float | None  # None: the noise is that of the step
    read: Callable[[Run, str], float | None]  # of a basis
    peak: str = ""
    of_host: bool = False  # other programs on the host change it
    unsure: Callable[[Run], float] | None = None  # the half-width of what a run knows of it, relative


def _of(part: str, field: str) -> Callable[[Run, str], float | None]:
    return lambda run, _: getattr(getattr(run.examination, part), field, None)


def _utilisation(name: str, field: str, peak: str) -> Row:
    """Return the row of a share of the peak, in the mean step as other rates."""

    def read(run: Run, basis: str) -> float | None:
        used = run.utilisation
        share = None if used is None else getattr(used, field)
        if used is None or share is None:
            return None
        return share * used.step_ms * NS_PER_MS / run.mean_ns(basis)

    return Row("step", name, "", "higher", None, read, peak)


def _energy(run: Run) -> float:
    """Return how little is known of the energy of a step, which may be estimated from other steps."""
    energy = run.examination.energy
    if energy is None or energy.per_step_low_j is None or energy.per_step_high_j is None:
        return 0.0
    return (energy.per_step_high_j - energy.per_step_low_j) / (energy.per_step_high_j + energy.per_step_low_j)


def _clock(run: Run, _: str) -> float | None:
    return median(run.clocks_mhz) if len(run.clocks_mhz) >= FEW else None


ROWS = (
    Row("step", "samples/s", "/s", "higher", None, _of("step", "samples_per_s")),
    Row("step", "tokens/s", "/s", "higher", None, _of("step", "tokens_per_s")),
    _utilisation("MFU", "mfu", "mfu"),
    _utilisation("HFU", "hfu", "mfu"),
    _utilisation(f"MFU{OF_DATASHEET}", "mfu_datasheet", "mfu_datasheet"),
    _utilisation(f"HFU{OF_DATASHEET}", "hfu_datasheet", "mfu_datasheet"),
    Row("input", "input wait", "ms", "lower", 0.1, _of("input", "wait_ms"), of_host=True),
    Row("memory", "peak allocated", "B", "lower", 0.005, _of("memory", "peak_allocated_bytes")),
    Row("memory", "peak reserved", "B", "lower", 0.01, _of("memory", "peak_reserved_bytes")),
    Row("memory", "peak on the device", "B", "lower", 0.01, _of("memory", "peak_device_bytes")),
    Row("memory", "peak of the host", "B", "lower", 0.02, _of("memory", "peak_resident_bytes")),
    Row("energy", "energy", "J", "lower", 0.02, _of("energy", "per_step_j"), unsure=_energy),
    Row("energy", "power", "W", "", 0.05, _of("energy", "mean_power_w"), unsure=_energy),
    Row("energy", "energy of the host", "J", "lower", 0.03, _of("energy", "host_per_step_j"), of_host=True),
    Row("clocks", "clock of the GPU", "MHz", "", 0.003, _clock),
)


def figures(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    basis: str,
    step_ms: float,
    interval: Interval | None,
    others: float,
) -> Iterator[Figure]:
    """Yield the figures that all recordings have.

    `interval` is that of the step's ratio, of which rates are the reciprocal; `others` is the share of the
    processors that other programs used.
    """
    noise = None if interval is None else log(interval[1] / interval[0]) / 2
    for row in ROWS:
        sides = [[row.read(run, basis) for run in runs] for runs in (baseline, candidate)]
        known = [[value for value in side if value is not None] for side in sides]
        if all(known) and list(map(len, known)) == list(map(len, sides)):
            figure = _figure(_disturbed(row, others), known, step_ms, noise)
            figure = figure.widened(
                sum(_unsure(row, runs) for runs in (baseline, candidate)) * figure.baseline
            )
            yield of_peak(figure, row.peak, baseline, candidate) if row.peak else figure


def _unsure(row: Row, runs: Sequence[Run]) -> float:
    """Return how little is known of a side's figure, as a share of it."""
    return 0.0 if row.unsure is None else float(np.mean([row.unsure(run) for run in runs]))


def _disturbed(row: Row, others: float) -> Row:
    """Return a row of the host with the scatter that other programs cause."""
    if not row.of_host or row.scatter is None:
        return row
    return replace(row, scatter=between_runs({HOST: row.scatter}, others)[HOST])


def _figure(row: Row, sides: Sequence[Sequence[float]], step_ms: float, noise: float | None) -> Figure:
    before, after = (float(np.mean(side)) for side in sides)
    width = None if noise is None else before * abs(exp(noise if after > before else -noise) - 1)
    if row.scatter is not None:
        width = band(
            [part for side in sides for part in variances(float(np.mean(side)), side, [], 0.0, row.scatter)]
        )
    least = MATERIAL * step_ms if row.unit == "ms" else 0.0
    moved = width is not None and abs(after - before) > max(width, least)
    return Figure(row.group, row.name, row.unit, before, after, width, moved, row.better)


def counters(
    pairs: Iterable[tuple[SideEntry, SideEntry]], baseline: Sequence[Run], candidate: Sequence[Run]
) -> Iterator[Figure]:
    """Yield the counters of aligned kernels that moved, of the first recording of each side with counters."""
    sides = [
        next((_by_family(run.counters) for run in runs if run.counters), {}) for runs in (baseline, candidate)
    ]
    for a, b in pairs if all(sides) else ():
        families = sides[0].get(a.details[0], {}), sides[1].get(b.details[0], {})
        for name in families[0]:
            if name in families[1]:
                yield from _moved(b.details[0], families[0][name], families[1][name])


def _by_family(rows: Iterable[Counter]) -> dict[str, dict[str, Counter]]:
    result: dict[str, dict[str, Counter]] = {}
    for row in rows:
        result.setdefault(row.family, {})[row.counter] = row
    return result


def _moved(family: str, a: Counter, b: Counter) -> Iterator[Figure]:
    width = SURE * (a.error**2 + b.error**2) ** 0.5
    change = abs(b.value - a.value)
    least = PERCENT if a.unit == "%" else 0.0
    if a.value and change > max(width, COUNTERS * abs(a.value), least):
        yield Figure("counters", a.counter, a.unit, a.value, b.value, width, True, of=family)


def collectives(baseline: Sequence[Run], candidate: Sequence[Run]) -> Iterator[Figure]:
    """Yield time and bus bandwidth of the collectives of both sides' first recordings.

    The band of a time is the scatter of single collectives, from the shortest to the longest.
    """
    mine, theirs = (_collectives(runs[0]) for runs in (baseline, candidate))
    for key, before in mine.items():
        if (after := theirs.get(key)) is None:
            continue
        name = " ".join(str(part) for part in key if part not in (None, ""))
        width = max(before.max_ms - before.min_ms, after.max_ms - after.min_ms)
        moved = abs(after.median_ms - before.median_ms) > width
        yield Figure(
            "collectives", "median time", "ms", before.median_ms, after.median_ms, width, moved, "lower", name
        )
        if before.bus_bytes_per_s and after.bus_bytes_per_s:
            yield Figure(
                "collectives", "bus bandwidth", "B/s", before.bus_bytes_per_s, after.bus_bytes_per_s,
                None, moved, "higher", name,
            )  # fmt: skip


def _collectives(run: Run) -> dict:
    device = next((device for device in run.examination.devices if device.communication), None)
    rows = device.communication.collectives if device and device.communication else []
    return {
        (row.operation, row.dtype, None if row.bytes is None else f"{row.bytes / 1e6:.3g} MB"): row
        for row in rows
    }


def of_peak(figure: Figure, share: str, baseline: Sequence[Run], candidate: Sequence[Run]) -> Figure:
    """Return a figure that is a share of a peak: not compared if the recordings have different peaks.

    Peaks are measured on each machine, so they differ a little: that is noise of the share. `share` is the
    field of the utilisation from which the peak is known.
    """
    figure = _bounded(figure, baseline, candidate)
    peaks = [
        (peak, f"{_in_words(run, peak)} in the {side}")
        for side, runs in (("baseline", baseline), ("candidate", candidate))
        for run in runs
        if (peak := _peak(run, share))
    ]
    if not peaks:
        return figure
    (low, lowest), (high, highest) = min(peaks), max(peaks)
    difference = high / low - 1
    if difference > DIFFERENT:
        why = f"shares of different peaks cannot be compared: {lowest}, {highest}"
        return replace(figure, moved=False, why=why)
    return figure.widened(difference * figure.baseline)


def _bounded(figure: Figure, baseline: Sequence[Run], candidate: Sequence[Run]) -> Figure:
    """Return a figure with the sides that lack FLOPs of some products: their share is a lower bound.

    If the smaller side alone is one, it may only seem to be smaller.
    """
    sides = {"baseline": baseline, "candidate": candidate}
    bounds = [
        side
        for side, runs in sides.items()
        if any(run.utilisation and run.utilisation.partial for run in runs)
    ]
    smaller = "candidate" if figure.candidate < figure.baseline else "baseline"
    return replace(figure, at_least=bounds, moved=figure.moved and bounds != [smaller])


def _peak(run: Run, share: str) -> float:
    """Return the peak in FLOP/s of the run's FLOPs, the mean over their dtypes; 0 if unknown."""
    used = run.utilisation
    needed_s = (getattr(used, share) or 0.0) * used.step_ms / MS_PER_S if used else 0.0
    return used.flops / needed_s if used and needed_s else 0.0


def _in_words(run: Run, peak: float) -> str:
    names = run.utilisation.units if run.utilisation else []
    return f"{peak / TERA:.3g} TFLOP/s ({', '.join(name.partition('.')[2] for name in names)})"
