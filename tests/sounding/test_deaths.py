"""Ranks that died are named; ranks that Fathom itself ended are not."""

import pytest

from fathom.sounding.raw.deaths import deaths
from fathom.sounding.raw.folder import Process


def rank(number: int, reason: str | None) -> Process:
    records = {"process": [{"rank": number, "world": 2}], "mark": [{"k": 7, "ns": 1}]}
    return Process(number, records | ({} if reason is None else {"end": [{"ns": 2, "reason": reason}]}))


@pytest.mark.parametrize(
    ("reason", "stopped", "named"),
    [
        ("exception KeyboardInterrupt", True, False),  # --stop-after interrupts the program
        ("exception KeyboardInterrupt", False, True),
        ("exception ValueError", True, True),
        (None, True, False),
        (None, False, True),
        ("finished", False, False),
    ],
)
def test_a_rank_that_ended_badly_is_named_unless_fathom_ended_it(
    reason: str | None, stopped: bool, named: bool
) -> None:
    problems = deaths({0: rank(0, "finished"), 1: rank(1, reason)}, stopped)
    assert [problem.text.split()[:2] for problem in problems] == ([["Rank", "1"]] if named else [])
