"""Buy or wait: two machines for one workload, and the shapes of a model that suit a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.planner.buying.machines import (
        AccountRow,
        Comparison,
        Side,
        compare_sides,
        fastest,
        serving_account,
        side_of,
        training_account,
        training_side,
    )
    from fathom.planner.buying.shapes import Advice, advise

__all__, __getattr__ = exports(__name__)
