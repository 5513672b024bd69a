"""The recordings of an H200, diagnosed where there is none: not worse than when they were last scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.examined import KEPT, cases_of
from faults.kept import archives
from faults.score import RESULTS, accuracy, false_findings


@pytest.mark.parametrize("archive", archives(KEPT), ids=lambda archive: archive.name.split(".tar")[0])
def test_no_cause_is_lost_and_none_is_made_up(archive: Path) -> None:
    scored, cases = json.loads(RESULTS.read_text()), cases_of(archive)
    assert cases
    assert set(accuracy(cases)["not_first"]) <= set(scored["accuracy"]["not_first"])
    assert wrong(false_findings(cases)) <= wrong(scored["false"])


def wrong(found: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(one["case"], one["form"], one["finding"]) for one in found}
