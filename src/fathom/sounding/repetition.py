"""Finds the steps of a program without marks: the period at which its work repeats.

Work is a sequence of symbols: kernel families in the order of a stream, or else the ops of a thread. Runs of
symbols (grams) recur one step later; an occasional extra or missing symbol does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.sounding.schema import conform, empty

LEAST_STEPS = 3
LEAST_MATCH = 0.7  # share of the work that must recur one period later
EVEN = 0.1  # mean relative deviation of steps from the period
DRIFT = 0.02  # relative variation of the period's length
GRAMS = (1, 2, 4, 8, 16, 32, 64)
JUDGING = 2  # index into GRAMS of the compared runs: longer than chance, shorter than varying parts
_LONGEST = 1 << 18  # pieces of work searched for the period
_CANDIDATES = 12  # periods tried per length of gram


@dataclass
class _Runs:
    """Grams of one length: `codes` by position, and (code, position) as one sorted number."""

    codes: np.ndarray
    keys: np.ndarray
    order: np.ndarray


def steps_from_repetition(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Steps of one rank, from the launches of its busiest stream, or else the ops of its busiest thread.

    A step opens at the launch call of a recurring piece of work. Empty if work does not repeat three times.
    """
    work = _device_work(kernels, launches) if len(kernels) else _host_work(ops)
    codes = work["what"].rank("dense").fill_null(0).to_numpy().astype(np.int64)
    anchors = find_anchors(codes)
    if len(anchors) < LEAST_STEPS:
        return empty("steps")
    marks = work[anchors]
    rows = pl.DataFrame(
        {
            "step": np.arange(len(marks) - 1),
            "thread": marks["thread"][:-1],
            "mark_ns": marks["start_ns"][:-1],
            "end_ns": marks["start_ns"][1:],
        }
    )
    labels = {"kind": "step", "source": "repetition", "phase": "timeline"}
    return conform("steps", rows.with_columns(**{k: pl.lit(v) for k, v in labels.items()}, burst=pl.lit(0)))


def _device_work(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """thread and start of the launch, and family, for work of the busiest stream."""
    busy = (pl.col("end_ns") - pl.col("start_ns")).sum()
    busiest = kernels.group_by("device", "stream").agg(busy=busy).sort("busy")[-1:]
    calls = launches.select("correlation", "thread", called="start_ns").unique("correlation", keep="first")
    return (
        kernels.join(busiest, on=["device", "stream"], nulls_equal=True)
        .join(calls, on="correlation")
        .sort("start_ns", maintain_order=True)
        .select("thread", start_ns="called", what=pl.coalesce("family", "name"))
    )


def _host_work(ops: pl.DataFrame) -> pl.DataFrame:
    """thread, start and name of the outermost ops of the thread that has most of them."""
    outer = ops.filter(pl.col("parent").is_null() & (pl.col("kind") == "op"))
    busiest = outer["thread"].value_counts(sort=True)["thread"][:1].implode()
    mine = outer.filter(pl.col("thread").is_in(busiest, nulls_equal=True))
    return mine.sort("start_ns", maintain_order=True).select("thread", "start_ns", what="name")


def find_anchors(codes: np.ndarray) -> np.ndarray:
    """Positions in a sequence of symbols at which a period begins; empty if there is none."""
    period = find_period(codes)
    if period is None:
        return np.empty(0, np.int64)
    places = [_regular(runs, period) for runs in _grams(codes)]
    return min((place for place in places if len(place)), key=lambda p: _merit(p, period), default=places[0])


def find_period(codes: np.ndarray) -> int | None:
    """The smallest lag at which the sequence agrees with itself about as well as at any other, or None."""
    codes = codes[:_LONGEST]
    longest = len(codes) // LEAST_STEPS
    runs = _grams(codes)
    if longest < 1 or len(runs) <= JUDGING:
        return None
    lags = sorted({lag for gram in runs for lag in _likely(gram, longest)})
    match = {lag: _agreement(runs[JUDGING], lag) for lag in lags}
    best = max(match.values(), default=0.0)
    if best < LEAST_MATCH:
        return None
    enough = 1 - (1.5 * (1 - best) + 0.002)
    smallest = next(lag for lag in lags if match[lag] >= enough)
    near = [lag for lag in lags if smallest <= lag <= smallest * (1 + DRIFT) + 1]
    return max(near, key=lambda lag: (_agreement(runs[JUDGING], lag, drift=0), -lag))


def _grams(codes: np.ndarray) -> list[_Runs]:
    """Runs of 1, 2, 4 … symbols, numbered for each length; three of the longest fit into the sequence."""
    runs: list[_Runs] = []
    for length in GRAMS:
        if length * LEAST_STEPS > len(codes):
            break
        if runs:
            half = runs[-1].codes
            codes = half[: len(half) - length // 2] * (int(half.max()) + 1) + half[length // 2 :]
        codes = np.unique(codes, return_inverse=True)[1].ravel()
        order = np.argsort(codes, kind="stable")
        runs.append(_Runs(codes, codes[order] * len(codes) + order, order))
    return runs


def _likely(runs: _Runs, longest: int) -> list[int]:
    """The most frequent distances between equal grams."""
    alike = np.diff(runs.codes[runs.order]) == 0
    distances = np.diff(runs.order)[alike]
    counts = np.bincount(distances[distances <= longest], minlength=1)
    commonest = np.argsort(counts, kind="stable")[::-1][:_CANDIDATES]
    return [int(lag) for lag in commonest if counts[lag]]


def _agreement(runs: _Runs, lag: int, drift: float = DRIFT) -> float:
    """Share of the grams that recur one `lag` later, within a relative `drift`."""
    size = len(runs.codes)
    slack = int(lag * drift)
    here = np.arange(size - lag)
    base = runs.codes[: size - lag] * size
    first = base + here + lag - slack
    last = base + np.minimum(here + lag + slack, size - 1)
    keys = runs.keys[np.minimum(np.searchsorted(runs.keys, first), size - 1)]
    return float(np.mean((keys >= first) & (keys <= last)))


def _regular(runs: _Runs, period: int) -> np.ndarray:
    """Positions of the gram that recurs most reliably once per period; empty if none does."""
    expected = len(runs.codes) / period
    counts = np.bincount(runs.codes)
    begins = np.concatenate(([0], np.cumsum(counts)))
    plausible = (counts > 0.7 * expected - 1) & (counts < 1.3 * expected + 1)
    likely = np.flatnonzero(plausible & (counts >= LEAST_STEPS))
    places = [_trimmed(runs.order[begins[code] : begins[code + 1]], period) for code in likely.tolist()]
    regular = [place for place in places if len(place) >= LEAST_STEPS and _unevenness(place, period) < EVEN]
    return min(regular, key=lambda place: _merit(place, period), default=np.empty(0, np.int64))


def _trimmed(places: np.ndarray, period: int) -> np.ndarray:
    """Positions without those before the first and after the last step that are not a period away."""
    even = np.flatnonzero(np.abs(np.diff(places) / period - 1) < EVEN)
    return places[even[0] : even[-1] + 2] if len(even) else places[:0]


def _merit(places: np.ndarray, period: int) -> tuple[int, float, int]:
    """A sort key: most frequent first, then most even, then earliest."""
    return -len(places), round(_unevenness(places, period), 3), int(places[0])


def _unevenness(places: np.ndarray, period: int) -> float:
    return float(np.abs(np.diff(places) / period - 1).mean())
