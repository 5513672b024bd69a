"""Sections of the report on input and memory."""

from __future__ import annotations

from fathom.analysis.resources import Memory, StepMemory
from fathom.report.sections import facts


def test_categories_of_memory_say_that_they_hold_when_the_step_uses_most():
    step = StepMemory(parameters_bytes=2**20, gradients_bytes=96)
    lines = [
        line.plain.rstrip() for line in facts("memory", Memory(peak_resident_bytes=2**30, step=step), 90)
    ]
    assert [line.strip() for line in lines] == [
        "memory    peak resident 1.00 GiB",
        "at a step's peak: parameters 1.00 MiB · gradients 96 B",
    ]
    (alone,) = facts("memory", Memory(step=step), 90)
    assert alone.plain.split() == [
        "memory",
        "at",
        "a",
        "step's",
        "peak:",
        "parameters",
        "1.00",
        "MiB",
        "·",
        "gradients",
        "96",
        "B",
    ]
