"""Compare predicted and published figures of reliability, with the reason for each row that is left out.

python -m benchmarks.plan.validate_reliability [--write]   # writes benchmarks/results/plan_reliability.json
"""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

from fathom.planner.reliability import Run, failures_of, plan_reliability
from fathom.planner.reliability.checkpoints import BYTES_PER_PARAMETER
from fathom.planner.workload import model

DATA = Path(__file__).parents[3] / "shared" / "validation" / "reliability.csv"
RESULT = Path(__file__).parents[1] / "results" / "plan_reliability.json"
_MODELS = {"Nemotron4-340b": "nemotron4-340b"}
_CALIBRATED = ("Nemotron4-15b", "Llama3-8b")


def compared(row: dict[str, str]) -> dict[str, Any] | str:
    """Return the comparison of a row, or the reason why it is left out."""
    system, metric = row["system"], row["metric"]
    if row["trust"] == "C":
        return "unverified"
    if metric == "checkpoint size" and system in _CALIBRATED:
        return "the bytes per parameter are calibrated on it"
    if metric == "checkpoint size" and system in _MODELS:
        return _entry(row, BYTES_PER_PARAMETER * model(_MODELS[system]).parameters / 1e12)
    if metric == "full checkpoint size":
        return _entry(row, BYTES_PER_PARAMETER * 176.2e9 / 1e12)
    if metric == "effective training time":
        return _goodput(row)
    if metric == "XID GPU failures":
        return _xids(row)
    if system.startswith("Llama-3.1"):
        return "a count of the log that gives the planner its rates"
    return "no figure that a plan predicts"


def _goodput(row: dict[str, str]) -> dict[str, Any]:
    """Compare the goodput; the run published only a bound, to which the distance is measured."""
    plan = plan_reliability(
        Run(int(row["gpus"]), 54 * 0.9, model("llama3.1-405b").parameters, failures_of("h100"))
    )
    low, high = (100 * end for end in plan.goodput.interval)
    return {"id": f"{row['system']}: {row['metric']}", "measured": row["value"]} | {
        "predicted": round(100 * plan.goodput.value, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "points_below_the_bound": round(max(0.0, 90.0 - 100 * plan.goodput.value), 2),
    }


def _xids(row: dict[str, str]) -> dict[str, Any]:
    """Compare failures of GPUs alone with those of another chip's log."""
    failures = failures_of("b200")
    days = float(re.findall(r"\d+", row["window"])[0])
    parts = ("faulty GPU", "HBM", "GPU SRAM", "GPU system processor")
    rate = sum(failures.by_component[name] for name in parts)
    return _entry(row, rate * int(row["gpus"]) * days * 24)


def _entry(row: dict[str, str], predicted: float) -> dict[str, Any]:
    truth = float(row["value"])
    return {"id": f"{row['system']}: {row['metric']}", "measured": truth} | {
        "predicted": round(predicted, 3),
        "error": round(predicted / truth - 1, 3),
    }


def main() -> None:
    """Print the comparison, and keep it if asked to."""
    with DATA.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    results = [(row, compared(row)) for row in rows]
    scored = [result for _, result in results if not isinstance(result, str)]
    reasons = {f"{row['system']}: {row['metric']}": why for row, why in results if isinstance(why, str)}
    for result in scored:
        print(result)
    print("left out:", *(f"{name}: {why}" for name, why in reasons.items()), sep="\n  ")
    if "--write" in sys.argv:
        RESULT.write_text(json.dumps({"rows": scored, "left_out": reasons}, indent=1) + "\n")


if __name__ == "__main__":
    main()
