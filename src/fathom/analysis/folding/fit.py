"""Least squares with one design for all counters, and errors that hold for correlated samples."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from fathom.analysis.folding.bounded import bounded
from fathom.analysis.folding.shares import Blocks, Shares
from fathom.analysis.intervals import Array

BLOCK, MOST_BLOCKS = 64, 400  # samples a block at least; blocks at most
INVERTIBLE = 1e-11  # smallest pivot of a matrix that is inverted, of its largest element
SINGULAR = 1e-7  # eigenvalue of the scaled normal matrix: below it columns cannot be told apart
SPLIT = 0.05  # of a null vector: components above it belong to columns that are mixed up
FEW_BLOCKS = 8  # in which a state occurs: below, errors of blocks say too little
LEVEL = 0.01  # whole samples' worth of belief that a launch is level


class Question(msgspec.Struct, frozen=True):
    """What is asked of a fit: values of states, blends of the design's columns, each row summing to 1.

    `ridge` is added to the normal matrix.
    """

    blend: Array  # states x columns
    ridge: Array


class Fit(msgspec.Struct, frozen=True):
    """States x counters: values, standard errors, and errors of the ratios that were asked for.

    `information` is how many samples wholly within a state would tell as much about it.
    """

    values: Array
    errors: Array
    ratio_errors: Array
    information: Array
    zero: Array  # columns x counters: what is bound to 0


def leaning(level: Array, into: Array, columns: int) -> Array:
    """What belief that parts are as their middles adds to a normal matrix; `into` are the parts' columns.

    Parts that share a column with their middle, or with others, need none.
    """
    alone = np.bincount(into, minlength=columns) == 1
    part = np.flatnonzero((level != np.arange(len(level))) & alone[into])
    one, other = into[part], into[level[part]]
    found = np.zeros((columns, columns))
    np.add.at(found, (np.r_[one, other], np.r_[one, other]), LEVEL)
    np.add.at(found, (np.r_[one, other], np.r_[other, one]), -LEVEL)
    return found


def blocks_of(burst: Array) -> Array:
    """The edges of stretches of neighbouring samples that do not cross bursts: their begins, and the end."""
    size = max(BLOCK, -(-len(burst) // MOST_BLOCKS))
    edges = np.concatenate(([0], np.flatnonzero(np.diff(burst)) + 1, [len(burst)]))
    cuts = [
        np.linspace(first, last, max((last - first) // size, 1) + 1).astype(int)
        for first, last in pairwise(edges.tolist())
    ]
    return np.unique(np.concatenate(cuts))


def mixed_up(gram: Array) -> Array:
    """For each column the group of columns that it cannot be told apart from; groups count from 0."""
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
    """The non-negative least-squares solution for every counter, whose rows `known` selects.

    `edges` are where blocks of neighbouring samples begin, and the end. `under[k]` is the counter to which
    counter k is a ratio, k itself where it is none. `zero` is a guess of what is bound to 0, columns x
    counters. Not `sure`: errors are 0.

    Errors are the larger of two, of the solution without bounds: robust to unequal variances (HC3: MacKinnon
    and White, Journal of Econometrics 29, 1985), and robust to correlation within blocks of neighbouring
    samples (clustered, with the same correction for leverage); the latter only where a state occurs in
    FEW_BLOCKS blocks. States that never occur have no information.
    """
    design = design.only(known)
    blocks, seen = Blocks(design, edges), np.where(known[:, None], values, 0.0)
    right = np.zeros((design.columns, values.shape[1]))
    for rows, columns, part in blocks:
        right[columns] += part.T @ seen[rows]
    gram, among = design.gram(), asked.blend > 0
    there = among @ np.diag(gram) > 0
    gram = gram + asked.ridge * np.outer(*[there @ among] * 2)
    inverse = _inverse(gram)
    found, zero = bounded(gram, inverse, right, zero)
    own, weights = np.maximum(asked.blend @ found, 0.0), inverse @ asked.blend.T
    variance = (weights.T * asked.blend).sum(axis=1)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=there & (variance > 0))
    if not sure:
        return Fit(own, np.zeros_like(own), np.zeros_like(own), information, zero)
    below = own[:, under]
    spread = _Spread(np.divide(own, below, out=np.zeros_like(own), where=below > 0), under)
    counted, free = 1 - np.clip(design.leverage(inverse), 0.0, 0.99), inverse @ right
    for rows, columns, part in blocks:
        left = (seen[rows] - part @ free[columns]) / counted[rows, None]
        spread.add(part @ weights[columns], left)
    enough = (blocks.occurs() @ among.T).sum(axis=0) >= FEW_BLOCKS
    return Fit(own, *spread.errors(enough), information, zero)


class _Spread:
    """Sums of squared residuals as they bear on values, and on their ratios to others."""

    def __init__(self, ratio: Array, under: Array) -> None:
        self.ratios = np.flatnonzero(under != np.arange(len(under)))
        self.under, self.ratio = under[self.ratios], ratio[:, self.ratios]
        self.scattered, self.clustered = np.zeros((2, *ratio.shape))
        self.with_under, self.clustered_ratio = np.zeros((2, *self.ratio.shape))

    def add(self, projected: Array, left: Array) -> None:
        """One block's samples: states' weights in each, and what is left of its counters."""
        squared, influence = (projected**2).T, projected.T @ left
        self.scattered += squared @ left**2
        self.clustered += influence**2
        if len(self.ratios):
            self.with_under += squared @ (left[:, self.ratios] * left[:, self.under])
            ratios = influence[:, self.ratios] - self.ratio * influence[:, self.under]
            self.clustered_ratio += ratios**2

    def errors(self, enough: Array) -> tuple[Array, Array]:
        """Of values, and of their ratios; those of blocks count for states that are in `enough` of them."""
        ratios = np.zeros_like(self.scattered)
        squares = self.scattered[:, self.ratios], self.scattered[:, self.under]
        scattered = squares[0] - 2 * self.ratio * self.with_under + self.ratio**2 * squares[1]
        ratios[:, self.ratios] = _larger(scattered, self.clustered_ratio, enough)
        return _larger(self.scattered, self.clustered, enough), ratios


def _larger(scattered: Array, clustered: Array, enough: Array) -> Array:
    scattered = np.maximum(scattered, 0.0)
    return np.sqrt(np.where(enough[:, None], np.maximum(clustered, scattered), scattered))


def _inverse(gram: Array) -> Array:
    """The inverse within the columns that occur; the others' rows are zero."""
    there = np.flatnonzero(np.diag(gram) > 0)
    found = np.zeros_like(gram)
    if len(there):
        own = gram[np.ix_(there, there)]
        found[np.ix_(there, there)] = (
            np.linalg.inv(own) if _sound(own) else np.linalg.pinv(own, hermitian=True)
        )
    return found


def _sound(gram: Array) -> bool:
    """Whether the matrix is far enough from singular to be inverted as it is."""
    try:
        pivots = np.diag(np.linalg.cholesky(gram)) ** 2
    except np.linalg.LinAlgError:
        return False
    return bool((pivots > INVERTIBLE * np.diag(gram).max()).all())
