"""The tree of operators as arrays: who called whom, who has a formula, whose parts do the work."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from fathom.analysis.work.names import COMPOSITE, MOVES, WHOLE, WITHOUT_WORK
from fathom.analysis.work.registry import is_known, is_product

NONE = -1  # no row
_DENSE = 64  # times as many keys as rows: up to there a table of all keys is quicker than a search
BURST = ["phase", "burst"]  # a stretch of recording without a break
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Tree(msgspec.Struct, frozen=True):
    """Arrays over the rows of a table of ops."""

    parent: Rows  # row of the caller, or NONE
    known: Flags  # there is a formula
    idle: Flags  # a view, metadata, or a part of what is counted whole: no work by definition
    composite: Flags  # its parts do the work, where they are seen
    covered: Flags  # a descendant carries its work


def rows_of(ops: pl.DataFrame, table: pl.DataFrame, column: str) -> Rows:
    """The row of the op that `column` of `table` names in the same burst, NONE where there is none."""
    if not ops.height:
        return np.full(table.height, NONE)
    keys, wanted = _keys(ops, ops, "id"), _keys(ops, table, column)
    most = int(keys.max())
    if most <= _DENSE * len(keys):
        place = np.full(most + 2, NONE)
        known = np.flatnonzero(keys >= 0)[::-1]  # of equal ones the first counts
        place[keys[known]] = known
        return place[np.where((wanted >= 0) & (wanted <= most), wanted, most + 1)]
    order = np.argsort(keys, kind="stable")
    found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where((wanted >= 0) & (keys[found] == wanted), found, NONE)


def _keys(ops: pl.DataFrame, table: pl.DataFrame, column: str) -> Rows:
    """One number for burst and id, as ids may begin anew in every burst; negative where either is missing."""
    low, high, most = _extent(ops)
    names = table["phase"].fill_null("")
    phase = np.full(table.height, NONE)
    for number_of_phase, name in enumerate(ops["phase"].fill_null("").unique().sort().to_list()):
        phase[(names == name).to_numpy()] = number_of_phase
    burst, number = _numbers(table["burst"], low - 1), _numbers(table[column], NONE)
    usable = (number >= 0) & (number <= most) & (phase >= 0) & (burst >= low - 1) & (burst <= high)
    code = phase * (high - low + 2) + (burst - (low - 1))
    return np.where(usable, code * (most + 1) + number, NONE)


def _numbers(column: pl.Series, missing: int) -> Rows:
    return column.cast(pl.Int64).fill_null(missing).to_numpy()


def _extent(ops: pl.DataFrame) -> tuple[int, int, int]:
    """The first and last burst, and the largest id."""
    burst = ops["burst"]
    low, high, most = (int(one or 0) for one in (burst.min(), burst.max(), ops["id"].max()))  # type: ignore[arg-type]
    return low, high, most


def grow(ops: pl.DataFrame) -> Tree:
    """The tree of the ops in `ops` (columns id, parent, name, phase, burst)."""
    parent = rows_of(ops, ops, "parent")
    names = ops["name"].fill_null("").unique()
    codes = _codes(ops["name"].fill_null(""), names)
    inside = _below(parent, _flags(names, codes, WHOLE.__contains__))
    known = _flags(names, codes, is_known) & ~inside
    composite = _flags(names, codes, lambda n: n in COMPOSITE or n.startswith("aten::_foreach_"))
    product = _flags(names, codes, is_product)
    move = _flags(names, codes, MOVES.__contains__)
    parts = np.where(product, _above(parent, product), _above(parent, known & ~move))
    parts |= move & _above(parent, known)
    covered = (composite & parts) | _wraps_itself(parent, codes, known)
    idle = _flags(names, codes, WITHOUT_WORK.__contains__) | inside
    return Tree(parent, known, idle, composite, covered)


def signatures(ops: pl.DataFrame, rows: Rows) -> pl.Series:
    """A number for what each op in `rows` was called with; equal for equal calls."""
    calls = ops.select(pl.struct("name", "shapes", "dtypes", "values").alias("call"))[rows]
    return calls["call"].hash()


def nearest(tree: Tree, rows: Rows) -> Rows:
    """The op that owns what each row launched: itself if it has a formula, else its nearest such ancestor."""
    owners = np.where((rows >= 0) & tree.known[rows], rows, NONE) if len(tree.known) else rows.copy()
    climbing = np.flatnonzero((owners == NONE) & (rows >= 0))
    current = rows[climbing]
    while len(climbing):
        current = tree.parent[current]
        found = (current >= 0) & tree.known[current] & ~tree.covered[current]
        owners[climbing[found]] = current[found]
        going = (current >= 0) & ~found
        climbing, current = climbing[going], current[going]
    return owners


def _codes(values: pl.Series, names: pl.Series) -> Rows:
    codes = pl.Series(np.arange(len(names)))
    if not len(names):
        return codes.to_numpy()
    return values.replace_strict(names, codes, return_dtype=pl.Int64).to_numpy()


def _flags(names: pl.Series, codes: Rows, test: Callable[[str], bool]) -> Flags:
    return np.fromiter((test(name) for name in names), dtype=bool, count=len(names))[codes]


def _above(parent: Rows, marked: Flags) -> Flags:
    """Rows that have a marked descendant."""
    above = np.zeros(len(parent), dtype=bool)
    frontier = np.flatnonzero(marked)
    while len(frontier):
        frontier = parent[frontier]
        frontier = frontier[(frontier >= 0) & ~above[frontier]]
        above[frontier] = True
    return above


def _below(parent: Rows, marked: Flags) -> Flags:
    """Rows that have a marked ancestor."""
    below = np.zeros(len(parent), dtype=bool)
    while marked.any():
        found = (parent >= 0) & (marked | below)[parent] & ~below
        if not found.any():
            break
        below |= found
    return below


def _wraps_itself(parent: Rows, codes: Rows, known: Flags) -> Flags:
    """Rows whose child is the same operator: the overload that a scalar argument goes through first."""
    wraps = np.zeros(len(parent), dtype=bool)
    inner = np.flatnonzero(known & (parent >= 0))
    outer = parent[inner]
    wraps[outer[codes[outer] == codes[inner]]] = True
    return wraps
