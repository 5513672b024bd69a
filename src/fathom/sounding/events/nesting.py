"""Which op is around which: nest intervals by time, per thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

NONE = -1
OP, USER_FRAME, MODULE_FRAME, CALL = range(4)


@dataclass
class Nesting:
    """For every event, the index of the innermost op, user frame and module around it, or NONE."""

    op: np.ndarray
    frame: np.ndarray
    module: np.ndarray


def nest(thread: np.ndarray, start: np.ndarray, end: np.ndarray, kind: np.ndarray) -> Nesting:
    """Nest intervals by time, per thread. If two begin at the same time, the longer one is outside.

    Ops and frames contain the events that begin during them; calls contain none. `kind` has one of the
    constants above for each event.
    """
    order = np.lexsort((kind, -end, start, thread))
    kind = kind[order]
    around = _around(thread[order], start[order], np.where(kind != CALL, end[order], start[order]))
    rows = np.full((CALL, len(order)), NONE)
    for what in range(CALL):
        nearest = _nearest(around, kind == what)
        rows[what][order] = np.where(nearest == NONE, NONE, order[nearest])
    return Nesting(*rows)


def _around(thread: np.ndarray, start: np.ndarray, until: np.ndarray) -> np.ndarray:
    """Return the index of the innermost event around each event, or NONE.

    That is the preceding event or, if it has ended, the event around it, and so on.
    """
    around = np.arange(len(start)) - 1
    around[1:][thread[1:] != thread[:-1]] = NONE
    open_ended = np.flatnonzero(around != NONE)
    while len(open_ended):
        before = around[open_ended]
        over = (before != NONE) & (until[before] <= start[open_ended])
        open_ended = open_ended[over]
        around[open_ended] = around[before[over]]
    return around


def _nearest(around: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the index of the innermost `wanted` event around each, or NONE, by pointer doubling."""
    if not len(around):
        return around
    jump = around.copy()
    while True:
        skip = (jump != NONE) & ~wanted[jump]
        if not skip.any():
            return jump
        jump[skip] = jump[jump[skip]]


def through(values: np.ndarray, rows: np.ndarray) -> pl.Series:
    """Return `values` at the indices `rows`, null for NONE."""
    taken = values[np.maximum(rows, 0)] if len(values) else np.zeros(len(rows), np.int64)
    return pl.Series(taken).set(pl.Series(rows == NONE), None)
