"""Least squares with one design matrix for all counters, and standard errors for correlated samples."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.folding.shares import Blocks, Shares
from fathom.analysis.folding.solver import bounded
from fathom.analysis.intervals import Array

BLOCK, MOST_BLOCKS = 64, 400  # fewest samples per block; most blocks
INVERTIBLE = 1e-11  # smallest pivot of a matrix that is inverted, relative to its largest element
SINGULAR = 1e-7  # columns are collinear below this eigenvalue of the scaled normal matrix
SPLIT = 0.05  # of a null vector: larger components belong to collinear columns
FEW_BLOCKS = 8  # fewest blocks with a state for which clustered errors are reliable
LEVEL = 0.01  # weight, in samples, of the prior that counters are constant during a launch


class Question(msgspec.Struct, frozen=True):
    """The values that a fit computes: weighted means of columns, with the rows of `blend` (sum 1) as weights.

    `ridge` is added to the normal matrix.
    """

    blend: Array  # states x columns
    ridge: Array


class Fit(msgspec.Struct, frozen=True):
    """Values, standard errors, and errors of ratios, as states x counters.

    `information` is the number of samples within a state that would give its value as precisely.
    """

    values: Array
    errors: Array
    ratio_errors: Array
    information: Array
    zero: Array  # columns x counters: whether the value is at its bound, 0


def level_ridge(level: Array, into: Array, columns: int) -> Array:
    """Return the ridge that pulls parts towards their middle part; `into` gives the column of each part.

    Parts that share a column with their middle, or with others, need none.
    """
    single = np.bincount(into, minlength=columns) == 1
    part = np.flatnonzero((level != np.arange(len(level))) & single[into])
    own, middle = into[part], into[level[part]]
    ridge = np.zeros((columns, columns))
    np.add.at(ridge, (np.r_[own, middle], np.r_[own, middle]), LEVEL)
    np.add.at(ridge, (np.r_[own, middle], np.r_[middle, own]), -LEVEL)
    return ridge


def blocks_of(burst: Array) -> Array:
    """Return the edges of blocks of neighbouring samples within bursts: first rows, then the row count."""
    size = max(BLOCK, -(-len(burst) // MOST_BLOCKS))
    edges = np.concatenate(([0], np.flatnonzero(np.diff(burst)) + 1, [len(burst)]))
    cuts = [
        np.linspace(first, last, max((last - first) // size, 1) + 1).astype(int)
        for first, last in pairwise(edges.tolist())
    ]
    return distinct(np.concatenate(cuts))


def collinear(gram: Array) -> Array:
    """Return the group of each column, from 0; columns of one group are collinear."""
    into = np.arange(len(gram))
    while True:
        merged = _merge(gram, into)
        scale = np.sqrt(np.diag(merged))
        scale[scale == 0] = 1.0
        weights, vectors = np.linalg.eigh(merged / np.outer(scale, scale))
        empty = np.diag(merged) == 0
        singular = (weights < SINGULAR) & (np.abs(vectors[empty]).sum(axis=0) < 0.5)
        if not singular.any():
            return into
        vector = np.abs(vectors[:, np.argmax(singular)])
        same = np.flatnonzero(vector > max(SPLIT, 0.5 * SPLIT * vector.max()))
        if len(same) < 2:
            return into
        target = np.arange(len(merged))
        target[same] = same[0]
        into = np.unique(target, return_inverse=True)[1][into]


def _merge(gram: Array, into: Array) -> Array:
    to = np.zeros((into.max() + 1, len(gram)))
    to[into, np.arange(len(gram))] = 1.0
    return to @ gram @ to.T


def fit(
    design: Shares,
    values: Array,
    known: Array,
    edges: Array,
    asked: Question,
    under: Array,
    zero: Array | None = None,
    *,
    sure: bool = True,
) -> Fit:
    """Return the non-negative least-squares solution for every counter, over the samples in the mask `known`.

    `values` is samples x counters, and `edges` comes from `blocks_of`. `under[k]` is the index of counter k's
    denominator, or k itself if the counter is not a ratio. `zero`, columns x counters, is a guess of the
    values that are 0. Errors are only computed if `sure`, else 0.

    An error is the larger of two errors of the unbounded solution: one robust to unequal variances (HC3:
    MacKinnon and White, Journal of Econometrics 29, 1985), and one robust to correlation within blocks of
    neighbouring samples (clustered, with the same correction for leverage). The second counts only if a state
    occurs in FEW_BLOCKS blocks. States that never occur have no information.
    """
    design = design.only(known)
    blocks, seen = Blocks(design, edges), np.where(known[:, None], values, 0.0)
    right = np.zeros((design.columns, values.shape[1]))
    for rows, columns, part in blocks:
        right[columns] += part.T @ seen[rows]
    gram, occurs = _normal_matrix(design, asked)
    inverse = _inverse(gram)
    solution, zero = bounded(gram, inverse, right, zero)
    own, weights = np.maximum(asked.blend @ solution, 0.0), inverse @ asked.blend.T
    variance = (weights.T * asked.blend).sum(axis=1)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=occurs & (variance > 0))
    if not sure:
        return Fit(own, np.zeros_like(own), np.zeros_like(own), information, zero)
    below = own[:, under]
    spread = _Spread(np.divide(own, below, out=np.zeros_like(own), where=below > 0), under)
    unbounded = inverse @ right
    weight = 1 - np.clip(design.leverage(inverse), 0.0, 0.99)
    for rows, columns, part in blocks:
        residuals = (seen[rows] - part @ unbounded[columns]) / weight[rows, None]
        spread.add(part @ weights[columns], residuals)
    enough = (blocks.occurs() @ (asked.blend > 0).T).sum(axis=0) >= FEW_BLOCKS
    return Fit(own, *spread.errors(enough), information, zero)


def _normal_matrix(design: Shares, asked: Question) -> tuple[Array, Array]:
    """Return X'X with the ridge for states that occur, and a mask of those states."""
    gram, among = design.gram(), asked.blend > 0
    occurs = among @ np.diag(gram) > 0
    return gram + asked.ridge * np.outer(*[occurs @ among] * 2), occurs


