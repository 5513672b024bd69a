"""Observe the side effects of one call, never while timing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from fathom.referee.child.guards import now, processor_ns, sleep
from fathom.referee.child.values import address, leaves, overlap

QUIET_S, LOOK_S = 0.25, 0.05  # wait first, because idle OpenMP threads spin for 200 ms; then measure
BUSY = 0.1  # share of a core in use between calls
_PEEKING = ("sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers", "gc.get_referents")
_THROUGH = ("inspect.py", "traceback.py")


def code_key(function: Any) -> list[str] | None:
    """Return a key of a Python function's code that is equal in other processes; None without code."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return None if code is None else _key(code)


def _key(code: CodeType) -> list[str]:
    name = getattr(code, "co_qualname", code.co_name)  # compiled wrappers keep the name but not the code
    return [str(Path(code.co_filename).resolve()), name, sha256(code.co_code).hexdigest()]


class RecordedCalls:
    """Context manager: records calls of the functions in `wanted` (name → key), but not the target's own."""

    def __init__(self, wanted: dict[str, list[str]], own: list[str] | None) -> None:
        self._wanted = {tuple(key): name for name, key in wanted.items() if key != own}
        self._names = {key[1].rpartition(".")[2] for key in self._wanted}
        self.seen: set[str] = set()

    def __enter__(self) -> RecordedCalls:
        sys.setprofile(self._note)
        threading.setprofile(self._note)
        return self

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name in self._names:
            name = self._wanted.get(tuple(_key(frame.f_code)))
            if name:
                self.seen.add(name)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


class Peeking:
    """Records when code of `file` inspects the stack or all objects. Audit hooks cannot be removed."""

    def __init__(self, file: str) -> None:
        self._file, self.on, self.seen = str(Path(file).resolve()), False, set[str]()
        self._frame = sys._getframe
        sys.addaudithook(self._note)

    def _note(self, event: str, _: Any) -> None:
        if not self.on or event not in _PEEKING:
            return
        self.on = False
        frame = self._frame(1)
        while frame is not None and Path(frame.f_code.co_filename).name in _THROUGH:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and str(Path(frame.f_code.co_filename).resolve()) == self._file:
            self.seen.add(event)
        self.on = True


def still_working() -> float:
    """Return the share of a core that this process uses between calls, once idle threads are asleep."""
    used = _used()
    if used > BUSY:
        sleep(QUIET_S)
        used = _used()
    return used


def _used() -> float:
    began, used = now(), processor_ns()
    sleep(LOOK_S)
    return (processor_ns() - used) / max(now() - began, 1)


def working_children() -> list[int]:
    """Return the ids of child processes that still compute after the call."""
    import psutil

    children = psutil.Process().children(recursive=True)
    if not children:
        return []
    before = {child.pid: _spent(child) for child in children}
    sleep(LOOK_S)
    return [child.pid for child in children if _spent(child) - before[child.pid] > BUSY * LOOK_S]


def _spent(child: Any) -> float:
    try:
        return float(sum(child.cpu_times()[:2]))
    except Exception:  # it has ended
        return 0.0


def aliases(result: Any, call: Any) -> Iterator[tuple[str, str]]:
    """Yield pairs of places, in the result and in the inputs, that share memory."""
    inputs = list(leaves(call, "inputs"))
    for place, leaf in leaves(result):
        for other, given in inputs:
            if (leaf is given and address(leaf)) or overlap(leaf, given):
                yield place, other


def shared(first: Any, other: Any) -> list[str]:
    """Return the places at which the results of two calls share memory."""
    pairs = zip(leaves(first), leaves(other), strict=False)
    return [place for (place, a), (_, b) in pairs if overlap(a, b)]
