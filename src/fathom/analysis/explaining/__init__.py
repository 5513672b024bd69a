"""Explanations of a kernel's limits from its counters; the rules are data."""

from fathom.analysis.explaining.explain import Explanation, Fact, explain, rules

__all__ = ["Explanation", "Fact", "explain", "rules"]
