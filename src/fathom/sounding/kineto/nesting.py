"""Who called whom on the host: one pass with a stack over each thread's events."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

NONE = -1
OP, USER_FRAME, MODULE_FRAME, CALL = range(4)


@dataclass
class Nesting:
    """For every event given, the row of the innermost op, user frame and module around it; else NONE."""

    op: np.ndarray
    frame: np.ndarray
    module: np.ndarray


def nest(thread: np.ndarray, start: np.ndarray, end: np.ndarray, kind: np.ndarray) -> Nesting:
    """Nest intervals by time, thread by thread. Of two that begin together the longer is the outer one.

    Ops and frames hold what begins while they last, calls hold nothing; `kind` is one of the constants above.
    """
    order = np.lexsort((kind, -end, start, thread))
    around = np.full(len(order), NONE)
    kind = kind[order]
    columns = start[order], end[order], kind != CALL
    edges = [0, *(np.flatnonzero(np.diff(thread[order])) + 1).tolist(), len(order)]
    for first, last in pairwise(edges):
        around[first:last] = _parents(first, *(column[first:last].tolist() for column in columns))
    rows = np.full((CALL, len(order)), NONE)
    for what in range(CALL):
        nearest = _nearest(around, kind == what)
        rows[what][order] = np.where(nearest == NONE, NONE, order[nearest])
    return Nesting(*rows)


def _parents(first: int, begins: list[int], ends: list[int], holds: list[bool]) -> list[int]:
    """For each interval of one thread, counted from `first`, the number of the innermost one around it."""
    parents = []
    rows, until = [NONE], [2**63]
    for row, (begin, end, hold) in enumerate(zip(begins, ends, holds, strict=True), first):
        while until[-1] <= begin:
            until.pop()
            rows.pop()
        parents.append(rows[-1])
        if hold:
            rows.append(row)
            until.append(end)
    return parents


def _nearest(around: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The innermost of each event's surroundings that is `wanted`; what is not is skipped, ever further."""
    if not len(around):
        return around
    jump = around.copy()
    while True:
        skip = (jump != NONE) & ~wanted[jump]
        if not skip.any():
            return jump
        jump[skip] = jump[jump[skip]]
