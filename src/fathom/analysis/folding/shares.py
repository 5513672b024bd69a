"""The share of each sample that the device spent in each state: a sparse matrix, and its products.

A sample touches only a few of hundreds of states, so products iterate over its entries and their pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np

from fathom.analysis.columns import distinct
from fathom.analysis.folding.states import IDLE, States
from fathom.analysis.intervals import Array, Spans, overlaps

DENSE = 0.002  # one pair of entries takes as long as 1 / DENSE cells of a dense product
MOST_PAIRS = 4_000_000  # most pairs that are kept in memory
ROWS = 2048  # rows of a dense product that are computed at a time


class Shares(msgspec.Struct, frozen=True, dict=True):
    """A sparse matrix in coordinate form, sorted by row: the share (`part`) of each sample in each state.

    Rows are samples, columns states. Entries of the same cell add up.
    """

    row: Array
    column: Array
    part: Array
    rows: int
    columns: int

    def dense(self, first: int, last: int) -> Array:
        """Return rows `first` to `last` as a dense matrix, (last - first) x columns; each row sums to 1."""
        low, high = self.starts[first], self.starts[last]
        place = (self.row[low:high] - first) * self.columns + self.column[low:high]
        size = (last - first) * self.columns
        return np.bincount(place, self.part[low:high], size).reshape(last - first, self.columns)

    def touched(self) -> Array:
        """Return the number of samples in which each state occurs."""
        pairs = distinct(self.row * self.columns + self.column)
        return np.bincount(pairs % self.columns, minlength=self.columns)

    def pooled(self, into: Array, columns: int) -> Shares:
        """Return the shares with each column added to the one that `into` gives."""
        return Shares(self.row, into[self.column], self.part, self.rows, columns)

    def only(self, known: Array) -> Shares:
        """Return the shares with the rows outside the mask emptied."""
        if known.all():
            return self
        kept = known[self.row]
        return Shares(self.row[kept], self.column[kept], self.part[kept], self.rows, self.columns)

    def gram(self) -> Array:
        """Return the matrix X'X, columns x columns."""
        size = self.columns
        if self._dense_is_faster:
            return np.sum([chunk.T @ chunk for chunk in self._chunks()], axis=0)
        first, second, weight = self._pairs
        upper = np.bincount(self.column[first] * size + self.column[second], weight, size * size)
        square = upper.reshape(size, size)
        return (square + square.T) / 2

    def leverage(self, inverse: Array) -> Array:
        """Return x' M x for every row x, with a symmetric M."""
        if self._dense_is_faster:
            return np.concatenate([((chunk @ inverse) * chunk).sum(axis=1) for chunk in self._chunks()])
        first, second, weight = self._pairs
        return np.bincount(
            self.row[first], weight * inverse[self.column[first], self.column[second]], self.rows
        )

    @cached_property
    def starts(self) -> Array:
        """Index of the first entry of each row, and at the end the number of entries."""
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    @property
    def _dense_is_faster(self) -> bool:
        """Whether rows have so many entries that dense products take less time than their pairs."""
        pairs = float((np.diff(self.starts).astype(float) ** 2).sum())
        return pairs > min(DENSE * self.rows * self.columns**2, MOST_PAIRS)

    @cached_property
    def _pairs(self) -> tuple[Array, Array, Array]:
        """All ordered pairs of entries of the same row, and the products of their shares."""
        count = np.diff(self.starts)[self.row]
        first = np.repeat(np.arange(len(self.row)), count)
        before = np.cumsum(count) - count
        second = np.arange(len(first)) - np.repeat(before - self.starts[self.row], count)
        return first, second, self.part[first] * self.part[second]

    def _chunks(self) -> list[Array]:
        edges = [*range(0, self.rows, ROWS), self.rows]
        return [self.dense(first, last) for first, last in pairwise(edges)]


class Blocks:
    """Blocks of neighbouring rows, each as a dense matrix of the few columns that occur in it.

    `edges` are the first rows of the blocks, then the row count.
    """

    def __init__(self, design: Shares, edges: Array) -> None:
        self.design, self.edges = design, edges
        block = np.searchsorted(edges, design.row, "right") - 1
        keys, place = np.unique(block * design.columns + design.column, return_inverse=True)
        self._first = np.searchsorted(keys, np.arange(len(edges)) * design.columns)
        self._columns = keys % design.columns
        self._place = place - self._first[block]

    def __iter__(self) -> Iterator[tuple[slice, Array, Array]]:
        """Iterate over the rows of each block, its columns, and its matrix (rows x columns)."""
        starts, part = self.design.starts, self.design.part
        for number, (first, last) in enumerate(pairwise(self.edges.tolist())):
            columns = self._columns[self._first[number] : self._first[number + 1]]
            entries, width = slice(starts[first], starts[last]), len(columns)
            cell = (self.design.row[entries] - first) * width + self._place[entries]
            own = np.bincount(cell, part[entries], (last - first) * width)
            yield slice(first, last), columns, own.reshape(last - first, width)

    def occurs(self) -> Array:
        """Return a mask, blocks x columns, of the columns that occur in each block."""
        mask = np.zeros((len(self.edges) - 1, self.design.columns), bool)
        mask[np.repeat(np.arange(len(mask)), np.diff(self._first)), self._columns] = True
        return mask


def shares(states: States, starts: Array, ends: Array) -> Shares:
    """Return the shares of sorted samples [start, end), in ns on the kernels' clock."""
    sample, segment, parts = overlaps(Spans(starts, ends), states.spans)
    lengths = (ends - starts).astype(float)
    part = (parts.ends - parts.starts) / lengths[sample]
    idle = np.maximum(1.0 - np.bincount(sample, part, len(starts)), 0.0)
    partly_idle = np.flatnonzero(idle)
    row = np.concatenate((sample, partly_idle))
    order = np.argsort(row, kind="stable")
    column = np.concatenate((states.state[segment], np.full(len(partly_idle), IDLE)))
    both = np.concatenate((part, idle[partly_idle]))
    return Shares(row[order], column[order], both[order], len(starts), len(states.members))


def dense_shares(states: States, starts: Array, ends: Array, into: Array, columns: int) -> Array:
    """Return shares as samples x columns, each state added to column `into[state]`; samples in any order."""
    sample, segment, parts = overlaps(Spans(starts, ends), states.spans)
    part = (parts.ends - parts.starts) / (ends - starts).astype(float)[sample]
    place = sample * columns + into[states.state[segment]]
    matrix = np.bincount(place, part, len(starts) * columns).reshape(len(starts), columns)
    matrix[:, into[IDLE]] += np.maximum(1.0 - np.bincount(sample, part, len(starts)), 0.0)
    return matrix