class _Spread:
    """Sums of squared residuals, weighted by their influence on values and on ratios of values."""

    def __init__(self, ratio: Array, under: Array) -> None:
        self.ratios = np.flatnonzero(under != np.arange(len(under)))
        self.under, self.ratio = under[self.ratios], ratio[:, self.ratios]
        self.scattered, self.clustered = np.zeros((2, *ratio.shape))
        self.with_under, self.clustered_ratio = np.zeros((2, *self.ratio.shape))

    def add(self, projected: Array, residuals: Array) -> None:
        """Add one block's samples: weights of states (samples x states), residuals (samples x counters)."""
        squared, influence = (projected**2).T, projected.T @ residuals
        self.scattered += squared @ residuals**2
        self.clustered += influence**2
        if len(self.ratios):
            self.with_under += squared @ (residuals[:, self.ratios] * residuals[:, self.under])
            ratios = influence[:, self.ratios] - self.ratio * influence[:, self.under]
            self.clustered_ratio += ratios**2

    def errors(self, enough: Array) -> tuple[Array, Array]:
        """Return standard errors of values and ratios; `enough` masks states whose clustered errors count."""
        ratios = np.zeros_like(self.scattered)
        squares = self.scattered[:, self.ratios], self.scattered[:, self.under]
        scattered = squares[0] - 2 * self.ratio * self.with_under + self.ratio**2 * squares[1]
        ratios[:, self.ratios] = _larger(scattered, self.clustered_ratio, enough)
        return _larger(self.scattered, self.clustered, enough), ratios


def _larger(scattered: Array, clustered: Array, enough: Array) -> Array:
    scattered = np.maximum(scattered, 0.0)
    return np.sqrt(np.where(enough[:, None], np.maximum(clustered, scattered), scattered))


def _inverse(gram: Array) -> Array:
    """Return the inverse over the columns that occur; other rows and columns are zero."""
    occurs = np.flatnonzero(np.diag(gram) > 0)
    inverse = np.zeros_like(gram)
    if len(occurs):
        own = gram[np.ix_(occurs, occurs)]
        inverse[np.ix_(occurs, occurs)] = (
            np.linalg.inv(own) if _sound(own) else np.linalg.pinv(own, hermitian=True)
        )
    return inverse


def _sound(gram: Array) -> bool:
    """Return whether the matrix is far enough from singular to be inverted."""
    try:
        pivots = np.diag(np.linalg.cholesky(gram)) ** 2
    except np.linalg.LinAlgError:
        return False
    return bool((pivots > INVERTIBLE * np.diag(gram).max()).all())
