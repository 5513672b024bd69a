"""Trials in the running program: steps with a part disabled, compared with unchanged steps."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl

from fathom.analysis.intervals import Array
from fathom.analysis.results import Abstained, Trial
from fathom.analysis.steps import Stretch, stretches
from fathom.timing import RESAMPLES, median, widened_tail
from fathom.units import NS_PER_MS

PREFIX, BASELINE = "trial-", "trial-baseline"
LEAST = 3  # fewest trials, and fewest unchanged stretches, that show their variation
COMPLETE = 0.5  # of the longest stretch's steps: shorter stretches were cut off


class _Block(msgspec.Struct):
    """The steps of one burst: their mean, the middle of the burst in time, and each measured length."""

    mean_ms: float
    middle_ns: float
    each_ms: list[float]
    steps: int


def trial_results(steps: pl.DataFrame, kind: str) -> tuple[list[Trial], list[Abstained]]:
    """Return the result of each kind of trial on steps of `kind`, largest gain first, and those not analysed.

    Each trial is compared with the unchanged stretches before and after it, weighted by their distance in
    time, so that drift cancels. A trial at the edge of the recording has only one neighbour. The gain is the
    mean of these differences. Its interval is from a bootstrap over stretches, widened if there are few (as
    in `timing.ratio`).
    """
    phases = steps["phase"].drop_nulls().unique().to_list()
    kinds = sorted(phase[len(PREFIX) :] for phase in phases if phase.startswith(PREFIX) and phase != BASELINE)
    unchanged = _blocks(steps, kind, BASELINE)
    results: list[Trial] = []
    abstained: list[Abstained] = []
    for name in kinds:
        tried = _blocks(steps, kind, PREFIX + name)
        if len(tried) < LEAST or len(unchanged) < LEAST:
            why = f"{len(tried)} complete trials were recorded, and {LEAST} are needed"
            abstained.append(Abstained(f"what-if {name}", why))  # words: ok
        else:
            results.append(_trial(name, unchanged, tried))
    return sorted(results, key=lambda trial: -trial.gain_ms), abstained


def _blocks(steps: pl.DataFrame, kind: str, phase: str) -> list[_Block]:
    """Return one block per burst; stretches of a burst that steps of other kinds separate are one trial."""
    burst = dict(steps.filter(phase=phase).select("mark_ns", "burst").iter_rows())
    by_burst: dict[int, list[Stretch]] = {}
    for stretch in stretches(steps, kind, phase):
        by_burst.setdefault(burst[stretch.start_ns], []).append(stretch)
    blocks = [block for parts in by_burst.values() if (block := _block(parts)) is not None]
    usual = max((block.steps for block in blocks), default=0)
    return [block for block in blocks if block.steps >= COMPLETE * usual]


def _block(parts: list[Stretch]) -> _Block | None:
    timed = [pair for part in parts for pair in part.durations()]
    count = sum(steps for _, steps in timed)
    if not count:
        return None
    total = sum(ns * steps for ns, steps in timed)
    middle = (parts[0].start_ns + parts[-1].end_ns) / 2
    return _Block(total / count / NS_PER_MS, middle, [ns / NS_PER_MS for ns, _ in timed], count)


def _trial(name: str, unchanged: list[_Block], tried: list[_Block]) -> Trial:
    times, usual = _levels(unchanged)
    middles, without = _levels(tried)
    beside = np.interp(middles, times, usual)
    gain = float((beside - without).mean())
    low, high = _interval(gain, _level(times, usual), _level(middles, without))
    before, after = (np.concatenate([block.each_ms for block in side]) for side in (unchanged, tried))
    return Trial(
        kind=name,
        n=sum(block.steps for block in tried),
        trials=len(tried),
        baseline_ms=median(before),
        trial_ms=median(after),
        baseline_mean_ms=float(beside.mean()),
        trial_mean_ms=float(without.mean()),
        gain_ms=gain,
        low_ms=low,
        high_ms=high,
        share=gain / float(beside.mean()),
    )


def _levels(blocks: list[_Block]) -> tuple[Array, Array]:
    """Return the middle of each stretch in ns, and its mean step in ms."""
    return np.array([block.middle_ns for block in blocks]), np.array([block.mean_ms for block in blocks])


def _level(times: Array, values: Array) -> Array:
    """Return `values` without their linear drift, around their mean."""
    if len(values) <= LEAST:
        return values
    since = times - times.mean()
    drift = (since * values).sum() / (since * since).sum()
    left: Array = values - drift * since
    return left


def _interval(gain: float, unchanged: Array, tried: Array) -> tuple[float, float]:
    """Return the bootstrap interval of the gain in ms.

    Both sides are resampled separately, because neighbouring differences share an unchanged stretch.
    """
    random = np.random.default_rng(0)
    mean_unchanged, mean_tried = (
        side[random.integers(0, len(side), (RESAMPLES, len(side)))].mean(axis=1)
        for side in (unchanged, tried)
    )
    around = gain - (unchanged.mean() - tried.mean())
    tail = widened_tail(0.025, min(len(unchanged), len(tried)))
    low, high = np.quantile(mean_unchanged - mean_tried + around, [tail, 1 - tail])
    return float(low), float(high)
