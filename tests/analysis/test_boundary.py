"""Where work ends that was launched before an instant."""

from __future__ import annotations

import numpy as np
import polars as pl

from fathom.analysis.windows import Boundary, make_windows


def test_work_that_was_launched_before_its_burst_reaches_into_no_other() -> None:
    long_ago = -(10**18)
    boundary = Boundary(
        stream=np.array([7, 7, 7]),
        launched=np.array([100, long_ago, 5_100]),
        ends=np.array([300, 5_200, 5_400]),
        burst=np.array([1, 2, 2]),
        usual=7,
    )
    result = boundary.at(np.array([50, 200, 5_000, 5_150]), [None] * 4, np.array([1, 1, 2, 2]))
    assert result.tolist() == [50, 300, 5_200, 5_400]


def queued(first_ns: int, others: int) -> Boundary:
    """Launches of 10 us each; the device begins at `first_ns`, and then runs one after the other."""
    count = others + 1
    launched = np.arange(count) * 10_000
    starts = first_ns + np.arange(count) * 20_000
    alike = np.zeros(count, np.int64)
    return Boundary(alike, launched, starts + 20_000, alike, 0, starts)


def test_a_single_step_begins_at_the_end_of_unrecorded_work():
    assert queued(5_000_000, 100).after_unrecorded(-1_000, 0) == 5_000_000
    assert queued(900_000, 100).after_unrecorded(-1_000, 0) == -1_000, "a launch can take as long"
    assert queued(5_000_000, 3).after_unrecorded(-1_000, 0) == -1_000, "no queue: the device began late"
    assert queued(5_000_000, 100).after_unrecorded(6_000_000, 0) == 6_000_000
    assert queued(5_000_000, 100).after_unrecorded(-1_000, 1) == -1_000, "a burst without work"


def test_only_a_burst_of_one_step_waits_for_unrecorded_work():
    def starts(*marks: int) -> list[int]:
        steps = pl.DataFrame(
            {
                "step": range(len(marks)),
                "parent": [None] * len(marks),
                "kind": ["step"] * len(marks),
                "thread": [1] * len(marks),
                "mark_ns": marks,
                "end_ns": [mark + 1_000_000 for mark in marks],
                "stream": [None] * len(marks),
                "burst": [0] * len(marks),
            },
            schema_overrides={"parent": pl.Int64, "stream": pl.Int64},
        )
        return make_windows(steps, queued(5_000_000, 100)).starts.tolist()

    assert starts(-1_000) == [5_000_000]
    assert starts(-1_000, 400_000)[0] == -1_000
