"""Findings in the report: where they are, and values that do not depend on what a cache stored."""

from __future__ import annotations

import msgspec
import pytest

from fathom.analysis.results import Evidence, Finding, Where
from fathom.report.findings import section
from tests.support.report_samples import gpu


@pytest.mark.parametrize(
    ("folder", "text"),
    [
        ("", "waits"),
        ("/home/someone/project", "waits"),
        ("", "the garbage collector blocks the program " * 3),
    ],
)
def test_the_report_names_the_line_of_a_finding(folder: str, text: str) -> None:
    where = Where(source=f"{folder}/train.py:8")
    evidence = [Evidence(text, 420.0, "ms per step")]
    finding = Finding(
        "host-garbage-collection", "GC", where, evidence, [], 9.0, 8.0, 10.0, 0.9, 0.9, "", "", ""
    )
    lines = [line.plain for line in section(gpu(findings=[finding]), 100)]
    assert all(len(line) <= 100 for line in lines)
    assert any("train.py:8" in line and "420 ms per step" in line for line in lines)


def test_a_count_is_written_like_its_stored_form() -> None:
    fresh = Evidence("workers", 2, "")
    written = msgspec.json.encode(fresh)
    assert msgspec.json.encode(msgspec.json.decode(written, type=Evidence)) == written
    assert isinstance(fresh.value, float)
