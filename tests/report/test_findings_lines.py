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
    assert any("420 ms per step" in line for line in lines) and any("train.py:8" in line for line in lines)


def test_evidence_is_not_cut_to_make_room_for_the_command() -> None:
    words = "time in kernels that run op by op and could be fused"
    evidence = [Evidence(words, 6.87, "ms per step")]
    where = Where(source="/home/someone/a/project/with/a/long/name/train.py:8")
    kind = "framework-not-compiled"
    finding = Finding(kind, "Not compiled", where, evidence, [], 3.0, 1.8, 4.3, 0.27, 0.75, "", "", "")
    below = [line.plain.strip() for line in section(gpu(findings=[finding]), 98)][2:]
    assert below[0] == f"{words}: 6.87 ms per step"
    assert below[1].startswith(f"fathom explain {kind}") and below[1].endswith("train.py:8")


def test_a_count_is_written_like_its_stored_form() -> None:
    fresh = Evidence("workers", 2, "")
    written = msgspec.json.encode(fresh)
    assert msgspec.json.encode(msgspec.json.decode(written, type=Evidence)) == written
    assert isinstance(fresh.value, float)
