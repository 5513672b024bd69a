"""The lab's kept results: which of several counts, and which technique is left to judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import lab as results

from fathom.lab import techniques
from fathom.lab.results import Kept, keep
from fathom.referee import Verdict

NAMES = list(techniques())[:3]


def kept(name: str, taken_ns: int, ratio: float, source: str | None = None) -> Kept:
    told: dict[str, Any] = {"margin": 0.01, "baseline": "a", "candidate": "b", "device": "cuda"}
    verdict = Verdict(verdict="faster", ratio=ratio, interval=[ratio, ratio], reasons=[], **told)
    return Kept(name, source or techniques()[name].digest, "cuda", taken_ns, {}, verdict)


def test_the_newest_of_the_present_source_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    keep(kept(NAMES[0], 1, 0.5), "aa", first)
    keep(kept(NAMES[0], 2, 0.6), "bb", second)
    keep(kept(NAMES[1], 1, 0.7), "aa", first)
    keep(kept(NAMES[1], 2, 0.8, "another source"), "bb", second)
    keep(kept(NAMES[2], 1, 0.9, "another source"), "aa", first)
    (first / "machines").mkdir()
    (first / "machines" / "aa.json").write_text(json.dumps({"gpus": [{"name": "A GPU"}]}))
    rows = results.gathered([first, second])
    assert [(row["technique"], row["ratio"]) for row in rows] == sorted(
        zip(NAMES, (0.6, 0.7, 0.9), strict=True)
    )
    assert {row["technique"]: row["gpu"] for row in rows}[NAMES[1]] == "A GPU"
    again = results.gathered([second], rows)
    assert again == rows
    left = results.missing(rows)
    assert NAMES[2] in left and not {*NAMES[:2]} & {*left} and len(left) == len(techniques()) - 2


def test_the_table_marks_what_was_judged_before_its_source_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kept(NAMES[0], 1, 0.5), "aa", tmp_path)
    keep(kept(NAMES[1], 1, 0.5, "another source"), "aa", tmp_path)
    monkeypatch.setattr(results, "RESULT", tmp_path / "lab.json")
    results.RESULT.write_text(json.dumps(results.gathered([tmp_path])))
    head, *lines = results.bench().splitlines()
    assert head.startswith(f"2 of {len(techniques())} techniques: 2 faster; 1 with an earlier source")
    assert sum(" * " in line for line in lines) == 1 and all("2×" in line for line in lines)
