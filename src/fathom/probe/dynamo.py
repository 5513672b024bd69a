"""Dynamo's own counts: graph breaks, recompilations, and frames that it failed to compile.

Nothing is hooked or imported: its counters are read in place, and any of them may be missing. Frames come
from the metrics of the last compilations (64, unless the program keeps more).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from math import isqrt
from typing import Any, TypedDict

from fathom.pristine import time

MOST = 32  # per list
LOOKED_AT = 256  # most entries read, because a process may compile thousands of frames
LONGEST = 200  # characters per reason
VERSION = re.compile(r"^\d+/\d+: ")  # with which newer versions of torch begin a failed guard


class DynamoCounts(TypedDict):
    """The `dynamo` record."""

    t: str
    ns: int
    frames: int  # that Dynamo tried
    graphs: int
    reasons: list[list[Any]]  # with counts
    breaks: list[dict[str, object]]
    given_up: list[dict[str, object]]
    recompiled: list[dict[str, object]]


def counted(before: int = 0) -> DynamoCounts | None:
    """Return the `dynamo` record; None if Dynamo has tried no more frames than `before`."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None) or {}
    frames = _copy(counters, "frames").get("total", 0)
    if frames <= before:
        return None
    return {
        "t": "dynamo",
        "ns": time.time_ns(),
        "frames": frames,
        "graphs": _copy(counters, "stats").get("unique_graphs", 0),
        "reasons": _reasons(_copy(counters, "graph_break"), _copy(counters, "unimplemented")),
        "breaks": _first(
            _break(reason) for reason in list(getattr(utils, "graph_break_reasons", ()))[:LOOKED_AT]
        ),
        "given_up": _first(_given_up(utils)),
        "recompiled": _recompiled(utils),
    }


def _copy(counters: Any, name: str) -> dict[str, int]:
    """Return a copy of one counter, made atomically because other threads may compile."""
    return dict(counters.get(name) or {})


def _reasons(*counts: dict[str, int]) -> list[list[Any]]:
    """Return [reason, count] pairs, the most frequent first."""
    counts_by_line: dict[str, int] = {}
    for texts in counts:
        for text, times in list(texts.items())[:LOOKED_AT]:
            counts_by_line[line(text)] = max(counts_by_line.get(line(text), 0), times)
    commonest = sorted(counts_by_line.items(), key=lambda counted: -counted[1])[:MOST]
    return [list(counted) for counted in commonest]


def line(text: Any) -> str:
    """Return the first line of a reason, with that of any break raised while handling it."""
    parts = [part.strip().partition("\n")[0].strip() for part in str(text).split("***")[::2]]
    return "; ".join(part for part in parts if part)[:LONGEST]


def _break(reason: Any) -> dict[str, object]:
    """Describe a graph break; the code after it is compiled separately."""
    place = (getattr(reason, "user_stack", None) or [None])[-1]
    return {
        "file": getattr(place, "filename", None),
        "line": getattr(place, "lineno", None),
        "function": getattr(place, "name", None),
        "why": line(getattr(reason, "reason", "")),
    }


def _given_up(utils: Any) -> list[dict[str, object]]:
    """Return frames without a compiled version, except those that exceeded the limit of recompilations."""
    metrics: list[Any] = getattr(utils, "get_compilation_metrics", list)()
    compilations = [metric for metric in metrics[-LOOKED_AT:] if getattr(metric, "co_filename", None)]
    compiled = {
        _code(compilation) for compilation in compilations if getattr(compilation, "has_guarded_code", True)
    }
    return [_frame(compilation) for compilation in compilations if _code(compilation) not in compiled]


def _code(compilation: Any) -> tuple[Any, ...]:
    return compilation.co_filename, compilation.co_firstlineno, compilation.co_name


def _frame(compilation: Any) -> dict[str, object]:
    """Describe a frame: `line` is where its function begins, `at` where it broke.

    Versions of torch that skip such a frame without an error provide neither `at` nor `why`.
    """
    file, first, name = _code(compilation)
    at = [
        getattr(compilation, "fail_user_frame_filename", None),
        getattr(compilation, "fail_user_frame_lineno", None),
    ]
    why = getattr(compilation, "fail_reason", None)
    return {
        "file": file,
        "line": first,
        "function": name,
        "at": at if None not in at else None,
        "why": line(why) if why else None,
    }


def _recompiled(utils: Any) -> list[dict[str, object]]:
    """Return frames that were compiled again, the most often recompiled first, each with its usual guard."""
    failures = dict(getattr(utils, "guard_failures", None) or {})
    frames = [_again(code, list(texts)) for code, texts in list(failures.items())[:LOOKED_AT] if texts]
    return sorted(frames, key=lambda frame: -frame["times"])[:MOST]


def _again(code: Any, texts: list[Any]) -> dict[str, Any]:
    """Describe a frame by its failed guards. The n-th recompilation reports a guard of each of n versions."""
    times = (isqrt(8 * len(texts) + 1) - 1) // 2
    guards = [_guard(text) for text in texts[-LOOKED_AT:]]
    alike = [re.sub(r"\d+", "0", guard) for guard in guards]
    usual = max(alike, key=alike.count)
    return {
        "file": code.co_filename,
        "line": code.co_firstlineno,
        "function": code.co_name,
        "why": guards[alike.index(usual)],
        "times": times,
        "limited": times >= _limit(),
    }


def _guard(text: Any) -> str:
    """Return the guard on one line, without the version that it belongs to and torch's comments."""
    guard = VERSION.sub("", line(text)).partition("  #")[0].partition("(HINT")[0]
    return guard.strip()


def _limit() -> float:
    """Return the number of versions of a frame after which Dynamo runs others uncompiled."""
    config = sys.modules.get("torch._dynamo.config")
    limit = getattr(config, "recompile_limit", None) or getattr(config, "cache_size_limit", None)
    return float(limit or "inf")


def _first(frames: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """Return the first distinct frames."""
    different: list[dict[str, object]] = []
    for frame in frames:
        if frame not in different:
            different.append(frame)
        if len(different) == MOST:
            break
    return different
