"""Predictions for ops of a processor save their time in the clean step, not only idle time."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fathom
from fathom.sounding import Manifest, Phase, Rank, Writer, conform

MS = 1_000_000
STEP, OPS = 5, {"aten::short": (0, 1), "aten::long": (1, 4)}  # ms; an op's begin and end in the step


def recorded(folder: Path, clean_ms: float, shorter_ms: float = 0.0) -> fathom.Sounding:
    """Ten profiled steps of 5 ms, of which ops take 4 (every other step: less), and 40 clean steps."""
    at, steps, ops, phases = 10**18, [], [], []
    for burst, (phase, count, ms) in enumerate((("clean", 40, clean_ms), ("timeline", 10, STEP))):
        phases.append(Phase(0, phase, burst, at, at + int(count * ms * MS)))
        for _ in range(count):
            about = {"phase": phase, "burst": burst, "thread": 1}
            end = at + int(ms * MS)
            steps.append(
                {"step": len(steps), "kind": "train", "source": "mark", "mark_ns": at, "end_ns": end, **about}
            )
            for name, (begin, until) in OPS.items() if phase == "timeline" else ():
                less = int(shorter_ms * MS) * (len(steps) % 2) * (name == "aten::long")
                times = {"start_ns": at + begin * MS, "end_ns": at + until * MS - less}
                ops.append({"id": len(ops), "name": name, "kind": "op", **times, **about})
            at = end
    writer = Writer(folder)
    writer.write(0, "steps", conform("steps", pl.DataFrame(steps)))
    writer.write(0, "ops", conform("ops", pl.DataFrame(ops)))
    manifest = Manifest(name="cpu", created_ns=10**18, ranks=[Rank(rank=0)], phases=phases)
    return fathom.open(writer.finish(manifest, {}).path)


@pytest.mark.parametrize("clean_ms", [5.0, 9.0])
@pytest.mark.parametrize(("change", "saved_ms"), [("op:aten::long=0", 3.0), ("op:aten::short=0.5", 0.5)])
def test_an_op_saves_its_own_time(tmp_path: Path, clean_ms: float, change: str, saved_ms: float) -> None:
    result = recorded(tmp_path / "a.fathom", clean_ms).what_if(change)
    assert result.clean_gain.ms == pytest.approx(saved_ms, rel=0.01)
    assert result.clean_predicted_ms == pytest.approx(clean_ms - saved_ms, rel=0.01)


def test_of_shorter_clean_steps_it_saves_the_same_share_of_the_ops(tmp_path: Path) -> None:
    sounding = recorded(tmp_path / "a.fathom", 3.0)
    ops = sum(row.ms for row in sounding.examine().devices[0].ledger if row.entry == "ops")
    assert 0 < ops < 3.0
    assert sounding.what_if("op:aten::long=0").clean_gain.ms == pytest.approx(0.75 * ops, rel=0.01)


def test_all_time_between_ops_is_the_most_that_can_be_saved(tmp_path: Path) -> None:
    sounding = recorded(tmp_path / "a.fathom", 5.0, shorter_ms=1.5)
    result = sounding.what_if("python=0")
    assert result.clean_gain.low < result.clean_gain.ms == result.clean_gain.high
    assert any("cannot be larger" in note for note in result.notes)
    assert not any("cannot be larger" in note for note in sounding.what_if("python=0.5").notes)
