"""Compare plans with published training runs that no constant was fitted to.

python -m benchmarks.plan.validate [--rows training.csv] [--draws 8]

`--draws N` also chooses other calibration rows N times, and prints how the errors depend on the choice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.plan.calibrate import choose, fit, predict_gib, predict_s
from benchmarks.plan.published import DATA, Run, read
from fathom.planner.training import constants, draws
from fathom.planner.training.plan import interval, noise_of
from fathom.planner.training.rates import calibration
from fathom.planner.training.results import Interval

RESULT = Path(__file__).parents[1] / "results" / "plan.json"
_CALCULON = ("sc21-",)  # runs of Megatron-LM on A100s (arXiv:2104.04473, table 1)


def bench() -> str:
    """Validate against the rows beside the repository."""
    return report(DATA)


def report(path: Path, turns: int = 0) -> str:
    """Return the tables, and keep the figures."""
    runs, reasons = read(path)
    used = set(calibration().rows)
    held_out = [run for run in runs if run.id not in used]
    errors = {run.id: predict_s(run, constants()) / run.step_s - 1 for run in held_out}
    inside = {run.id: _holds(run) for run in held_out}
    memory = {r.id: predict_gib(r, constants()) / r.memory_gib - 1 for r in held_out if r.memory_gib}
    figures = {
        "step_time": _figures(errors.values()) | {"intervals_hold": float(np.mean(list(inside.values())))},
        "memory": _figures(memory.values()) | {"intervals_hold": _memory_holds(held_out)},
        "calculon_rows": _mean(errors, _CALCULON),
        "by_gpu": _grouped(held_out, errors, inside, lambda run: run.system.name),
        "by_source": _grouped(held_out, errors, inside, lambda run: _short(run.source)),
        "by_kind": _grouped(held_out, errors, inside, lambda run: "experts" if run.model.is_moe else "dense"),
        "calibrated_on": sorted(used),
        "left_out": reasons,
        "rows": {run.id: [run.step_s, round(run.step_s * (1 + errors[run.id]), 4)] for run in held_out},
    }
    if turns:
        figures["other_choices"] = [_again(runs, seed) for seed in range(turns)]
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")
    return "\n".join(_lines(figures))


def step_interval(run: Run) -> Interval:
    """Return the planned step with its interval, as a plan gives it."""
    return interval(predict_s(run, constants()), [predict_s(run, d) for d in draws()], noise_of(run.model))


def _holds(run: Run) -> bool:
    planned = step_interval(run)
    return planned.low <= run.step_s <= planned.high


def _memory_holds(runs: list[Run]) -> float:
    inside = []
    for run in runs:
        if run.memory_gib:
            drawn = [predict_gib(run, draw) for draw in draws()]
            planned = interval(predict_gib(run, constants()), drawn, calibration().noise["memory"])
            inside.append(planned.low <= run.memory_gib <= planned.high)
    return float(np.mean(inside))


def _again(runs: list[Run], seed: int) -> dict[str, float]:
    rows = choose(runs, seed)
    values = fit(rows).values()
    chosen = {run.id for run in rows}
    return _figures([predict_s(run, values) / run.step_s - 1 for run in runs if run.id not in chosen])


def _figures(errors: Iterable[float]) -> dict[str, float]:
    absolute = np.abs(list(errors))
    return {
        "rows": len(absolute),
        "median": round(float(np.median(absolute)), 4),
        "p90": round(float(np.quantile(absolute, 0.9)), 4),
        "mean": round(float(np.mean(absolute)), 4),
    }


def _mean(errors: dict[str, float], begins: tuple[str, ...]) -> dict[str, float]:
    return _figures([error for name, error in errors.items() if name.startswith(begins)])


def _grouped(
    runs: list[Run], errors: dict[str, float], inside: dict[str, bool], key
) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return {
        name: _figures([errors[r.id] for r in mine])
        | {
            "bias": round(float(np.median([errors[r.id] for r in mine])), 4),
            "intervals_hold": round(float(np.mean([inside[r.id] for r in mine])), 3),
        }
        for name, mine in sorted(groups.items())
    }


def _short(source: str) -> str:
    words = source.replace(",", " ").split()
    return " ".join(words[:3])[:60]


def _lines(figures: dict) -> Iterable[str]:
    yield f"{'':48} rows median   p90  bias holds"
    for table in ("by_gpu", "by_source", "by_kind"):
        for name, row in figures[table].items():
            yield (
                f"{name:48} {row['rows']:4} {row['median']:6.1%} {row['p90']:6.1%} {row['bias']:+5.1%} "
                f"{row['intervals_hold']:5.0%}"
            )
    for name in ("step_time", "memory", "calculon_rows"):
        yield f"{name}: {figures[name]}"
    for choice in figures.get("other_choices", []):
        yield f"other calibration rows: {choice}"
    yield f"{len(figures['left_out'])} rows left out:"
    yield from (f"  {name}: {why}" for name, why in figures["left_out"].items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=DATA)
    parser.add_argument("--draws", type=int, default=0)
    options = parser.parse_args()
    print(report(options.rows, options.draws))
