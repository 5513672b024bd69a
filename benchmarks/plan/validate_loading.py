"""Plans of data loading against recordings: a program with one number of workers, planned with another.

python -m benchmarks.plan.validate_loading [--write]   # writes benchmarks/results/plan_loading.json

Each recording of the suite of faults has a form with another number of workers, whose recorded step is the
truth. Nothing of it enters the plan but that number.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import fathom
from fathom.planner.training import plan_recorded
from faults.kept import take

FOLDER = Path(__file__).parents[2] / "faults" / "recordings"
RESULT = Path(__file__).parents[1] / "results" / "plan_loading.json"
PROGRAMS = ("few_workers", "no_workers")
FORMS = ("faulty", "mended")
_PARAMETERS = 1e6  # of a model on one GPU, whose parameters no collective moves


def compared(program: str) -> list[dict[str, Any]]:
    """Return each form of a program, planned with the workers of the other one."""
    with tempfile.TemporaryDirectory() as scratch:
        names = [f"input.{program}.{form}.2" for form in FORMS]
        faulty, mended = (fathom.open(take(FOLDER, name, Path(scratch))) for name in names)
        return [_row(program, faulty, mended), _row(program, mended, faulty)]


def _row(program: str, known: fathom.Sounding, truth: fathom.Sounding) -> dict[str, Any]:
    counts = [len(sounding.examine().input.workers) for sounding in (known, truth)]
    plan = plan_recorded(known.on_more(1, parameters=_PARAMETERS, workers=counts[1]))
    recorded = truth.examine().step.clean_ms
    return {
        "program": program,
        "workers": f"{counts[0]} to {counts[1]}",
        "recorded_ms": round(recorded, 2),
        "planned_ms": [round(1e3 * v, 2) for v in (plan.step.value, plan.step.low, plan.step.high)],
        "error": round(1e3 * plan.step.value / recorded - 1, 3),
        "holds": plan.step.low <= recorded / 1e3 <= plan.step.high,
    }


def bench() -> str:
    """Return the comparison, one line for each plan."""
    return "\n".join(map(str, rows()))


def rows() -> list[dict[str, Any]]:
    """Return all comparisons."""
    return [row for program in PROGRAMS for row in compared(program)]


if __name__ == "__main__":
    table = rows()
    print("\n".join(map(str, table)))
    if "--write" in sys.argv:
        RESULT.write_text(json.dumps(table, indent=1) + "\n")
