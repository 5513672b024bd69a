"""Compare soundings: aligned ledgers whose changes sum to the step's, their noise, and their causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.compare.budgets import Budget, Checked, GateResult, budgets_in, check
    from fathom.analysis.compare.comparing import compare
    from fathom.analysis.compare.results import (
        OF_PROGRAM,
        Cause,
        Change,
        ComparedRun,
        Figure,
        SoundingComparison,
    )
    from fathom.analysis.compare.run import CLEAN, Run, run_of
    from fathom.analysis.compare.words import cause_of, incomparable, leading, name_of, percent

__all__, __getattr__ = exports(__name__)
