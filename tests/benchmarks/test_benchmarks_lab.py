"""The lab's kept results: which of several counts, and which technique is left to judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.referee import lab as results
from fathom.lab import techniques
from fathom.lab.running import Kept, keep
from fathom.machine.ceilings import Ceiling, to_records
from fathom.referee import Verdict

NAMES = list(techniques())[:3]


def kept(name: str, taken_ns: int, ratio: float, source: str | None = None) -> Kept:
    record: dict[str, Any] = {"margin": 0.01, "baseline": "a", "candidate": "b", "device": "cuda"}
    verdict = Verdict(verdict="faster", ratio=ratio, interval=[ratio, ratio], reasons=[], **record)
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


def test_fractions_that_are_missing_are_those_of_a_machine_with_the_same_gpu() -> None:
    ceilings = {"hbm.read": 4e12, "matmul.bf16": 8e14, "host.read": 1e11, "host.matmul.fp32": 1e12}
    known = to_records(
        Ceiling(id=name, value=rate, unit="/s", low=rate, high=rate, samples=1, device=place)
        for name, rate in ceilings.items()
        for place in [None if name.startswith("host") else 0]
    )
    machine = {"gpus": [{"name": "A GPU"}], "ceilings": known}

    def row(gpu: str, cache: str, ceiling: Any = None) -> dict[str, Any]:
        side = {"ns": 1e6, "samples": 8, "ceiling": ceiling}
        timing = {"cache": cache, "plain": side | {"ns": 2e6}, "tuned": dict(side)}
        return {"gpu": gpu, "work": {"bytes": 2e9 if cache else 1e7}, "timings": [timing]}

    was = {"fraction": 0.3, "bound": "l2", "at_ceiling_ns": 3e5}
    rows = [row("A GPU", "cold"), row("A GPU", ""), row("Another", "cold"), row("A GPU", "cold", was)]
    results.place(rows, machine)
    said = [row["timings"][0]["tuned"]["ceiling"] for row in rows]
    assert (said[0]["bound"], said[0]["fraction"]) == ("hbm", pytest.approx(0.5))
    assert rows[0]["timings"][0]["plain"]["ceiling"]["fraction"] == pytest.approx(0.25)
    assert (said[1]["bound"], said[1]["fraction"]) == ("host memory", pytest.approx(0.1))
    assert said[2:] == [None, was] and ["ceilings_of" in row for row in rows] == [True, True, False, False]
    with pytest.raises(SystemExit, match="measured"):
        results.place(rows, machine | {"ceilings": known[:2]})
