"""Measure errors of results against the reference, and diagnose their kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from fathom.referee.compare.decode import Leaf
from fathom.referee.compare.tolerance import Tolerance, coarser, tolerance

RIGHT = 0.01  # least share of right elements at which wrong ones count as not computed
FAR = 0.1  # of the reference's rms: larger than any rounding error


@dataclass(frozen=True)
class Errors:
    """`norm`: ‖x − r‖ / ‖r‖; `worst`: the largest |xᵢ − rᵢ| / max(|rᵢ|, rms(r))."""

    norm: float
    worst: float

    def within(self, allowed: Tolerance) -> bool:
        """Return whether both errors are within the tolerance; NaN is not."""
        return self.norm <= allowed.norm and self.worst <= allowed.worst


def errors(values: np.ndarray, reference: np.ndarray) -> Errors:
    """Return the errors over elements with a finite reference; a reference of zeros tolerates no error.

    Both arrays have the same shape. `reference` is float64 or complex128, and differences have its dtype.
    """
    finite = np.isfinite(reference)
    x, r = values[finite].astype(reference.dtype), reference[finite]
    if not r.size:
        return Errors(0.0, 0.0)
    size, difference = np.abs(r), np.abs(x - r)
    scale = float(np.sqrt(np.mean(size**2)))
    if scale == 0:
        wrong = float(difference.max())
        return Errors(wrong and np.inf, wrong and np.inf)
    norm = float(np.sqrt(np.mean(difference**2)) / scale)
    return Errors(norm, float(np.max(difference / np.maximum(size, scale))))


def same_gaps(values: np.ndarray, reference: np.ndarray, baseline: np.ndarray | None) -> bool:
    """Return whether NaN and infinities match the reference's, or those of the baseline, which may overflow.

    All arrays have the same shape; +inf and -inf differ.
    """
    references = [r for r in (reference, baseline) if r is not None]
    return any(
        np.array_equal(np.isnan(values), np.isnan(r)) and np.array_equal(_infinite(values), _infinite(r))
        for r in references
    )


def _infinite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(values), np.sign(values), 0)


def diagnose(values: np.ndarray, reference: np.ndarray, dtype: str, reduction: int) -> tuple[str, str]:
    """Return (code of a refusal, detail) for numbers beyond their tolerance.

    Both arrays are float64 or complex128 of one shape; `dtype` is that of the result, `reduction` the number
    of terms summed for one element.
    """
    seen = errors(values, reference)
    lower = like(seen.norm, dtype, reduction)
    if lower:
        why = f"{seen.norm:.1e} is too much for {dtype}: {lower} would explain it, or a wrong result"
        return "lower-precision", why
    if part := _part(values, reference, dtype, reduction):
        return "partial-result", part
    return "wrong-result", f"relative error {seen.norm:.1e}, worst element {seen.worst:.1e}"


def like(norm: float, dtype: str, reduction: int) -> str | None:
    """Return the finest precision below `dtype` whose tolerance allows an error of this norm, or None."""
    for lower in coarser(dtype):
        allowed = tolerance(lower, reduction, 1)
        if allowed is not None and norm <= allowed.norm:
            return lower
    return None


def _part(values: np.ndarray, reference: np.ndarray, dtype: str, reduction: int) -> str | None:
    if values.size > 1 and np.all(values == values.flat[0]) and np.ptp(np.abs(reference)) > 0:
        return f"every element is {values.flat[0]:g}"
    allowed = tolerance(dtype, reduction, 1)
    difference, size = np.abs(values - reference), np.abs(reference)
    right = difference <= (allowed.norm if allowed else 0.0) * size
    far = difference > FAR * float(np.sqrt(np.mean(size**2)))
    if right.mean() >= RIGHT and far[~right].mean() >= 0.5:
        return f"{100 * (1 - right.mean()):.1f} % of the elements were not computed"
    return None


def truncated(values: np.ndarray, reference: np.ndarray, dtype: str) -> str | None:
    """Return the narrower format, `bfloat16` or `tf32`, that holds every element exactly, but not most of
    the reference's. None if there is none, for fewer than 64 elements, and for dtypes other than float32.
    """
    if dtype != "float32" or values.size < 64:
        return None
    for name, cut in (("bfloat16", 16), ("tf32", 13)):
        if not _bits(values, cut).any() and np.count_nonzero(_bits(reference, cut)) > 0.5 * values.size:
            return name
    return None


def finer(values: np.ndarray) -> bool:
    """Return whether some of the values have more significant bits than tf32."""
    return bool(_bits(values, 13).any())


def _bits(values: np.ndarray, low: int) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32((1 << low) - 1)


# Results of any size, in parts that fit a core's cache, on several cores, as exact as for the whole array
PART = 2**16  # elements
MOST_THREADS = 8
Measures = tuple[float, float, float]  # sum of squares, largest difference, largest relative difference
T = TypeVar("T")


@dataclass(frozen=True)
class Nearness:
    """Errors of candidate and baseline against the reference; `gaps`: whether the candidate has NaN and
    infinities only where the reference or the baseline has them."""

    gaps: bool
    mine: Errors
    theirs: Errors


def nearness(own: Leaf, base: Leaf, ref: Leaf) -> Nearness:
    """Compare the candidate's and the baseline's leaf with the reference's, all of one shape."""
    parts = _parts(own)
    sizes = _each(lambda part: _size(ref.part(part)), parts)
    count = sum(count for count, _ in sizes)
    scale = float(np.sqrt(np.sum([squares for _, squares in sizes]) / count)) if count else 0.0
    deviations = _each(lambda part: _deviation(own.part(part), base.part(part), ref.part(part), scale), parts)
    gaps = any(all(alike[which] for *_, alike in deviations) for which in (0, 1))
    if not count:
        return Nearness(gaps, Errors(0.0, 0.0), Errors(0.0, 0.0))
    sides = np.array([(mine, theirs) for mine, theirs, _ in deviations])  # by part, side and measure
    largest, worst = sides[..., 1:].max(axis=0).T
    if scale == 0:
        return Nearness(gaps, *(Errors(float(w and np.inf), float(w and np.inf)) for w in largest))
    norms = np.sqrt(sides[..., 0].sum(axis=0) / count) / scale
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


def _deviation(
    x: np.ndarray, b: np.ndarray, r: np.ndarray, scale: float
) -> tuple[Measures, Measures, tuple[bool, bool]]:
    """Return the measures of candidate `x` and baseline `b` where the reference `r` is finite, and whether
    the candidate's gaps match the reference's and the baseline's."""
    gaps = _gaps(x, b, r)
    finite = np.isfinite(r)
    if not finite.all():
        x, b, r = x[finite], b[finite], r[finite]
    least = np.maximum(np.abs(r), scale or 1.0)
    return _differences(x, r, least), _differences(b, r, least), gaps


def _differences(values: np.ndarray, r: np.ndarray, least: np.ndarray) -> Measures:
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
