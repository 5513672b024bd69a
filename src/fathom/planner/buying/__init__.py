"""Buy or wait: two machines for one workload, and the shapes of a model that suit a chip."""

from fathom.planner.buying.machines import Comparison, Side, compare_sides, fastest, side_of
from fathom.planner.buying.shapes import Advice, advise

__all__ = ["Advice", "Comparison", "Side", "advise", "compare_sides", "fastest", "side_of"]
