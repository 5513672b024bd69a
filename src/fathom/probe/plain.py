"""Record a program without torch: marks, regions and garbage collections. The recorder samples its stacks.

`fathom.step()` starts it. Nothing here imports torch, or hooks
anything but Python's garbage collector and serving engines.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from fathom.pristine import time
from fathom.probe.reporter import Reporter
from fathom.probe.threads import native_id


class Plain:
    """Stands in for Kineto: there are no ops, and marks are already records."""

    any_thread = True
    enabled = False

    def foreign(self) -> bool:
        """Return whether the program itself is profiling: unknown without torch, so False."""
        return False

    def prepare(self, **_: bool) -> None:
        """Do nothing."""

    def enable(self) -> None:
        """The session records regions."""

    def disable(self) -> None:
        """The session records regions."""

    def mark(self, k: int) -> int:
        """Return the host's time: marks are the only records."""
        return time.time_ns()

    def save(self, path: str) -> int:
        """Write no trace; return 0 events."""
        return 0

    def drop(self) -> None:
        """Do nothing."""


class PlainRegion:
    """Context manager that records how long a named stretch of the program took."""

    def __init__(self, session: Reporter, name: str) -> None:
        self._session, self._name, self._start = session, name, 0

    def __enter__(self) -> PlainRegion:
        self._start = time.time_ns()
        return self

    def __exit__(self, *error: object) -> None:
        end = time.time_ns()
        about = {"name": self._name, "thread": native_id(), "start": self._start, "end": end}
        self._session.say({"t": "region", **about})


class StandIn:
    """Replaces torch for a session: no device, no backward pass."""

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(is_available=bool, is_initialized=bool)  # both are False
        self._C = SimpleNamespace(_current_graph_task_id=lambda: -1)


def is_plain(torch: Any) -> bool:
    """Return whether `torch` is the stand-in."""
    return isinstance(torch, StandIn)


def torch_or_stand_in() -> Any:
    """Return torch if the program imported it, else the stand-in."""
    return sys.modules.get("torch") or StandIn()
