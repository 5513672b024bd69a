"""Tests that share a recording run in one worker, or each worker would examine or record it again."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("scheduling")
def test_a_groups_name_reaches_the_scheduler(request: pytest.FixtureRequest) -> None:
    """pytest-xdist passes it as a suffix of the test's id, which pytest 9.2 drops silently."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@scheduling")
