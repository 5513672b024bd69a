"""Where work ends that was launched before an instant."""

from __future__ import annotations

import numpy as np

from fathom.analysis.windows import Boundary


def test_work_that_was_launched_before_its_burst_reaches_into_no_other() -> None:
    long_ago = -(10**18)
    boundary = Boundary(
        stream=np.array([7, 7, 7]),
        launched=np.array([100, long_ago, 5_100]),
        ends=np.array([300, 5_200, 5_400]),
        burst=np.array([1, 2, 2]),
        usual=7,
    )
    found = boundary.at(np.array([50, 200, 5_000, 5_150]), [None] * 4, np.array([1, 1, 2, 2]))
    assert found.tolist() == [50, 300, 5_200, 5_400]
