"""Who called whom on the host: all events climb at once out of those that are over when they begin."""

from __future__ import annotations

from dataclasses import dataclass

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
    kind = kind[order]
    around = _around(thread[order], start[order], np.where(kind != CALL, end[order], start[order]))
    rows = np.full((CALL, len(order)), NONE)
    for what in range(CALL):
        nearest = _nearest(around, kind == what)
        rows[what][order] = np.where(nearest == NONE, NONE, order[nearest])
    return Nesting(*rows)


def _around(thread: np.ndarray, start: np.ndarray, until: np.ndarray) -> np.ndarray:
    """The innermost event around each: the one before it, or what is around that, if it is over by then."""
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
    """The innermost of each event's surroundings that is `wanted`; what is not is skipped, ever further."""
    if not len(around):
        return around
    jump = around.copy()
    while True:
        skip = (jump != NONE) & ~wanted[jump]
        if not skip.any():
            return jump
        jump[skip] = jump[jump[skip]]
