"""A program that leaves the GPU alone is recorded, and ends."""

from __future__ import annotations

from tests.gpu.conftest import Record


def test_a_program_without_cuda_ends_after_its_recording(record: Record) -> None:
    # Threads that outnumber the cores given to a container make a step take a second.
    # Kineto would wait for a call of CUDA that never comes.
    examination = record("on_cpu.py", OMP_NUM_THREADS="2")
    assert [device["device"] for device in examination["devices"]] == ["cpu"]
    assert examination["step"]["clean_ms"] > 0
