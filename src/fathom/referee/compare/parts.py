"""Compute errors of large results in parts that fit a core's cache, on several cores. The results equal
those of `errors` and `same_gaps` for the whole array."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from fathom.referee.compare.decode import Leaf
from fathom.referee.compare.errors import Errors, same_gaps

PART = 2**16  # elements
MOST_THREADS = 8
T = TypeVar("T")


@dataclass(frozen=True)
class Nearness:
    """Errors of candidate and baseline against the reference; `gaps`: whether the candidate has NaN and
    infinities only where the reference or the baseline has them."""

    gaps: bool
    mine: Errors
    theirs: Errors


@dataclass(frozen=True)
class _Deviation:
    """Deviations in one part, for candidate and baseline: sum of squares, largest difference, largest
    relative difference; and whether the candidate's gaps match the reference's and the baseline's.
    """

    squares: tuple[float, float]
    largest: tuple[float, float]
    worst: tuple[float, float]
    gaps: tuple[bool, bool]


def nearness(own: Leaf, base: Leaf, ref: Leaf) -> Nearness:
    """Compare the candidate's and the baseline's leaf with the reference's, all of one shape."""
    parts = _parts(own)
    sizes = _each(lambda part: _size(ref.part(part)), parts)
    count = sum(count for count, _ in sizes)
    scale = float(np.sqrt(np.sum([squares for _, squares in sizes]) / count)) if count else 0.0
    deviations = _each(lambda part: _deviation(own.part(part), base.part(part), ref.part(part), scale), parts)
    gaps = any(all(part.gaps[which] for part in deviations) for which in (0, 1))
    if not count:
        return Nearness(gaps, Errors(0.0, 0.0), Errors(0.0, 0.0))
    if scale == 0:
        wrong = np.max([part.largest for part in deviations], axis=0)
        return Nearness(gaps, *(Errors(float(w and np.inf), float(w and np.inf)) for w in wrong))
    norms = np.sqrt(np.sum([part.squares for part in deviations], axis=0) / count) / scale
    worst = np.max([part.worst for part in deviations], axis=0)
    return Nearness(gaps, *(Errors(float(n), float(w)) for n, w in zip(norms, worst, strict=True)))


def finite(leaf: Leaf) -> bool:
    """Return whether all numbers of the leaf are finite."""
    return all(_each(lambda part: bool(np.isfinite(leaf.part(part)).all()), _parts(leaf)))


def _parts(leaf: Leaf) -> list[slice]:
    return [slice(at, min(at + PART, leaf.elements)) for at in range(0, leaf.elements, PART)]


def _size(r: np.ndarray) -> tuple[int, float]:
    """Return the number of finite elements, and the sum of their squares."""
    finite = np.isfinite(r)
    kept = np.abs(r if finite.all() else r[finite])
    return kept.size, float(np.sum(kept * kept))


def _deviation(x: np.ndarray, b: np.ndarray, r: np.ndarray, scale: float) -> _Deviation:
    """Return the deviations of candidate `x` and baseline `b` where the reference `r` is finite."""
    gaps = _gaps(x, b, r)
    finite = np.isfinite(r)
    if not finite.all():
        x, b, r = x[finite], b[finite], r[finite]
    least = np.maximum(np.abs(r), scale or 1.0)
    mine, theirs = (_differences(values, r, least) for values in (x, b))
    squares, largest, worst = zip(mine, theirs, strict=True)
    return _Deviation(squares, largest, worst, gaps)


def _differences(values: np.ndarray, r: np.ndarray, least: np.ndarray) -> tuple[float, float, float]:
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.abs(values.astype(r.dtype, copy=False) - r)
        squares, largest = float(np.sum(distances * distances)), float(distances.max(initial=0.0))
        distances /= least
        return squares, largest, float(distances.max(initial=0.0))


def _gaps(x: np.ndarray, b: np.ndarray, r: np.ndarray) -> tuple[bool, bool]:
    if all(np.isfinite(values).all() for values in (x, b, r)):
        return True, True
    return same_gaps(x, r, None), same_gaps(x, b, None)


def _each(do: Callable[[slice], T], parts: list[slice]) -> list[T]:
    return [do(part) for part in parts] if len(parts) < 2 else list(_threads().map(do, parts))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "compare")
