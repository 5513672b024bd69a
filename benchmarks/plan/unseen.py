"""Compare plans with published runs that are in no validation file, listed in unseen.yaml.

python -m benchmarks.plan.unseen [--write]   # writes benchmarks/results/plan_unseen.json
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.calibrate import DENSE, EXPERTS, predict_s
from benchmarks.plan.published import Run
from benchmarks.plan.validate import interval
from fathom.data import parse
from fathom.planner.hardware import hardware
from fathom.planner.serving import Deployment, Fleet, Load, engine
from fathom.planner.serving.estimate import estimate
from fathom.planner.training import Job, Layouts, ask, constants, draws, plan_training, stack
from fathom.planner.training.layout import RECOMPUTE, SHARDING
from fathom.planner.workload import Model, convention, flops_per_token, model, parse_config

DATA = Path(__file__).with_suffix(".yaml")
RESULT = Path(__file__).parents[1] / "results" / "plan_unseen.json"
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro")
_OF_JOB = ("gpus", "batch", "seq", "tokens", "precision")


def runs() -> dict[str, Any]:
    """Return the published runs by kind."""
    content: dict[str, Any] = parse(DATA.read_text(encoding="utf-8"))
    return content


def run_of(row: Mapping[str, Any]) -> Run:
    """Return a training run with its layout and its published step."""
    shape, system = _model(row["model"], row["id"]), hardware(row["system"]).assuming(row.get("assume", ()))
    running = stack(row["stack"])
    job = Job(row["seq"], row["batch"], row["gpus"], row["precision"])
    tp, pp, vpp, cp, ep, micro = (row.get(name, 1) for name in _DEGREES)
    layout = Layouts(
        job.gpus // (tp * pp * cp), tp, pp, vpp, cp, ep, micro, SHARDING[row.get("sharding", "zero1")],
        recompute=RECOMPUTE[row.get("recompute", "none")], sp=not running.no_sp,
    )  # fmt: skip
    return Run(
        row["id"], row["source"], shape, system, running, job, layout, _seconds(row, shape, job), None, False
    )


def _model(words: str | dict[str, Any], name: str) -> Model:
    return model(words) if isinstance(words, str) else parse_config(words, name)


def _seconds(row: Mapping[str, Any], shape: Model, job: Job) -> float:
    tokens = job.batch * job.seq / job.gpus
    if "tokens_per_s_per_gpu" in row:
        return float(tokens / row["tokens_per_s_per_gpu"])
    counted = flops_per_token(shape, job.seq, convention(row.get("convention", "model")))
    return float(tokens * counted / row["tflops"] / 1e12)


def trained(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned seconds of steps with a published layout."""
    for run in map(run_of, rows):
        low, high = interval(
            run, [predict_s(run, draw) for draw in draws()], EXPERTS if run.model.is_moe else DENSE
        )
        yield _compared(run.id, run.step_s, predict_s(run, constants()), low, high)


def paid(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned GPU hours of pre-training, with the layout that the plan chooses."""
    for row in rows:
        asked = {key: row[key] for key in _OF_JOB if key in row}
        plan = plan_training(ask(row["model"], row["system"], **asked))
        hours = plan.figures["hours"].times(row["gpus"])
        yield _compared(row["id"], row["gpu_hours"], hours.value, *hours.interval)


def served(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned output tokens per second at most load."""
    for table in content["tables"]:
        of = Deployment(
            model(table["model"]), hardware(table["system"]), engine("trtllm-bench"), table["tp"], 1, 1,
            table["weights"], "fp8",
        )  # fmt: skip
        for (lengths, requests), rate in zip(content["requests"].items(), table["rates"], strict=True):
            prompt, output = map(int, lengths.split("/"))
            load = Load(prompt, output, "at-once", requests=requests, turns=math.inf)
            q = estimate(Fleet(of), load)["output_rate"]
            name = f"{table['model']} {table['system']} {lengths}"
            yield _compared(name, rate, q.value, *q.interval)


def _compared(name: str, published: float, planned: float, low: float, high: float) -> dict[str, Any]:
    row = {"id": name, "published": published, "planned": planned}
    return row | {"error": round(planned / published - 1, 4), "held": low <= published <= high}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median and p90 of the errors, and the share of intervals that hold the truth."""
    errors = np.abs([row["error"] for row in rows])
    return {
        "rows": len(rows),
        "median": round(float(np.median(errors)), 3),
        "p90": round(float(np.quantile(errors, 0.9)), 3),
        "held": round(float(np.mean([row["held"] for row in rows])), 3),
    }


def main() -> None:
    """Print the comparison, and keep it if asked to."""
    content = runs()
    kinds = {
        "training": list(trained(content["training"])),
        "hours": list(paid(content["hours"])),
        "serving": list(served(content["serving"])),
    }
    for kind, rows in kinds.items():
        print(kind, summary(rows))
        for row in rows:
            print(f"  {row['id']:<40}{row['published']:>12,.4g}{row['planned']:>12,.4g}{row['error']:>9.1%}",
                  "" if row["held"] else " outside its interval")  # fmt: skip
    if "--write" in sys.argv:
        kept = {kind: {"all": summary(rows), "rows": rows} for kind, rows in kinds.items()}
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
