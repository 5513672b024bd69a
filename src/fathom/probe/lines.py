"""The source lines of the program's calls, which Kineto knows but does not write.

A frame in the trace has the first line of its function or, if it was open when the profiler began, the line
reached by then. But each call also has its caller's line: the line that actually ran.
"""

from __future__ import annotations

import time
from typing import Any

MOST_SECONDS = 3.0  # steps with more calls are skipped
LIBRARIES = ("torch/", "torchgen/", "functorch/", "triton/", "fathom/", "<")

Row = tuple[int, str, str, int]  # nanoseconds, file, function, line


def call_lines(result: Any) -> list[Row]:
    """Return when a program's function was entered or made a call, and its line then, in time order.

    Empty if this version of torch does not report lines, or if reading them takes too long.
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
