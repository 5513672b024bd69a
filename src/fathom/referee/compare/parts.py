"""Errors of large results: part by part, so that numbers in double precision stay in a core's cache, and on
several cores. What comes out is what `errors` and `same_gaps` say of the whole."""

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
    """Errors of the candidate and of the baseline against the reference; `gaps`: whether the candidate's NaN
    and infinities are where the reference or the baseline has them."""

    gaps: bool
    mine: Errors
    theirs: Errors


@dataclass(frozen=True)
class _Sums:
    """Of one part: how many elements of the reference are finite, their squares, the squares and the largest
    of both differences; whether the candidate's gaps are the reference's, and the baseline's."""

    held: int
    size: float
    squares: tuple[float, float]
    largest: tuple[float, float]
    gaps: tuple[bool, bool]


def nearness(own: Leaf, base: Leaf, ref: Leaf) -> Nearness:
    """The candidate's and the baseline's leaf against the reference's, which have one shape."""
    parts = [slice(at, min(at + PART, own.elements)) for at in range(0, own.elements, PART)]
    sums = _each(lambda part: _sums(own.part(part), base.part(part), ref.part(part)), parts)
    gaps = any(all(found.gaps[which] for found in sums) for which in (0, 1))
    held = sum(found.held for found in sums)
    if not held:
        return Nearness(gaps, Errors(0.0, 0.0), Errors(0.0, 0.0))
    scale = float(np.sqrt(np.sum([found.size for found in sums]) / held))
    if scale == 0:
        wrong = np.max([found.largest for found in sums], axis=0)
        return Nearness(gaps, *(Errors(float(w and np.inf), float(w and np.inf)) for w in wrong))
    norms = np.sqrt(np.sum([found.squares for found in sums], axis=0) / held) / scale
    tops = _each(lambda part: _worst(own.part(part), base.part(part), ref.part(part), scale), parts)
    worst = np.max(tops, axis=0)
    return Nearness(gaps, *(Errors(float(n), float(w)) for n, w in zip(norms, worst, strict=True)))


def _sums(x: np.ndarray, b: np.ndarray, r: np.ndarray) -> _Sums:
    gaps = _gaps(x, b, r)
    size, differences = _apart(x, b, r)
    squares = [float(np.sum(d * d)) for d in differences]
    largest = [float(d.max(initial=0.0)) for d in differences]
    return _Sums(
        size.size, float(np.sum(size * size)), (squares[0], squares[1]), (largest[0], largest[1]), gaps
    )


def _gaps(x: np.ndarray, b: np.ndarray, r: np.ndarray) -> tuple[bool, bool]:
    if all(np.isfinite(values).all() for values in (x, b, r)):
        return True, True
    return same_gaps(x, r, None), same_gaps(x, b, None)


def _worst(x: np.ndarray, b: np.ndarray, r: np.ndarray, scale: float) -> tuple[float, float]:
    size, differences = _apart(x, b, r)
    np.maximum(size, scale, out=size)
    mine, theirs = (float((d / size).max(initial=0.0)) for d in differences)
    return mine, theirs


def _apart(x: np.ndarray, b: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """|r| and |x - r|, |b - r|, where r is finite."""
    held = np.isfinite(r)
    if not held.all():
        x, b, r = x[held], b[held], r[held]
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(r), [np.abs(values.astype(r.dtype, copy=False) - r) for values in (x, b)]


def _each(do: Callable[[slice], T], parts: list[slice]) -> list[T]:
    return [do(part) for part in parts] if len(parts) < 2 else list(_threads().map(do, parts))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "compare")
