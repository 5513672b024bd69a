"""The host's pace: the search agrees with trying every pace."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fathom.analysis.replay.model import PACES, pace_for

RISES = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=5)
SLOPES = st.lists(st.floats(0.0, 30.0), min_size=5, max_size=5)


@given(RISES, SLOPES, st.floats(0.0, 1.0))
def test_the_least_pace_that_reaches_the_goal(rises: list[float], slopes: list[float], share: float) -> None:
    def length(pace: float) -> float:
        """The longest of several paths, each linear in the pace, as in a replay."""
        return max(rise + slope * pace for rise, slope in zip(rises, slopes, strict=False))

    lengths = np.array([length(pace) for pace in PACES])
    goal = lengths[0] + share * (lengths[-1] - lengths[0])
    asked: list[float] = []

    def counted(pace: float) -> float:
        asked.append(pace)
        return length(pace)

    assert pace_for(goal, counted, float(lengths[-1])) == PACES[max(int(np.argmax(lengths >= goal)), 1)]
    assert len(asked) <= 24
