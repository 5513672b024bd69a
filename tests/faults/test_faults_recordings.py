"""The recordings of an H200, diagnosed where there is none: not worse than when they were last scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.examined import cases
from faults.score import RESULTS, accuracy, false_findings
from tests.support.examined import ARCHIVES, of_archive


@pytest.mark.parametrize("archive", ARCHIVES)
def test_no_cause_is_lost_and_none_is_made_up(archive: Path) -> None:
    scored, result = json.loads(RESULTS.read_text()), cases(of_archive(archive).items())
    assert result
    assert set(accuracy(result)["not_first"]) <= set(scored["accuracy"]["not_first"])
    assert wrong(false_findings(result)) <= wrong(scored["false"])


def wrong(result: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(item["case"], item["form"], item["finding"]) for item in result}
