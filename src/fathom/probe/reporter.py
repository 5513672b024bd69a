"""The interface of a recording for its components: output folder, plan and reporting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from fathom.probe.plan import ProbePlan
from fathom.probe.records import Record
from fathom.probe.room import Room


class Reporter(Protocol):
    """The part of a recording that its components use."""

    raw: str  # the folder of raw records
    plan: ProbePlan
    torch: Any
    room: Room
    on_flush: list[Callable[[], None]]  # called before pending records are written
    optimizers: WeakSet[Any]  # that have made a step

    def say(self, record: Record) -> None:
        """Append a record."""

    def note(self, what: str, text: str) -> None:
        """Show the user a note, once per `what`."""

    def wait(self, cause: str, start: int, end: int, detail: str = "", thread: int | None = None) -> None:
        """Record a wait of this (or another) thread with a known cause."""
