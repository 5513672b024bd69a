"""Find the steps of a trace without marks, from the period at which its work repeats.

Work is a sequence of symbols: the kernel families of one stream in order, or without kernels the ops of one
thread. Runs of symbols (n-grams) recur one step later; an occasional extra or missing symbol does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.sounding.schema import conform, empty

REPETITION = "repetition"  # source of these steps
LEAST_STEPS = 3
LEAST_MATCH = 0.7  # share of the work that must recur one period later
EVEN = 0.1  # largest mean relative deviation of step lengths from the period
DRIFT = 0.02  # allowed relative variation of the period
GRAMS = (1, 2, 4, 8, 16, 32, 64)  # lengths of n-grams in symbols
JUDGING = 2  # index in GRAMS of the length used to judge a period: too long to match by chance, yet robust
_LONGEST = 1 << 18  # symbols searched for the period
_CANDIDATES = 12  # periods tried per n-gram length


@dataclass
class _Runs:
    """N-grams of one length.

    `codes` has the code of the n-gram at each position. `keys` are code × length + position, ascending, and
    `order` are the positions in that order.
    """

    codes: np.ndarray
    keys: np.ndarray
    order: np.ndarray


def steps_from_repetition(kernels: pl.DataFrame, launches: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Return the `steps` table of one rank, from its busiest stream or, without kernels, its busiest thread.

    A step starts at the launch of a piece of work that recurs once per step. The table is empty if the work
    does not repeat at least LEAST_STEPS times.
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
    labels = {"kind": "step", "source": REPETITION, "phase": "timeline"}
    return conform("steps", rows.with_columns(**{k: pl.lit(v) for k, v in labels.items()}, burst=pl.lit(0)))


def _device_work(kernels: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the busiest stream's work in order: `thread` and `start_ns` of its launch, `what` (family)."""
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
    """Return `thread`, `start_ns` and `what` (name) of the outermost ops of the thread with most ops."""
    outer = ops.filter(pl.col("parent").is_null() & (pl.col("kind") == "op"))
    busiest = outer["thread"].value_counts(sort=True)["thread"][:1].implode()
    mine = outer.filter(pl.col("thread").is_in(busiest, nulls_equal=True))
    return mine.sort("start_ns", maintain_order=True).select("thread", "start_ns", what="name")


def find_anchors(codes: np.ndarray) -> np.ndarray:
    """Return the positions in a sequence of symbols at which a period begins; empty if it does not repeat."""
    period = find_period(codes)
    if period is None:
        return np.empty(0, np.int64)
    places = [_regular(runs, period) for runs in _grams(codes)]
    return min((place for place in places if len(place)), key=lambda p: _merit(p, period), default=places[0])


def find_period(codes: np.ndarray) -> int | None:
    """Return the period in symbols, or None if the sequence does not repeat.

    That is the smallest lag at which the sequence agrees with itself about as well as at the best lag.
    """
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
    """Return the n-grams of each length in GRAMS that fits into the sequence at least LEAST_STEPS times."""
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
    """Return the most frequent distances between equal n-grams, up to `longest` symbols."""
    alike = np.diff(runs.codes[runs.order]) == 0
    distances = np.diff(runs.order)[alike]
    counts = np.bincount(distances[distances <= longest], minlength=1)
    commonest = np.argsort(counts, kind="stable")[::-1][:_CANDIDATES]
    return [int(lag) for lag in commonest if counts[lag]]


def _agreement(runs: _Runs, lag: int, drift: float = DRIFT) -> float:
    """Return the share of the n-grams that recur `lag` symbols later, within a relative `drift`."""
    size = len(runs.codes)
    slack = int(lag * drift)
    here = np.arange(size - lag)
    base = runs.codes[: size - lag] * size
    first = base + here + lag - slack
    last = base + np.minimum(here + lag + slack, size - 1)
    keys = runs.keys[np.minimum(np.searchsorted(runs.keys, first), size - 1)]
    return float(np.mean((keys >= first) & (keys <= last)))


def _regular(runs: _Runs, period: int) -> np.ndarray:
    """Return the positions of the n-gram that recurs most evenly once per period; empty if none does."""
    expected = len(runs.codes) / period
    counts = np.bincount(runs.codes)
    begins = np.concatenate(([0], np.cumsum(counts)))
    plausible = (counts > 0.7 * expected - 1) & (counts < 1.3 * expected + 1)
    likely = np.flatnonzero(plausible & (counts >= LEAST_STEPS))
    places = [_trimmed(runs.order[begins[code] : begins[code + 1]], period) for code in likely.tolist()]
    regular = [place for place in places if len(place) >= LEAST_STEPS and _unevenness(place, period) < EVEN]
    return min(regular, key=lambda place: _merit(place, period), default=np.empty(0, np.int64))


def _trimmed(places: np.ndarray, period: int) -> np.ndarray:
    """Return `places` without irregular ones at either end, whose neighbour is not one period away."""
    even = np.flatnonzero(np.abs(np.diff(places) / period - 1) < EVEN)
    return places[even[0] : even[-1] + 2] if len(even) else places[:0]


def _merit(places: np.ndarray, period: int) -> tuple[int, float, int]:
    """Return a sort key: most frequent first, then most even, then earliest."""
    return -len(places), round(_unevenness(places, period), 3), int(places[0])


def _unevenness(places: np.ndarray, period: int) -> float:
    return float(np.abs(np.diff(places) / period - 1).mean())
