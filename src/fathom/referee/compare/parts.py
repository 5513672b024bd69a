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
class _Apart:
    """Of one part, of the candidate and of the baseline: the squares and the largest of the differences, the
    latter also in relation to the elements; whether the candidate's gaps are the reference's, and the
    baseline's."""

    squares: tuple[float, float]
    largest: tuple[float, float]
    worst: tuple[float, float]
    gaps: tuple[bool, bool]


def nearness(own: Leaf, base: Leaf, ref: Leaf) -> Nearness:
    """The candidate's and the baseline's leaf against the reference's, which have one shape."""
    parts = _parts(own)
    sizes = _each(lambda part: _size(ref.part(part)), parts)
    held = sum(count for count, _ in sizes)
    scale = float(np.sqrt(np.sum([squares for _, squares in sizes]) / held)) if held else 0.0
    found = _each(lambda part: _apart(own.part(part), base.part(part), ref.part(part), scale), parts)
    gaps = any(all(one.gaps[which] for one in found) for which in (0, 1))
    if not held:
        return Nearness(gaps, Errors(0.0, 0.0), Errors(0.0, 0.0))
    if scale == 0:
        wrong = np.max([one.largest for one in found], axis=0)
        return Nearness(gaps, *(Errors(float(w and np.inf), float(w and np.inf)) for w in wrong))
    norms = np.sqrt(np.sum([one.squares for one in found], axis=0) / held) / scale
    worst = np.max([one.worst for one in found], axis=0)
    return Nearness(gaps, *(Errors(float(n), float(w)) for n, w in zip(norms, worst, strict=True)))


def finite(leaf: Leaf) -> bool:
    """Whether none of its numbers is NaN or infinite."""
    return all(_each(lambda part: bool(np.isfinite(leaf.part(part)).all()), _parts(leaf)))


def _parts(leaf: Leaf) -> list[slice]:
    return [slice(at, min(at + PART, leaf.elements)) for at in range(0, leaf.elements, PART)]


def _size(r: np.ndarray) -> tuple[int, float]:
    """How many elements are finite, and the sum of their squares."""
    held = np.isfinite(r)
    kept = np.abs(r if held.all() else r[held])
    return kept.size, float(np.sum(kept * kept))


def _apart(x: np.ndarray, b: np.ndarray, r: np.ndarray, scale: float) -> _Apart:
    """The differences where `r` is finite."""
    gaps = _gaps(x, b, r)
    held = np.isfinite(r)
    if not held.all():
        x, b, r = x[held], b[held], r[held]
    least = np.maximum(np.abs(r), scale or 1.0)
    mine, theirs = (_differences(values, r, least) for values in (x, b))
    squares, largest, worst = zip(mine, theirs, strict=True)
    return _Apart(squares, largest, worst, gaps)


def _differences(values: np.ndarray, r: np.ndarray, least: np.ndarray) -> tuple[float, float, float]:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(values.astype(r.dtype, copy=False) - r)
        squares, largest = float(np.sum(apart * apart)), float(apart.max(initial=0.0))
        apart /= least
        return squares, largest, float(apart.max(initial=0.0))


def _gaps(x: np.ndarray, b: np.ndarray, r: np.ndarray) -> tuple[bool, bool]:
    if all(np.isfinite(values).all() for values in (x, b, r)):
        return True, True
    return same_gaps(x, r, None), same_gaps(x, b, None)


def _each(do: Callable[[slice], T], parts: list[slice]) -> list[T]:
    return [do(part) for part in parts] if len(parts) < 2 else list(_threads().map(do, parts))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), "compare")
