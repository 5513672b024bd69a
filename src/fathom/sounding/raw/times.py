"""The marks of a raw recording alone: when its steps began."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from fathom.sounding.raw.folder import read
from fathom.sounding.raw.steps import marks

SETTINGS = "putting settings in place"  # the subject of a note (probe/knobs/switching.py)


class StepTimes(NamedTuple):
    """Times in ns at which steps began and at which compilations ended, and notes on settings that could not
    be put in place.
    """

    began: list[int]
    compiled: list[int]
    notes: list[str]


def step_times(folder: Path) -> StepTimes:
    """Return the times of the process with the most steps: the others are ranks that wait for it."""
    raw = read(folder)
    timed = [(marks(process)["ns"].to_list(), process) for process in raw.processes if process.clock]
    began, process = max(timed, key=lambda row: len(row[0]), default=([], None))
    waits = process.of("wait") if process else []
    compiled = [wait["end"] for wait in waits if wait["cause"] == "compilation"]
    notes = [
        note["text"] for each in raw.processes for note in each.of("note") if note.get("what") == SETTINGS
    ]
    return StepTimes(began, compiled, notes)
