"""What the compiler counted in a rank's process: the fact `compiler` of the manifest."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, omit_defaults=True):
    """A frame by its file, the line and the name of its function; what is null was not known."""

    file: str | None = None
    line: int | None = None  # of a break; of a frame that was given up its function's first one
    function: str | None = None
    why: str | None = None
    at: tuple[str, int] | None = None  # where a frame that was given up broke


class Counted(msgspec.Struct):
    """`frames` were tried and became `graphs`; `breaks` are of those, `given_up` became none."""

    frames: int
    graphs: int = 0
    reasons: list[tuple[str, int]] = []  # why graphs broke or frames were given up, and how often
    breaks: list[Place] = []
    given_up: list[Place] = []


FACT = "compiler"
