"""Recording a program that never imported torch: marks, regions, garbage collections; stacks from outside.

`fathom.step()` starts it. Nothing here imports torch, or hooks anything but Python's collector.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any, Protocol

from fathom.probe.threads import native_id


class Says(Protocol):
    """The recording that regions are written to."""

    def say(self, record: dict[str, Any]) -> None:
        """Append a record."""


class Plain:
    """Stands in for Kineto: there are no ops, and the marks are records already."""

    any_thread = True
    enabled = False

    def foreign(self) -> bool:
        """Whether the program itself profiles: no profiler is known to be at work."""
        return False

    def prepare(self, **_: bool) -> None:
        """Nothing has to be set up."""

    def enable(self) -> None:
        """Regions are recorded by the session."""

    def disable(self) -> None:
        """Likewise."""

    def mark(self, k: int) -> int:
        """The host's time: records of marks are all that there is."""
        return time.time_ns()

    def save(self, path: str) -> int:
        """Write no trace; no events."""
        return 0

    def drop(self) -> None:
        """There is nothing to forget."""


class Region:
    """A context manager that records how long a named stretch of the program took."""

    def __init__(self, session: Says, name: str) -> None:
        self._session, self._name, self._start = session, name, 0

    def __enter__(self) -> Region:
        self._start = time.time_ns()
        return self

    def __exit__(self, *error: object) -> None:
        end = time.time_ns()
        about = {"name": self._name, "thread": native_id(), "start": self._start, "end": end}
        self._session.say({"t": "region", **about})


class StandIn:
    """What a session asks of torch, without it: no device, no backward pass."""

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(is_available=bool, is_initialized=bool)  # both are False
        self._C = SimpleNamespace(_current_graph_task_id=lambda: -1)


def is_plain(torch: Any) -> bool:
    """Whether it is the stand-in."""
    return isinstance(torch, StandIn)


def torch_or_stand_in() -> Any:
    """torch, where the program imported it."""
    return sys.modules.get("torch") or StandIn()
