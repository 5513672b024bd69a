"""Which part of each sample the device spent in each state: a sparse matrix, and its products.

A sample touches a handful of states out of hundreds, so products go over its entries and their pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import msgspec
import numpy as np

from fathom.analysis.folding.states import IDLE, States
from fathom.analysis.intervals import Array, Spans, overlaps

DENSE = 0.002  # pairs of entries that cost as much as one cell of a dense product
MOST_PAIRS = 4_000_000  # that are kept in memory
ROWS = 2048  # of a dense product, at a time


class Shares(msgspec.Struct, frozen=True, dict=True):
    """A sparse matrix, its entries sorted by row: the `part` of each sample (row) in each state (column).

    Entries of the same cell add up.
    """

    row: Array
    column: Array
    part: Array
    rows: int
    columns: int

    def dense(self, first: int, last: int) -> Array:
        """Rows first to last, (last - first) x columns; each sums to one."""
        low, high = self.starts[first], self.starts[last]
        place = (self.row[low:high] - first) * self.columns + self.column[low:high]
        size = (last - first) * self.columns
        return np.bincount(place, self.part[low:high], size).reshape(last - first, self.columns)

    def touched(self) -> Array:
        """In how many samples each state occurs."""
        pairs = np.unique(self.row * self.columns + self.column)
        return np.bincount(pairs % self.columns, minlength=self.columns)

    def pooled(self, into: Array, columns: int) -> Shares:
        """With each column added to the one that `into` names."""
        return Shares(self.row, into[self.column], self.part, self.rows, columns)

    def only(self, known: Array) -> Shares:
        """The same rows, those empty that the mask leaves out."""
        if known.all():
            return self
        kept = known[self.row]
        return Shares(self.row[kept], self.column[kept], self.part[kept], self.rows, self.columns)

    def gram(self) -> Array:
        """X'X."""
        size = self.columns
        if self._crowded:
            return np.sum([one.T @ one for one in self._chunks()], axis=0)
        one, other, weight = self._pairs
        upper = np.bincount(self.column[one] * size + self.column[other], weight, size * size)
        square = upper.reshape(size, size)
        return (square + square.T) / 2

    def leverage(self, inverse: Array) -> Array:
        """x' M x of every row x, of a symmetric M."""
        if self._crowded:
            return np.concatenate([((one @ inverse) * one).sum(axis=1) for one in self._chunks()])
        one, other, weight = self._pairs
        return np.bincount(self.row[one], weight * inverse[self.column[one], self.column[other]], self.rows)

    @cached_property
    def starts(self) -> Array:
        """Where each row's entries begin, and the end."""
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    @property
    def _crowded(self) -> bool:
        """Whether rows hold so many entries that dense products cost less than their pairs."""
        pairs = float((np.diff(self.starts).astype(float) ** 2).sum())
        return pairs > min(DENSE * self.rows * self.columns**2, MOST_PAIRS)

    @cached_property
    def _pairs(self) -> tuple[Array, Array, Array]:
        """All ordered pairs of entries of the same row, and the products of their parts."""
        count = np.diff(self.starts)[self.row]
        one = np.repeat(np.arange(len(self.row)), count)
        before = np.cumsum(count) - count
        other = np.arange(len(one)) - np.repeat(before - self.starts[self.row], count)
        return one, other, self.part[one] * self.part[other]

    def _chunks(self) -> list[Array]:
        edges = [*range(0, self.rows, ROWS), self.rows]
        return [self.dense(first, last) for first, last in pairwise(edges)]


class Blocks:
    """Blocks of neighbouring rows, each as a dense matrix of the few columns that occur in it.

    `edges` are the rows where blocks begin, and the end.
    """

    def __init__(self, design: Shares, edges: Array) -> None:
        self.design, self.edges = design, edges
        block = np.searchsorted(edges, design.row, "right") - 1
        keys, place = np.unique(block * design.columns + design.column, return_inverse=True)
        self._first = np.searchsorted(keys, np.arange(len(edges)) * design.columns)
        self._columns = keys % design.columns
        self._place = place - self._first[block]

    def __iter__(self) -> Iterator[tuple[slice, Array, Array]]:
        """The rows of each block, its columns, and rows x columns."""
        starts, part = self.design.starts, self.design.part
        for number, (first, last) in enumerate(pairwise(self.edges.tolist())):
            columns = self._columns[self._first[number] : self._first[number + 1]]
            entries, width = slice(starts[first], starts[last]), len(columns)
            cell = (self.design.row[entries] - first) * width + self._place[entries]
            own = np.bincount(cell, part[entries], (last - first) * width)
            yield slice(first, last), columns, own.reshape(last - first, width)

    def occurs(self) -> Array:
        """Whether each column occurs in each block: blocks x columns."""
        found = np.zeros((len(self.edges) - 1, self.design.columns), bool)
        found[np.repeat(np.arange(len(found)), np.diff(self._first)), self._columns] = True
        return found


def shares(states: States, starts: Array, ends: Array) -> Shares:
    """The shares of samples [start, end), in nanoseconds of the kernels' clock; samples are sorted."""
    sample, segment, parts = overlaps(Spans(starts, ends), states.spans)
    lengths = (ends - starts).astype(float)
    part = (parts.ends - parts.starts) / lengths[sample]
    idle = np.maximum(1.0 - np.bincount(sample, part, len(starts)), 0.0)
    some = np.flatnonzero(idle)
    row = np.concatenate((sample, some))
    order = np.argsort(row, kind="stable")
    column = np.concatenate((states.state[segment], np.full(len(some), IDLE)))
    both = np.concatenate((part, idle[some]))
    return Shares(row[order], column[order], both[order], len(starts), len(states.members))


def dense_shares(states: States, starts: Array, ends: Array, into: Array, columns: int) -> Array:
    """The same as samples x columns, each state added to the column that `into` names; in any order."""
    sample, segment, parts = overlaps(Spans(starts, ends), states.spans)
    part = (parts.ends - parts.starts) / (ends - starts).astype(float)[sample]
    place = sample * columns + into[states.state[segment]]
    found = np.bincount(place, part, len(starts) * columns).reshape(len(starts), columns)
    found[:, into[IDLE]] += np.maximum(1.0 - np.bincount(sample, part, len(starts)), 0.0)
    return found
