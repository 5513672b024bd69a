"""Plans: how long a model takes, on machines and sizes that you do not have yet.

Pure functions of hardware and a workload. The subpackages `hardware` and `workload` are public too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.planner.quantity import ASSUMED, CALIBRATED, DATASHEET, MEASURED, Quantity, spread

__all__, __getattr__ = exports(__name__)
