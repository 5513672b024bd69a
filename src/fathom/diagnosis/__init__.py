"""From a sounding to what Fathom has to say about it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fathom.diagnosis.examine import examine

if TYPE_CHECKING:
    from fathom.diagnosis.naming import Seen, Told, seen, seen_in, told

__all__ = ["Seen", "Told", "examine", "seen", "seen_in", "told"]


def __getattr__(name: str) -> Any:
    """Names of pairs of recordings, which a report does not compare, are loaded on first use."""
    if name in __all__:
        return getattr(import_module("fathom.diagnosis.naming"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
