"""Least squares with one design for all counters, and errors that hold for correlated samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fathom.analysis.folding.states import Shares
from fathom.analysis.intervals import Array

BLOCK, MOST_BLOCKS = 64, 400  # samples a block at least; blocks at most
SWEEPS, SETTLED = 300, 1e-10
SINGULAR = 1e-7  # eigenvalue of the scaled normal matrix: below it columns cannot be told apart
SPLIT = 0.05  # of a null vector: components above it belong to columns that are mixed up
FEW_BLOCKS = 8  # in which a column occurs: below, errors of blocks say too little


@dataclass(frozen=True)
class Fit:
    """Columns x counters: values, standard errors; `influence` is each block's part in the values' errors.

    `information` is how many samples wholly within a column would tell as much about it.
    """

    values: Array
    errors: Array
    influence: Array  # blocks x columns x counters
    information: Array


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


def fit(design: Shares, values: Array, known: Array, blocks: list[tuple[int, int]]) -> Fit:
    """The non-negative least-squares solution for every counter, whose rows `known` selects.

    Errors are the larger of two, of the solution without bounds: robust to unequal variances (HC3: MacKinnon
    and White, Journal of Econometrics 29, 1985), and robust to correlation within blocks of neighbouring
    samples (clustered, with the same correction for leverage); the latter only where a column occurs in
    FEW_BLOCKS blocks. Columns that never occur have no information.
    """
    gram, right = normal(design, values, known, blocks)
    inverse = _inverse(gram)
    free = inverse @ right
    influence = np.zeros((len(blocks), *right.shape))
    scattered = np.zeros_like(right)
    occurs = np.zeros(design.columns)
    for number, (part, own) in enumerate(_chunks(design, values, known, blocks)):
        projected = part @ inverse
        leverage = np.clip((projected * part).sum(axis=1), 0.0, 0.99)
        left = (own - part @ free) / (1 - leverage)[:, None]
        influence[number] = projected.T @ left
        scattered += (projected**2).T @ left**2
        occurs += part.any(axis=0)
    clustered = (influence**2).sum(axis=0)
    enough = (occurs >= FEW_BLOCKS)[:, None]
    errors = np.sqrt(np.where(enough, np.maximum(clustered, scattered), scattered))
    spread = np.diag(inverse)
    information = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    return Fit(_bounded(gram, right, free), errors, influence, information)


def _inverse(gram: Array) -> Array:
    """The inverse within the columns that occur; the others' rows are zero."""
    there = np.flatnonzero(np.diag(gram) > 0)
    found = np.zeros_like(gram)
    if len(there):
        found[np.ix_(there, there)] = np.linalg.pinv(gram[np.ix_(there, there)], hermitian=True)
    return found


def _bounded(gram: Array, right: Array, free: Array) -> Array:
    """Coordinate descent on all counters at once: counters count, so that no value lies below zero."""
    found = np.maximum(free, 0.0)
    touched = np.flatnonzero((free < 0).any(axis=0))
    own, goal, scale = found[:, touched], right[:, touched], np.diag(gram)
    for _ in range(SWEEPS if len(touched) else 0):
        before = own.copy()
        for row in np.flatnonzero(scale > 0):
            own[row] = np.maximum(own[row] + (goal[row] - gram[row] @ own) / scale[row], 0.0)
        if np.abs(own - before).max() <= SETTLED * max(np.abs(own).max(), 1.0):
            break
    found[:, touched] = own
    return found
