"""Buy or wait: two machines for one workload, and the shapes of a model that suit a chip."""

from fathom.planner.buying.machines import AccountRow, Comparison, Side, compare_sides, fastest, side_of
from fathom.planner.buying.shapes import Advice, advise
from fathom.planner.buying.training import serving_account, training_account, training_side

__all__ = [
    "AccountRow",
    "Advice",
    "Comparison",
    "Side",
    "advise",
    "compare_sides",
    "fastest",
    "serving_account",
    "side_of",
    "training_account",
    "training_side",
]
