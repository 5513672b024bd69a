"""A program that leaves the GPU alone is recorded, and ends."""

from __future__ import annotations

from tests.gpu.conftest import Record


def test_a_program_without_cuda_ends_after_its_recording(record: Record) -> None:
    examination = record("on_cpu.py")  # Kineto would wait for a call of CUDA that never comes
    assert [device["device"] for device in examination["devices"]] == ["cpu"]
    assert examination["step"]["clean_ms"] > 0
