"""Two searches of a program agree if their settings do, or if the gains do within their noise."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tuning.programs import same_gain


def search(*interval: float) -> dict[str, Any]:
    """Return the result of a search; without an interval, nothing was proven."""
    return {
        "settings": ["one"] if interval else [],
        "verdict": {"interval": list(interval)} if interval else None,
    }


@pytest.mark.parametrize(
    ("searches", "agree"),
    [
        ([search(0.4, 0.5), search(0.45, 0.6)], True),
        ([search(0.4, 0.5), search(0.6, 0.7)], False),
        ([search(0.4, 0.5), search()], False),
        ([search(), search()], True),
    ],
)
def test_searches_agree_if_the_intervals_of_their_gains_overlap(
    searches: list[dict[str, Any]], agree: bool
) -> None:
    assert same_gain(searches) == agree
