"""Compare predicted and published latencies and rates of serving, on rows that calibration did not see.

python -m benchmarks.plan.validate_serving [--write]   # writes benchmarks/results/plan_serving.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.serving_rows import Row, read
from fathom.planner.serving.constants import calibration
from fathom.planner.serving.estimate import estimate

RESULT = Path(__file__).parents[1] / "results" / "plan_serving.json"
_FIGURES = {"tpot": ("tpot", 1e3), "ttft": ("ttft", 1e3), "throughput": ("output_rate_per_gpu", 1.0)}
_BARS = {"tpot": 0.15, "ttft": 0.25, "throughput": 0.15}


def compared(row: Row) -> list[dict[str, Any]]:
    """Return what was measured and predicted of a row."""
    estimated = estimate(row.fleet, row.load)
    result = []
    for key, truth in row.measured.items():
        name, factor = _FIGURES[key]
        q = estimated[name]
        low, high = (factor * end for end in q.interval)
        result.append(
            {"id": row.id, "chip": row.chip, "engine": row.engine, "figure": key, "measured": truth}
            | {"predicted": round(factor * q.value, 3), "low": round(low, 3), "high": round(high, 3)}
            | {"error": round(factor * q.value / truth - 1, 4), "held": low <= truth <= high}
        )
    return result


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return count, median and p90 of the errors, and the share of intervals that hold the truth."""
    errors = np.abs([row["error"] for row in rows])
    return {
        "rows": len(rows),
        "median": round(float(np.median(errors)), 4),
        "p90": round(float(np.quantile(errors, 0.9)), 4),
        "held": round(float(np.mean([row["held"] for row in rows])), 3),
    }


def by(rows: list[dict[str, Any]], key: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """Return the summary of every group of rows."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return {name: summary(mine) for name, mine in sorted(groups.items())}


def main() -> None:
    """Print the comparison, and keep it if asked to."""
    rows, reasons = read()
    used = set(calibration().rows)
    results = [result for row in rows if row.id not in used for result in compared(row)]
    print(f"{len(rows) - len(used)} rows scored, {len(used)} calibrated on, {len(reasons)} left out")
    for title, key in (("", "figure"), ("by engine", "engine"), ("by GPU", "chip")):
        print(title)
        for name, s in by(
            results, lambda row, key=key: f"{row[key]} {row['figure']}" if key != "figure" else row[key]
        ).items():
            print(
                f"  {name:<28}{s['rows']:>4} median {s['median']:>6.1%}  p90 {s['p90']:>6.1%}  held "
                f"{s['held']:>6.1%}"
            )
    print("all figures:", summary(results))
    print("left out:", *(f"{count:>3} {why}" for why, count in Counter(reasons.values()).items()), sep="\n  ")
    if "--write" in sys.argv:
        kept = {"bars": _BARS, "all": summary(results), "figures": by(results, lambda row: row["figure"])}
        kept |= {"calibrated_on": sorted(used), "left_out": reasons, "rows": results}
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
