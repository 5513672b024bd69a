"""Time per step that a quicker host can save, on recordings made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from fathom.analysis.results import LedgerRow
from fathom.diagnosis.signals.step import differing, idle_ms

MS = 1_000_000


def recorded(steps: list[dict[str, int]], mean_ms: float, idle: float = 0.0) -> Any:
    """Steps by what their kernels take, in milliseconds by family; each family is one launch."""
    rows = [
        {"family": family, "kind": "compute", "start_ns": 0, "end_ns": ms * MS, "step": number}
        for number, step in enumerate(steps)
        for family, ms in step.items()
    ]
    computing = sum(sum(step.values()) for step in steps) / len(steps)
    ledger = [LedgerRow("compute", "", computing), LedgerRow("idle: python", "", idle)]
    device = SimpleNamespace(ledger=ledger, total_ms=computing + idle)
    return SimpleNamespace(
        kernels=pl.DataFrame(rows),
        window=lambda rows: rows["step"],
        steps=len(steps),
        index=0,
        device=device,
        ledger=ledger,
        account=SimpleNamespace(devices=[device], stretches=[], windows=None),
        step=SimpleNamespace(clean_mean_ms=mean_ms, clean_ms=mean_ms, timeline_ms=device.total_ms),
        read={},
    )


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"a": 4, "b": 1}, {"a": 4, "b": 1}], 0.0),
        ([{"a": 4, "b": 1}, {"a": 5, "b": 1}], 0.0),  # slower, but the same
        ([{"a": 5, "b": 1}, {"a": 5, "c": 1}], 2 / 12),
        ([{"a": 4}, {"b": 4}], 1.0),
        ([{"a": 4}], 0.0),
    ],
)
def test_steps_differ_by_the_kernels_that_not_all_of_them_launch(steps, expected):
    assert differing(recorded(steps, 5.0)) == pytest.approx(expected)


ALIKE, GROWING = [{"a": 8}, {"a": 8}], [{"a": 6, "b": 2}, {"a": 6, "c": 2}]


@pytest.mark.parametrize(
    ("steps", "mean_ms", "expected"),
    [
        (ALIKE, 10.0, 2.0),  # the profiler's part of the wait does not count
        (ALIKE, 7.9, 0.0),  # the clock was slower while it was recorded
        (GROWING, 10.0, 2.0),
        (GROWING, 7.0, 3.5),  # the recorded steps are longer ones: half of their time is idle
    ],
)
def test_what_a_quicker_host_can_save(steps, mean_ms, expected):
    assert idle_ms(recorded(steps, mean_ms, idle=8.0)) == pytest.approx(expected)
