"""The marks of a raw recording alone: when its steps began."""

from __future__ import annotations

from pathlib import Path

from fathom.sounding.raw.folder import read
from fathom.sounding.raw.steps import marks

SETTINGS = "putting settings in place"  # the subject of a note (probe/knobs/switching.py)


def step_times(folder: Path) -> tuple[list[int], list[str]]:
    """Return the times in ns at which steps began, and notes on settings that could not be put in place.

    The process with the most steps counts; the others are ranks that wait for the same steps.
    """
    raw = read(folder)
    times: list[list[int]] = [marks(process)["ns"].to_list() for process in raw.processes if process.clock]
    notes = [
        note["text"]
        for process in raw.processes
        for note in process.of("note")
        if note.get("what") == SETTINGS
    ]
    return max(times, key=len, default=[]), notes
