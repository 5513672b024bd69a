"""The lines from which the program made its calls, which Kineto knows and does not write.

A frame in the trace carries the first line of its function, or, where it was open when the profiler began,
the line that it had reached by then. But each call also knows its caller's line: that is the line which ran.
"""

from __future__ import annotations

import time
from typing import Any

MOST_SECONDS = 3.0  # a step with more calls goes without
LIBRARIES = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/", "<")

Row = tuple[int, str, str, int]  # nanoseconds, file, function, line


def call_lines(result: Any) -> list[Row]:
    """When a function of the program was entered, or called something, and its line then; in time order.

    Empty where this version of torch does not say it, or saying it takes too long.
    """
    rows: list[Row] = []
    known: dict[str, bool] = {}
    waiting = list(result.experimental_event_tree())
    until = time.monotonic() + MOST_SECONDS
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        fields = event.extra_fields
        caller = getattr(fields, "caller", None)
        if caller is None:
            continue
        here = getattr(fields, "callsite", None)
        for frame in (caller, here if hasattr(here, "line_number") else None):
            if frame is not None and _is_program(frame.file_name, known):
                rows.append((event.start_time_ns, frame.file_name, frame.function_name, frame.line_number))
        if time.monotonic() > until:
            return []
    return sorted(rows)


def _is_program(file: str, known: dict[str, bool]) -> bool:
    if file not in known:
        standard = "/lib/python3" in file and "-packages/" not in file
        known[file] = not (standard or file.startswith(LIBRARIES))
    return known[file]
