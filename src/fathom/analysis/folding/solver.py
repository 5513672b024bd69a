"""Solve non-negative least squares for many right-hand sides with one normal matrix.

This is block principal pivoting (Portugal, Júdice and Vicente, Mathematics of Computation 63, 1994): guess
which values are zero, solve for the others, then exchange all values that violate a bound. It finds the exact
solution after a few solves, while coordinate descent needs hundreds of sweeps.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import numpy as np

from fathom.analysis.intervals import Array

SETTLED = 1e-7  # of the largest value: far below any standard error
EXCHANGES = 100  # after these, coordinate descent takes over
PATIENCE = 3  # full exchanges that may fail to reduce the number of violations
SWEEPS = 300


def bounded(gram: Array, inverse: Array, right: Array, zero: Array | None = None) -> tuple[Array, Array]:
    """Return the v >= 0, columns x counters, that minimise v'Gv / 2 - r'v, and a mask of those at the bound.

    `inverse` is the inverse of `gram`, zero in columns that do not occur. `zero` is a guess of the mask.
    """
    free = inverse @ right
    bound = free < 0 if zero is None else zero & (np.diag(gram) > 0)[:, None]
    values = np.maximum(free, 0.0)
    for counter in np.flatnonzero((free < 0).any(axis=0)):
        pivoted = _pivoted(gram, inverse, right[:, counter], free[:, counter], bound[:, counter].copy())
        values[:, counter], bound[:, counter] = pivoted or _descended(
            gram, right[:, counter], values[:, counter]
        )
    bound[:, ~(free < 0).any(axis=0)] = False
    return values, bound


def _pivoted(
    gram: Array, inverse: Array, right: Array, free: Array, bound: Array
) -> tuple[Array, Array] | None:
    """Return one counter's values and the mask of those at the bound; None if exchanges do not converge."""
    occurs = np.diag(gram) > 0
    scale = np.where(occurs, np.diag(gram), 1.0)
    slack = SETTLED * max(float(np.abs(free).max(initial=0.0)), 1e-300)
    fewest, patience = len(free) + 1, PATIENCE
    for _ in range(EXCHANGES):
        values, slope = _solved(gram, inverse, right, free, bound, occurs)
        wrong = (bound & (slope < -slack * scale)) | (~bound & (values < -slack))
        count = int(wrong.sum())
        if not count:
            return np.maximum(values, 0.0), bound
        if count < fewest:
            fewest, patience = count, PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong &= np.arange(len(wrong)) == np.flatnonzero(wrong)[-1]
        bound = bound ^ wrong
    return None


def _solved(
    gram: Array, inverse: Array, right: Array, free: Array, bound: Array, occurs: Array
) -> tuple[Array, Array]:
    """Return the least-squares values with those at the bound set to 0, and the gradient of the objective."""
    bound_rows = np.flatnonzero(bound)
    if 2 * len(bound_rows) <= occurs.sum():
        slope = np.zeros(len(free))
        if len(bound_rows):
            slope[bound_rows] = -np.linalg.solve(inverse[np.ix_(bound_rows, bound_rows)], free[bound_rows])
        values = free + inverse[:, bound_rows] @ slope[bound_rows]
        values[bound_rows] = 0.0
        return values, slope
    own = np.flatnonzero(occurs & ~bound)
    values = np.zeros(len(free))
    values[own] = np.linalg.solve(gram[np.ix_(own, own)], right[own])
    return values, gram[:, own] @ values[own] - right


def _descended(gram: Array, right: Array, values: Array) -> tuple[Array, Array]:
    """Return the values after coordinate descent until convergence, and the mask of those at the bound."""
    scale = np.diag(gram)
    still = SETTLED * max(float(values.max(initial=0.0)), 1e-300)
    for _ in range(SWEEPS):
        before = values.copy()
        for row in np.flatnonzero(scale > 0):
            values[row] = max(values[row] + (right[row] - gram[row] @ values) / scale[row], 0.0)
        if np.abs(values - before).max() <= still:
            break
    return values, (values == 0) & (scale > 0)


_SUFFIXES = ("64_", "", "_64_")
_PREFIXES = ("scipy_openblas", "openblas")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit OpenBLAS to one thread within the context.

    Its other threads spin while they wait. On matrices as small as those of a fold, they cost four times the
    CPU time and gain nothing. Other libraries are left unchanged.
    """
    get, set_to = _functions()
    before = get() if get else 0
    if set_to and before > 1:
        set_to(1)
    try:
        yield
    finally:
        if set_to and before > 1:
            set_to(before)


def _functions() -> tuple[ctypes._FuncPointer | None, ctypes._FuncPointer | None]:
    """Return the functions that get and set the number of OpenBLAS's threads; None if there are none."""
    try:
        library = ctypes.CDLL(str(np.linalg._umath_linalg.__file__))
    except (AttributeError, OSError):
        return None, None
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            set_to = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if get and set_to:
                return get, set_to
    return None, None
