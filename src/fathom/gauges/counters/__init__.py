"""Find out which hardware counters this machine can stream, and which of them in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fathom.gauges.counters.parent import NoCountersError, keep_counters, needed, prevented, qualify

__all__ = ["NoCountersError", "keep_counters", "needed", "prevented", "qualify"]


def __getattr__(name: str) -> Any:
    # The qualifying process starts from this package and must not load what only its parent needs.
    from importlib import import_module

    if name in __all__:
        return getattr(import_module("fathom.gauges.counters.parent"), name)
    raise AttributeError(f"module 'fathom.gauges.counters' has no attribute '{name}'")
