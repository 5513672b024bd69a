"""Nesting agrees with a stack that is walked event by event, whether the intervals nest or not."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fathom.sounding.events.nesting import CALL, MODULE_FRAME, NONE, OP, USER_FRAME, nest

KINDS = (OP, USER_FRAME, MODULE_FRAME, CALL)
Event = tuple[int, int, int, int]  # thread, start, duration, kind


def walked(events: list[Event]) -> list[list[int]]:
    """For each event the row of the innermost op, user frame and module around it."""
    result = [[NONE] * CALL for _ in events]
    stack: list[tuple[int, int, int]] = []  # end, kind, row
    last = None
    for row in sorted(
        range(len(events)),
        key=lambda r: (events[r][0], events[r][1], -events[r][1] - events[r][2], events[r][3]),
    ):
        thread, start, duration, kind = events[row]
        if thread != last:
            stack, last = [], thread
        while stack and stack[-1][0] <= start:
            stack.pop()
        for _, outer, place in stack:
            result[row][outer] = place
        if kind != CALL:
            stack.append((start + duration, kind, row))
    return result


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 15), st.sampled_from(KINDS)),
        max_size=40,
    )
)
def test_nesting_is_that_of_a_stack(events: list[Event]) -> None:
    thread, start, duration, kind = np.array(events, np.int64).reshape(-1, 4).T
    around = nest(thread, start, start + duration, kind)
    assert np.column_stack([around.op, around.frame, around.module]).tolist() == walked(events)
