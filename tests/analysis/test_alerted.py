"""Which recorded steps represent the clean ones: those of the timeline, or those that an alert recorded."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fathom
from fathom.analysis import representative
from fathom.sounding import Manifest, Phase, Rank, Store, Writer, conform

MS = 1_000_000
OP_MS = {"timeline": 1.0, "slow": 8.0}


def recorded(folder: Path, lengths: dict[str, list[float]]) -> Store:
    """A recording of a CPU program whose steps have these lengths in ms; an op fills most of each."""
    at, steps, ops, phases = 10**18, [], [], []
    for burst, (phase, each) in enumerate(lengths.items()):
        phases.append(Phase(0, phase, burst, at, at + int(sum(each) * MS)))
        for ms in each:
            end = at + int(ms * MS)
            about = {"phase": phase, "burst": burst, "thread": 1}
            steps.append(
                {"step": len(steps), "kind": "train", "source": "mark", "mark_ns": at, "end_ns": end, **about}
            )
            if phase in OP_MS:
                op = {"name": f"aten::{phase}", "kind": "op", "start_ns": at, **about}
                ops.append({**op, "id": len(ops), "end_ns": at + int(OP_MS[phase] * MS)})
            at = end
    writer = Writer(folder)
    writer.write(0, "steps", conform("steps", pl.DataFrame(steps)))
    writer.write(0, "ops", conform("ops", pl.DataFrame(ops)))
    manifest = Manifest(name=folder.stem, created_ns=10**18, ranks=[Rank(rank=0)], phases=phases)
    return writer.finish(manifest, {})


FAST, SLOW = [2.0] * 10, [10.0] * 10


def test_after_a_lasting_slowdown_the_steps_of_the_alert_are_analysed(tmp_path: Path) -> None:
    store = recorded(
        tmp_path / "a.fathom", {"timeline": FAST, "clean": [2.0] * 20 + [10.0] * 60, "slow": SLOW}
    )
    result = fathom.open(store.path).examine()
    assert result.step.clean_ms == pytest.approx(10.0)
    entries = {row.detail: row.ms for row in result.devices[0].ledger}
    assert entries["aten::slow"] == pytest.approx(8.0) and "aten::timeline" not in entries
    note = next(row for row in result.abstained if row.what == "the first timeline")
    assert "2 ms" in note.why and "10 ms" in note.why
    assert result.slow == []


@pytest.mark.parametrize(
    "lengths",
    [
        {"timeline": FAST, "clean": [2.0] * 60 + [10.0] * 20, "slow": SLOW},  # most steps were fast
        {"timeline": [3.5] * 10, "clean": [2.0] * 80, "slow": [2.0] * 10},  # profiling made steps longer
        {"timeline": FAST, "clean": [10.0] * 80, "slow": [10.0] * 3},  # too few
        {"timeline": FAST, "clean": [10.0] * 80, "slow": [60.0] * 10},  # slow for another reason
        {"timeline": FAST, "clean": [10.0] * 80},
        {"clean": [10.0] * 80, "slow": SLOW},
        {"timeline": [0.0] * 10, "clean": [10.0] * 80, "slow": SLOW},  # times of a coarse clock
        {"timeline": FAST, "clean": [10.0] * 80, "slow": [0.0] * 10},
    ],
)
def test_else_the_timeline_is(tmp_path: Path, lengths: dict[str, list[float]]) -> None:
    store = recorded(tmp_path / "a.fathom", lengths)
    assert representative(store) == (store, None)
