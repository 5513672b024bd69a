"""How far numbers are from the reference, and what kind of wrong they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fathom.referee.compare.tolerance import Tolerance, coarser, tolerance

RIGHT = 0.01  # of the elements must be right for the rest to count as left out
FAR = 0.1  # of the scale: further than any rounding


@dataclass(frozen=True)
class Errors:
    """`norm`: ‖x − r‖ / ‖r‖; `worst`: the largest |xᵢ − rᵢ| / max(|rᵢ|, rms(r))."""

    norm: float
    worst: float

    def within(self, allowed: Tolerance) -> bool:
        """Whether both are allowed; NaN is not."""
        return self.norm <= allowed.norm and self.worst <= allowed.worst


def errors(found: np.ndarray, reference: np.ndarray) -> Errors:
    """Over the elements where the reference is finite; a reference of zeros allows nothing else."""
    held = np.isfinite(reference)
    x, r = found[held].astype(reference.dtype), reference[held]
    if not r.size:
        return Errors(0.0, 0.0)
    size, difference = np.abs(r), np.abs(x - r)
    scale = float(np.sqrt(np.mean(size**2)))
    if scale == 0:
        wrong = float(difference.max())
        return Errors(wrong and np.inf, wrong and np.inf)
    norm = float(np.sqrt(np.mean(difference**2)) / scale)
    return Errors(norm, float(np.max(difference / np.maximum(size, scale))))


def same_gaps(found: np.ndarray, reference: np.ndarray, baseline: np.ndarray | None) -> bool:
    """Whether NaN and infinities are where the reference or the baseline, which may overflow, has them."""
    references = [r for r in (reference, baseline) if r is not None]
    return any(
        np.array_equal(np.isnan(found), np.isnan(r)) and np.array_equal(_infinite(found), _infinite(r))
        for r in references
    )


def _infinite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isinf(values), np.sign(values), 0)


def diagnose(found: np.ndarray, reference: np.ndarray, dtype: str, reduction: int) -> tuple[str, str]:
    """(reason, detail) for numbers beyond their tolerance."""
    seen = errors(found, reference)
    lower = like(seen.norm, dtype, reduction)
    if lower:
        return (
            "lower-precision",
            f"{seen.norm:.1e} is too much for {dtype}: {lower} explains it, or a wrong result",
        )
    part = _part(found, reference, dtype, reduction)
    if part:
        return "partial-result", part
    return "wrong-result", f"relative error {seen.norm:.1e}, worst element {seen.worst:.1e}"


def like(norm: float, dtype: str, reduction: int) -> str | None:
    """The finest lower precision whose tolerance holds an error of this norm."""
    for lower in coarser(dtype):
        allowed = tolerance(lower, reduction, 1)
        if allowed is not None and norm <= allowed.norm:
            return lower
    return None


def _part(found: np.ndarray, reference: np.ndarray, dtype: str, reduction: int) -> str | None:
    if found.size > 1 and np.all(found == found.flat[0]) and np.ptp(np.abs(reference)) > 0:
        return f"every element is {found.flat[0]:g}"
    allowed = tolerance(dtype, reduction, 1)
    difference, size = np.abs(found - reference), np.abs(reference)
    right = difference <= (allowed.norm if allowed else 0.0) * size
    far = difference > FAR * float(np.sqrt(np.mean(size**2)))
    if right.mean() >= RIGHT and far[~right].mean() >= 0.5:
        return f"{1 - right.mean():.1%} of the elements were not computed"
    return None


def truncated(found: np.ndarray, reference: np.ndarray, dtype: str) -> str | None:
    """The narrower format that holds every element exactly though it does not hold the reference's."""
    if dtype != "float32" or found.size < 64:
        return None
    for name, cut in (("bfloat16", 16), ("tf32", 13)):
        if not _bits(found, cut).any() and np.count_nonzero(_bits(reference, cut)) > 0.5 * found.size:
            return name
    return None


def finer(found: np.ndarray) -> bool:
    """Whether float32 is needed to hold these."""
    return bool(_bits(found, 13).any())


def _bits(values: np.ndarray, low: int) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32) & np.uint32((1 << low) - 1)
