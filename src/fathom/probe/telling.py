"""What the parts of a recording know of it: where it goes, what was asked for, and whom to tell."""

from __future__ import annotations

from typing import Any, Protocol

from fathom.probe.plan import Plan
from fathom.probe.records import Record


class Telling(Protocol):
    """The recording of this process, as far as its parts have to do with it."""

    raw: str  # the folder of raw records
    plan: Plan
    torch: Any

    def say(self, record: Record) -> None:
        """Append a record."""

    def note(self, what: str, text: str) -> None:
        """Tell the user something, once."""
