"""Least squares with one design for all counters, and errors that hold for correlated samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fathom.analysis.folding.states import Shares
from fathom.analysis.intervals import Array

BLOCK, MOST_BLOCKS = 64, 400  # samples a block at least; blocks at most
SWEEPS, SETTLED = 300, 1e-7  # far below any standard error
SINGULAR = 1e-7  # eigenvalue of the scaled normal matrix: below it columns cannot be told apart
SPLIT = 0.05  # of a null vector: components above it belong to columns that are mixed up
FEW_BLOCKS = 8  # in which a state occurs: below, errors of blocks say too little
LEVEL = 0.01  # whole samples' worth of belief that a launch is level


@dataclass(frozen=True)
class Question:
    """What is asked of a fit: values of states, blends of the design's columns, each row summing to 1.

    `ridge` is added to the normal matrix.
    """

    blend: Array  # states x columns
    ridge: Array


@dataclass(frozen=True)
class Fit:
    """States x counters: values, standard errors, and errors of the ratios that were asked for.

    `information` is how many samples wholly within a state would tell as much about it.
    """

    values: Array
    errors: Array
    ratio_errors: Array
    information: Array


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


def blocks_of(burst: Array) -> list[tuple[int, int]]:
    """Stretches of neighbouring samples [first, last) that do not cross bursts."""
    size = max(BLOCK, -(-len(burst) // MOST_BLOCKS))
    edges = np.concatenate(([0], np.flatnonzero(np.diff(burst)) + 1, [len(burst)]))
    found: list[tuple[int, int]] = []
    for first, last in pairwise(edges.tolist()):
        parts = max((last - first) // size, 1)
        cuts = np.linspace(first, last, parts + 1).astype(int).tolist()
        found += pairwise(cuts)
    return [(first, last) for first, last in found if last > first]


def normal(design: Shares, values: Array, known: Array, blocks: list[tuple[int, int]]) -> tuple[Array, Array]:
    """X'X and X'Y over the rows that `known` selects."""
    gram = np.zeros((design.columns, design.columns))
    right = np.zeros((design.columns, values.shape[1]))
    for part, own in _chunks(design, values, known, blocks):
        gram += part.T @ part
        right += part.T @ own
    return gram, right


def _chunks(
    design: Shares, values: Array, known: Array, blocks: list[tuple[int, int]]
) -> Iterator[tuple[Array, Array]]:
    for first, last in blocks:
        kept = known[first:last]
        yield design.dense(first, last)[kept], values[first:last][kept]


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
    blocks: list[tuple[int, int]],
    asked: Question,
    under: Array,
    *,
    sure: bool = True,
) -> Fit:
    """The non-negative least-squares solution for every counter, whose rows `known` selects.

    `under[k]` is the counter to which counter k is a ratio, k itself where it is none.
    Not `sure`: errors are 0.

    Errors are the larger of two, of the solution without bounds: robust to unequal variances (HC3: MacKinnon
    and White, Journal of Econometrics 29, 1985), and robust to correlation within blocks of neighbouring
    samples (clustered, with the same correction for leverage); the latter only where a state occurs in
    FEW_BLOCKS blocks. States that never occur have no information.
    """
    gram, right = normal(design, values, known, blocks)
    among = asked.blend > 0
    there = among @ np.diag(gram) > 0
    gram = gram + asked.ridge * np.outer(*[there @ among] * 2)
    inverse = _inverse(gram)
    free = inverse @ right
    spread = _Spread(len(asked.blend), under)
    for part, seen in _chunks(design, values, known, blocks) if sure else ():
        projected = part @ inverse
        leverage = np.clip((projected * part).sum(axis=1), 0.0, 0.99)
        left = (seen - part @ free) / (1 - leverage)[:, None]
        spread.add(projected @ asked.blend.T, left, among @ part.any(axis=0))
    own = np.maximum(asked.blend @ _bounded(gram, right, free), 0.0)
    variance = ((asked.blend @ inverse) * asked.blend).sum(axis=1)
    information = np.divide(1.0, variance, out=np.zeros_like(variance), where=there & (variance > 0))
    below = own[:, under]
    ratio = np.divide(own, below, out=np.zeros_like(own), where=below > 0)
    return Fit(own, spread.errors(0.0), spread.errors(ratio), information)


class _Spread:
    """Sums of squared residuals, block by block, as they bear on values."""

    def __init__(self, states: int, under: Array) -> None:
        self.under = under
        self.influence: list[Array] = []
        self.own, self.with_under = np.zeros((2, states, len(under)))
        self.occurs = np.zeros(states)

    def add(self, projected: Array, left: Array, occurs: Array) -> None:
        """One block's samples: states' weights in each, what is left of its counters, the states in it."""
        self.influence.append(projected.T @ left)
        squared = (projected**2).T
        self.own += squared @ left**2
        self.with_under += squared @ (left * left[:, self.under])
        self.occurs += occurs

    def errors(self, ratio: Array | float) -> Array:
        """Of values less `ratio` times what they are ratios to."""
        scattered = self.own - 2 * ratio * self.with_under + ratio**2 * self.own[:, self.under]
        clustered = np.zeros_like(scattered)
        for one in self.influence:
            clustered += (one - ratio * one[:, self.under]) ** 2
        enough = (self.occurs >= FEW_BLOCKS)[:, None]
        return np.sqrt(np.where(enough, np.maximum(clustered, scattered), np.maximum(scattered, 0.0)))


def _inverse(gram: Array) -> Array:
    """The inverse within the columns that occur; the others' rows are zero."""
    there = np.flatnonzero(np.diag(gram) > 0)
    found = np.zeros_like(gram)
    if len(there):
        found[np.ix_(there, there)] = np.linalg.pinv(gram[np.ix_(there, there)], hermitian=True)
    return found


def _bounded(gram: Array, right: Array, free: Array) -> Array:
    """Coordinate descent on all counters at once, each until it is settled: no value lies below zero."""
    found = np.maximum(free, 0.0)
    left, scale = np.flatnonzero((free < 0).any(axis=0)), np.diag(gram)
    still = SETTLED * np.maximum(np.abs(found).max(axis=0, initial=0.0), 1.0)
    for _ in range(SWEEPS):
        if not len(left):
            break
        own, goal = found[:, left], right[:, left]
        for row in np.flatnonzero(scale > 0):
            own[row] = np.maximum(own[row] + (goal[row] - gram[row] @ own) / scale[row], 0.0)
        change = np.abs(own - found[:, left]).max(axis=0)
        found[:, left] = own
        left = left[change > still[left]]
    return found
