"""Derived measures of kernel families, their occupancy, hierarchical roofline, and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.measures.facts import launch_size
    from fathom.analysis.measures.portraits import NOT_KNOWN, device_portraits, portraits_of
    from fathom.analysis.measures.results import CounterRow, Level, Measure, Portrait, Reason

__all__, __getattr__ = exports(__name__)
