"""The peaks of which MFU and HFU are shares: only shares of the same peak are compared."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fathom.analysis.compare.results import Figure
from fathom.analysis.compare.run import Run
from fathom.units import MS_PER_S

DIFFERENT = 0.05  # relative difference of peaks from which shares of them are not compared
TERA = 1e12


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
