"""Derived measures of kernel families, their occupancy, hierarchical roofline, and limits."""

from __future__ import annotations

from fathom.analysis.measures.catalogue import catalogue
from fathom.analysis.measures.occupancy import Occupancy, chip, occupancy
from fathom.analysis.measures.portraits import portraits, portraits_of
from fathom.analysis.measures.results import Level, Measure, Portrait, Reason

__all__ = [
    "Level",
    "Measure",
    "Occupancy",
    "Portrait",
    "Reason",
    "catalogue",
    "chip",
    "occupancy",
    "portraits",
    "portraits_of",
]
