"""Compare two machines: whether results carry over from one to the other, and by how much ceilings differ."""

from fathom.machine.compare.comparing import compare
from fathom.machine.compare.contract import Comparison, Difference, Kind, Ratio, Side, Unknown

__all__ = ["Comparison", "Difference", "Kind", "Ratio", "Side", "Unknown", "compare"]
