"""Whether a result from one machine holds on another: differences, what they spoil, ceilings' ratios."""

from fathom.machine.compare.comparing import compare
from fathom.machine.compare.results import Comparison, Difference, Kind, Ratio, Side, Unknown

__all__ = ["Comparison", "Difference", "Kind", "Ratio", "Side", "Unknown", "compare"]
