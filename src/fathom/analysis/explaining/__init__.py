"""Explanations of a kernel's limits from its counters; the rules are data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.explaining.facts import Explanation, Fact, explain, rules

__all__, __getattr__ = exports(__name__)
