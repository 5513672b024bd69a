"""Compare plans with published runs that are in no validation file: unseen.yaml and unseen_training.csv.

python -m benchmarks.plan.unseen                        # without the half that is held out
python -m benchmarks.plan.unseen --held-out [--write]   # the held-out half too; writes plan_unseen.json

A draw holds half of the rows out, by table for serving: whoever changes the planner does not see it.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.published import Run, read
from benchmarks.plan.validate import step_interval
from fathom.data import parse
from fathom.planner.hardware import hardware
from fathom.planner.serving import Deployment, Fleet, Load, engine
from fathom.planner.serving.estimate import estimate
from fathom.planner.training import Job, Layouts, ask, plan_training, stack
from fathom.planner.training.layout import RECOMPUTE, SHARDING
from fathom.planner.workload import Model, convention, flops_per_token, model, parse_config

DATA = Path(__file__).with_suffix(".yaml")
ROWS = DATA.with_name("unseen_training.csv")
RESULT = Path(__file__).parents[1] / "results" / "plan_unseen.json"
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "micro")
SEEN, OPEN, HELD_OUT = "seen before", "open", "held out"
_SEED = 27
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


def parts(names: list[str]) -> dict[str, str]:
    """Return the part of each row or table: a draw that looks at nothing but names holds half of them out."""
    drawn = random.Random(_SEED).sample(sorted(names), len(names) // 2)
    return dict.fromkeys(names, OPEN) | dict.fromkeys(drawn, HELD_OUT)


def trained(rows: list[dict[str, Any]], wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned seconds of steps with a published layout."""
    new, reasons = read(ROWS)
    assert not reasons, reasons
    part = dict.fromkeys((row["id"] for row in rows), SEEN) | parts([run.id for run in new])
    for run in [*map(run_of, rows), *new]:
        if part[run.id] in wanted:
            planned = step_interval(run)
            row = _compared(run.id, run.step_s, planned.value, planned.low, planned.high)
            yield row | {"part": part[run.id]}


def paid(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned GPU hours of pre-training, with the layout that the plan chooses."""
    for row in rows:
        asked = {key: row[key] for key in _OF_JOB if key in row}
        plan = plan_training(ask(row["model"], row["system"], **asked))
        hours = plan.figures["hours"].times(row["gpus"])
        yield _compared(row["id"], row["gpu_hours"], hours.value, *hours.interval)


def served(sources: list[dict[str, Any]], wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the published and planned output tokens per second at most load."""
    named = {_name(i, t): (source, t) for i, source in enumerate(sources) for t in source["tables"]}
    part = parts([name for name, (source, _) in named.items() if not source.get("seen")])
    for name, (source, table) in named.items():
        if part.get(name, SEEN) in wanted:
            for row in _of_table(name, source, table):
                yield row | {"part": part.get(name, SEEN)}


def _name(source: int, table: Mapping[str, Any]) -> str:
    return f"{source + 1} {table.get('id', table['model'])} {table['system']} tp{table['tp']}"


def _of_table(name: str, source: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kv = table.get("kv", "fp8" if table["weights"] in ("fp8", "fp4") else "bf16")
    of = Deployment(
        _model(table["model"], name), hardware(table["system"]), engine(source["engine"]), table["tp"],
        table.get("dp", 1), table.get("ep", 1), table["weights"], kv,
    )  # fmt: skip
    figure = "output_rate_per_gpu" if source.get("per_gpu") else "output_rate"
    for (lengths, requests), rate in zip(source["requests"].items(), table["rates"], strict=False):
        if rate is not None:
            prompt, output = map(int, lengths.split("/"))
            load = Load(prompt, output, "at-once", requests=requests, turns=math.inf)
            q = estimate(Fleet(of), load)[figure]
            yield _compared(f"{name} {lengths}", rate, q.value, *q.interval)


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
    wanted = {SEEN, OPEN, *([HELD_OUT] if "--held-out" in sys.argv else [])}
    kinds = {
        "training": list(trained(content["training"], wanted)),
        "hours": [row | {"part": SEEN} for row in paid(content["hours"])],
        "serving": list(served(content["serving"], wanted)),
    }
    kept = {}
    for kind, rows in kinds.items():
        groups = {part: [row for row in rows if row["part"] == part] for part in (SEEN, OPEN, HELD_OUT)}
        kept[kind] = {part: summary(mine) for part, mine in groups.items() if mine}
        for part, mine in groups.items():
            _print(f"{kind}, {part}", mine)
        kept[kind]["rows"] = rows
    if "--write" in sys.argv:
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def _print(title: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        print(title, summary(rows))
    for row in rows:
        figures = f"{row['published']:>12,.4g}{row['planned']:>12,.4g}{row['error']:>9.1%}"
        print(f"  {row['id']:<44}{figures}", "" if row["held"] else " outside its interval")


if __name__ == "__main__":
    main()
