"""Training: the time and memory of a step under any layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.planner.training.asking import ask, is_sounding, recorded_job, system_called
    from fathom.planner.training.checking import Checked, CheckedRow, check_recorded, waves
    from fathom.planner.training.choosing import Question
    from fathom.planner.training.cost import Step
    from fathom.planner.training.explaining import derivation
    from fathom.planner.training.launching import launch_files, write_launch_files
    from fathom.planner.training.layout import RECOMPUTE, SHARDING, Job, Layouts
    from fathom.planner.training.memory import peak_bytes
    from fathom.planner.training.plan import plan_training
    from fathom.planner.training.rates import (
        Constants,
        Rates,
        Stack,
        calibration,
        constants,
        draws,
        names_used,
        priors,
        rates_of,
        stack,
    )
    from fathom.planner.training.recorded import RecordedJob, Recording
    from fathom.planner.training.results import Assumption, Option, Plan, Row
    from fathom.planner.training.spreading import plan_recorded, recorded_derivation

__all__, __getattr__ = exports(__name__)
