"""Describe the launches of each step as comparable numbers, and align two steps by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import polars as pl

Pairs = np.ndarray  # rows of (position in the first, position in the second), ascending in both
LEAST_RUN = 2  # shorter matches between differing launches are chance
_WAITS = r"^(cuda|hip|cu)(Device|Stream|Ctx)Synchronize"
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
    middle = (first[head : len(first) - tail].tolist(), other[head : len(other) - tail].tolist())
    blocks = SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks()
    matches = [(head + a, head + b, size) for a, b, size in blocks if size >= LEAST_RUN]
    stretches = [(0, 0, head), *matches, (len(first) - tail, len(other) - tail, tail)]
    return np.concatenate([_steps(*stretch) for stretch in stretches])


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
