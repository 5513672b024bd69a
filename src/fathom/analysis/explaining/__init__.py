"""What limits a kernel, in words, from its counters; the rules are data."""

from fathom.analysis.explaining.explain import Explanation, Fact, explain, rules

__all__ = ["Explanation", "Fact", "explain", "rules"]
