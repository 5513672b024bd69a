"""Describe the launches of each step as comparable numbers, and align two steps by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

Pairs = np.ndarray  # rows of (position in the first, position in the second), ascending in both
LEAST_RUN = 2  # shorter matches between differing launches are chance
REACH = 2000  # launches by which equal ones may be moved
CELLS = 40_000_000  # of the search, of four bytes each: long sequences have a shorter reach
_WAITS = r"^(cuda|hip|cu)(Device|Stream|Ctx)Synchronize"
_NOTHING = -1
_KEY = ["phase", "burst", "correlation"]
_COLUMNS = ("code", "named", "row", "start_ns", "end_ns", "work_ns")


@dataclass
class Occurrence:
    """One step, with arrays over its calls that launched device work or waited for it, in order.

    `codes` are equal numbers for equal work with equal launch shape, in all steps. `names` are equal for
    kernels of equal name. `rows` are indices into the table of launches. `starts` and `ends` are times in ns,
    `works` the durations of the device work.
    """

    phase: str
    burst: int
    kind: str | None
    start: int
    end: int
    codes: np.ndarray
    names: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    works: np.ndarray


def occurrences(tables: dict[str, pl.DataFrame], steps: pl.DataFrame) -> list[Occurrence]:
    """Return the steps (phase, burst, kind, mark_ns, end_ns) with their launches."""
    pieces = _pieces(tables["launches"], tables["kernels"], steps)
    by_burst = dict(iter(pieces.group_by("phase", "burst")))
    result = []
    for step in steps.select("phase", "burst", "kind", "mark_ns", "end_ns").iter_rows(named=True):
        rows = by_burst.get((step["phase"], step["burst"]), pieces.clear())
        rows = rows.filter(pl.col("start_ns") >= step["mark_ns"], pl.col("start_ns") < step["end_ns"])
        columns = (rows[name].to_numpy() for name in _COLUMNS)
        bounds = step["mark_ns"], step["end_ns"]
        result.append(Occurrence(step["phase"], step["burst"], step["kind"], *bounds, *columns))
    return result


def _pieces(launches: pl.DataFrame, kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the calls in order.

    Columns: phase, burst, row, start_ns, end_ns, code, named (code of the name), work_ns.
    """
    bursts = steps.select("phase", "burst").unique()
    calls = launches.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    calls = calls.drop_nulls("correlation").join(bursts, on=["phase", "burst"], how="semi")
    work = kernels.join(bursts, on=["phase", "burst"], how="semi").sort("start_ns")
    work = work.with_columns(
        code=pl.struct("kind", "name", "grid", "block").hash(), named=pl.col("name").hash()
    )
    lasts = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("work_ns")
    what = work.group_by(_KEY).agg(_all_of_it("code"), _all_of_it("named"), lasts)
    waits = pl.col("code").is_null() & pl.col("api").str.contains(_WAITS)
    joined = calls.join(what, on=_KEY, how="left").with_columns(
        pl.when(waits).then(pl.lit(0, pl.UInt64)).otherwise(name).alias(name) for name in ("code", "named")
    )
    return joined.drop_nulls("code").sort("phase", "burst", "correlation", "start_ns")


def _all_of_it(code: str) -> pl.Expr:
    """Return an expression: one number for all work of a call, because a graph launch starts many kernels."""
    codes = pl.col(code)
    return pl.struct(codes.first(), codes.sum().alias("sum"), pl.len()).hash().alias(code)


def matching_pairs(first: np.ndarray, other: np.ndarray) -> Pairs:
    """Return pairs of positions with equal codes: all if the sequences are equal, else those of common runs.

    The common start and end are paired first, so that only the part between them is searched.
    """
    short = min(len(first), len(other))
    if len(first) == len(other) and (first == other).all():
        return _steps(0, 0, len(first))
    head = _alike(first[:short], other[:short])
    rest = short - head
    tail = _alike(first[len(first) - rest :][::-1], other[len(other) - rest :][::-1])
    middle = _common(first[head : len(first) - tail], other[head : len(other) - tail]) + head
    return np.concatenate([_steps(0, 0, head), middle, _steps(len(first) - tail, len(other) - tail, tail)])


def _common(first: np.ndarray, other: np.ndarray) -> Pairs:
    """Return pairs of a longest common subsequence of at least LEAST_RUN neighbours.

    Positions are compared if they differ by at most a reach more than the lengths: `lengths` has a row for
    each position in the first, and a column for each difference. Sequences that need more than CELLS have
    nothing in common.
    """
    more = len(other) - len(first)
    reach = min(REACH, (CELLS // max(len(first), 1) - abs(more)) // 2)
    if not len(first) or not len(other) or reach < 0:
        return _steps(0, 0, 0)
    low, width = min(0, more) - reach, abs(more) + 2 * reach + 1
    codes = np.unique(np.concatenate([first, other]), return_inverse=True)[1]
    first, other = codes[: len(first)], codes[len(first) :]
    padded = np.full(len(first) + width, _NOTHING)
    padded[-low : len(other) - low] = other
    lengths = np.zeros((len(first) + 1, width + 1), np.int32)
    for row, code in enumerate(first):
        above = lengths[row]
        best = np.maximum(above[1:], above[:-1] + (padded[row : row + width] == code))
        np.maximum.accumulate(best, out=lengths[row + 1, :-1])
    return _in_runs(_traced(lengths, first, other, low))


def _traced(lengths: np.ndarray, first: np.ndarray, other: np.ndarray, low: int) -> Pairs:
    """Return the pairs of a longest common subsequence from its lengths, going back from the end."""
    pairs, row, place = [], len(first), len(other)
    last = lengths.shape[1] - 2
    while row and place:
        column = place - row - low
        if first[row - 1] == other[place - 1]:
            row, place = row - 1, place - 1
            pairs.append((row, place))
        elif not column or (column < last and lengths[row - 1, column + 1] >= lengths[row, column - 1]):
            row -= 1
        else:
            place -= 1
    return np.array(pairs[::-1], np.int64).reshape(-1, 2)


def _in_runs(pairs: Pairs) -> Pairs:
    """Return the pairs that have LEAST_RUN neighbours or more in a row."""
    run = np.cumsum(np.concatenate([[0], (np.diff(pairs, axis=0) != 1).any(axis=1)])[: len(pairs)])
    return pairs[np.bincount(run)[run] >= LEAST_RUN] if len(pairs) else pairs


def _alike(first: np.ndarray, other: np.ndarray) -> int:
    """Return the length of the common start."""
    differ = np.flatnonzero(first != other)
    return int(differ[0]) if len(differ) else len(first)


def _steps(first: int, second: int, size: int) -> Pairs:
    along = np.arange(size)
    return np.stack([first + along, second + along], axis=1)


def nearest(wanted: np.ndarray, known: Iterable[np.ndarray]) -> int | None:
    """Return the index of the known sequence that shares most codes with `wanted`; None if none does."""
    counts = Counter(wanted.tolist())
    shared = [(counts & Counter(codes.tolist())).total() for codes in known]
    best = max(range(len(shared)), key=lambda at: (shared[at], at), default=None)
    return best if best is not None and shared[best] else None
