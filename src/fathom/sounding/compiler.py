"""Counts of Dynamo in a rank's process: the fact `compiler` of the manifest."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, omit_defaults=True):
    """A frame by file, line and function name; null: not known."""

    file: str | None = None
    line: int | None = None  # of the break; for a frame that was given up, the function's first line
    function: str | None = None
    why: str | None = None
    at: tuple[str, int] | None = None  # for a frame that was given up, where it broke


class Counted(msgspec.Struct):
    """`frames` were tried and became `graphs`; `breaks` are within these, `given_up` frames have none."""

    frames: int
    graphs: int = 0
    reasons: list[tuple[str, int]] = []  # reasons for breaks and frames given up, with counts
    breaks: list[Place] = []
    given_up: list[Place] = []


FACT = "compiler"
