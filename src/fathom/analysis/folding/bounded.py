"""Least squares without negative values, of many right-hand sides with one normal matrix.

Block principal pivoting (Portugal, Júdice and Vicente, Mathematics of Computation 63, 1994): guess which
values are zero, solve for the others, and exchange those that violate a bound, all at once. It ends at the
exact solution after a few solves, where coordinate descent needs hundreds of sweeps.
"""

from __future__ import annotations

import numpy as np

from fathom.analysis.intervals import Array

SETTLED = 1e-7  # of the largest value: far below any standard error
EXCHANGES = 100  # after which coordinate descent takes over
PATIENCE = 3  # exchanges of all at once that may fail to lower the number of violations
SWEEPS = 300


def bounded(gram: Array, inverse: Array, right: Array, zero: Array | None = None) -> tuple[Array, Array]:
    """Values, columns x counters, that minimise v'Gv / 2 - r'v with v >= 0, and which of them are bound to 0.

    `inverse` is that of `gram`, zero in columns that do not occur. `zero` is a guess of what is bound to 0.
    """
    free = inverse @ right
    bound = free < 0 if zero is None else zero & (np.diag(gram) > 0)[:, None]
    values = np.maximum(free, 0.0)
    for counter in np.flatnonzero((free < 0).any(axis=0)):
        found = _pivoted(gram, inverse, right[:, counter], free[:, counter], bound[:, counter].copy())
        values[:, counter], bound[:, counter] = found or _descended(
            gram, right[:, counter], values[:, counter]
        )
    bound[:, ~(free < 0).any(axis=0)] = False
    return values, bound


def _pivoted(
    gram: Array, inverse: Array, right: Array, free: Array, bound: Array
) -> tuple[Array, Array] | None:
    """The values of one counter and which are bound; None where exchanges do not end."""
    there = np.diag(gram) > 0
    scale = np.where(there, np.diag(gram), 1.0)
    slack = SETTLED * max(float(np.abs(free).max(initial=0.0)), 1e-300)
    fewest, patience = len(free) + 1, PATIENCE
    for _ in range(EXCHANGES):
        values, slope = _solved(gram, inverse, right, free, bound, there)
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
    gram: Array, inverse: Array, right: Array, free: Array, bound: Array, there: Array
) -> tuple[Array, Array]:
    """The least-squares values where those that are bound are zero, and the slopes of what is minimised."""
    tied = np.flatnonzero(bound)
    if 2 * len(tied) <= there.sum():
        slope = np.zeros(len(free))
        if len(tied):
            slope[tied] = -np.linalg.solve(inverse[np.ix_(tied, tied)], free[tied])
        values = free + inverse[:, tied] @ slope[tied]
        values[tied] = 0.0
        return values, slope
    own = np.flatnonzero(there & ~bound)
    values = np.zeros(len(free))
    values[own] = np.linalg.solve(gram[np.ix_(own, own)], right[own])
    return values, gram[:, own] @ values[own] - right


def _descended(gram: Array, right: Array, values: Array) -> tuple[Array, Array]:
    """Coordinate descent from these values until they are settled."""
    scale = np.diag(gram)
    still = SETTLED * max(float(values.max(initial=0.0)), 1e-300)
    for _ in range(SWEEPS):
        before = values.copy()
        for row in np.flatnonzero(scale > 0):
            values[row] = max(values[row] + (right[row] - gram[row] @ values) / scale[row], 0.0)
        if np.abs(values - before).max() <= still:
            break
    return values, (values == 0) & (scale > 0)
