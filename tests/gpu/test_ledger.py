"""The ledger of programs whose costs are known, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.conftest import Record

PLANTED_MS = 10.0


def _device(examination: dict[str, Any]) -> dict[str, Any]:
    (device,) = examination["devices"]
    return device


def _ms(examination: dict[str, Any], entry: str) -> float:
    return sum(row["ms"] for row in _device(examination)["ledger"] if row["entry"] == entry)


def _assert_tiles(device: dict[str, Any], clean_ms: float) -> None:
    windows = [w["end_ns"] - w["start_ns"] for w in device["windows"] if w["used"]]
    assert windows
    assert sum(row["ns"] for row in device["profiled_ledger"]) == sum(windows)
    assert sum(row["ms"] for row in device["ledger"]) == pytest.approx(clean_ms)


@pytest.mark.parametrize("program", ["train.py", "graph.py", "streams.py"])
def test_entries_sum_to_the_windows_and_little_is_unexplained(record: Record, program: str) -> None:
    examination = record(program)
    assert examination["integrity"]["ok"], examination["integrity"]
    device = _device(examination)
    assert examination["step"]["clean_ms"] > 0
    _assert_tiles(device, examination["step"]["clean_ms"])
    assert _ms(examination, "compute") > 0
    assert _ms(examination, "idle: unexplained") < 0.03 * device["total_ms"]


@pytest.mark.parametrize(
    ("plant", "entry"),
    [("python", "python"), ("loader", "input"), ("checkpoint", "checkpoint")],
)
def test_a_planted_delay_comes_back_under_its_entry(record: Record, plant: str, entry: str) -> None:
    plain = _ms(record("train.py"), f"idle: {entry}")
    planted = _ms(record("train.py", PLANT=f"{plant}:{PLANTED_MS}"), f"idle: {entry}")
    assert planted - plain == pytest.approx(PLANTED_MS, rel=0.05)


def test_a_sleep_is_blocked_time(record: Record) -> None:
    """A sleep is longer than asked for, by up to a tenth on virtual machines, but not than the step grows."""
    plain, planted = record("train.py"), record("train.py", PLANT=f"sleep:{PLANTED_MS}")
    grown = planted["step"]["clean_ms"] - plain["step"]["clean_ms"]
    assert PLANTED_MS <= _ms(planted, "idle: blocked") <= 1.05 * grown


def test_a_sync_over_a_busy_device_costs_nothing(record: Record) -> None:
    examination = record("train.py", PLANT="item")
    compute = _ms(examination, "compute")
    assert compute > 5, "the device was kept busy for milliseconds"
    assert _ms(examination, "idle: synchronisation") < 0.05 * compute


def test_a_replayed_graph_has_its_kernels_and_steps(record: Record) -> None:
    examination = record("graph.py")
    assert examination["step"]["source"] == "replay"
    launches = sum(row["count"] or 0 for row in _device(examination)["ledger"] if row["entry"] == "compute")
    assert launches >= 20
