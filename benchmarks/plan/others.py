"""Plans beside other planners: Calculon on the same runs, AIConfigurator's predictions, and the errors that
SimuMax publishes.

python -m benchmarks.plan.validate_serving --write && python -m benchmarks.plan.others [--calculon FOLDER]

Calculon is on GitHub only (calculon-ai/calculon), as the package of that name on PyPI is another one. With a
checkout of it, the script runs it on all runs that it can express, with its own system files; without one,
the step times that it gave before are compared. AIConfigurator's predictions are in the notes of the
published serving rows. The accuracy page shows the table.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.calculon import REFUSED, NotExpressibleError, Planner
from benchmarks.plan.calibrate import predict_s
from benchmarks.plan.published import Run, read
from benchmarks.plan.serving_rows import DATA
from benchmarks.plan.validate_serving import RESULT as SERVED
from fathom.planner.hardware import hardware
from fathom.planner.training import Job, Layouts, constants, stack
from fathom.planner.training.layout import DDP, FULL, SELECTIVE
from fathom.planner.training.rates import calibration
from fathom.planner.workload import Attention, Block, Dense, Model

RESULT = Path(__file__).parents[1] / "results" / "plan_others.json"
# arXiv:2205.05198, tables 3 and 5: layers, hidden, heads, pp, chunks, micro-batch, batch; seconds of a step
# with full recomputation, and with sequence parallelism and selective recomputation. A100s of 80 GB, tp 8.
MEASURED = {
    "megatron-22B": (48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10),
    "gpt3-175B": (96, 12288, 96, 8, 3, 1, 64, 18.13, 13.75),
    "turing-530B": (105, 20480, 128, 35, 3, 1, 280, 49.05, 37.83),
    "megatron-1T": (128, 25600, 160, 64, 1, 1, 512, 94.42, 71.49),
}
CALCULON = 0.036  # its mean error on these eight runs, as its authors publish it (SC 2023)
# As its authors publish them.
SIMUMAX = "-13.5 to +0.1 % of the step, -1.4 to -0.1 % of memory (v1.2, with measured shapes)"
SIMUMAX_RUNS = "43 runs on B200s, not among the published rows here"
_NOTE = re.compile(r"AIConfigurator .*? predicts TTFT (?P<ttft>[\d.]+) TPOT (?P<tpot>[\d.]+)")


def published(name: str) -> list[Run]:
    """Return the runs with full, and with selective recomputation."""
    layers, hidden, heads, pp, vpp, micro, batch, full, selective = MEASURED[name]
    block = Block(layers, Attention(heads, heads, hidden // heads), Dense(4 * hidden, gated=False))
    shape, system = Model(name, hidden, 51200, (block,), tied=True), hardware("a100-80gb")
    job, software = Job(2048, batch, 8 * pp), stack("megatron-2022")
    return [
        Run(
            f"{name}-{kind}",
            "arXiv:2205.05198, table 5",
            shape,
            system,
            software,
            job,
            Layouts(1, 8, pp, vpp, micro=micro, sharding=DDP, recompute=recompute, sp=kind == "selective"),
            seconds,
            None,
            overlaps_experts=False,
        )
        for kind, recompute, seconds in (("full", FULL, full), ("selective", SELECTIVE, selective))
    ]


def predicted(name: str) -> tuple[float, float]:
    """Return the planned seconds with full, and with selective recomputation."""
    full, selective = (predict_s(run, constants()) for run in published(name))
    return full, selective


def bench(calculon: Path | None = None) -> str:
    """Return the tables, and keep them."""
    its_own = [run for name in MEASURED for run in published(name)]
    used = set(calibration().rows)
    held_out = [run for run in read()[0] if run.id not in used]
    seconds, left_out = _by_calculon(calculon, its_own + held_out) if calculon else _kept()
    both = [run for run in its_own + held_out if run.id in seconds]
    rows = {
        run.id: {
            "measured_s": round(run.step_s, 4),
            "planned_s": round(predict_s(run, constants()), 4),
            "calculon_s": seconds[run.id],
        }
        for run in both
    }
    mine, others = ([run for run in runs if run.id in rows] for runs in (its_own, held_out))
    refused = [run for run in held_out if left_out.get(run.id, "").startswith(REFUSED)]
    table = [
        _beside_calculon(f"{len(mine)} runs on A100s, which it was validated on", rows, mine),
        _beside_calculon(
            f"{len(others)} other runs on A100s, which Fathom was not calibrated on", rows, others
        ),
        _row(
            "Calculon",
            "step time",
            f"{len(refused)} runs on H100s with fused attention, which it does not model",
            "refused: too little memory",
            _mean([abs(predict_s(run, constants()) / run.step_s - 1) for run in refused]),
        ),
        *(_beside(figure) for figure in ("tpot", "ttft")),
        _row("SimuMax", "step time, memory", SIMUMAX_RUNS, SIMUMAX, "not compared"),
    ]
    kept = {"rows": rows, "table": table, "calculon_left_out": left_out}
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    lines = [f"{name}: {row}" for name, row in rows.items()]
    return "\n".join([*lines, *("  ".join(row.values()) for row in table)])


def _by_calculon(folder: Path, runs: list[Run]) -> tuple[dict[str, float], dict[str, str]]:
    """Return Calculon's seconds of each run, and the reason for each run that it has no time of."""
    planner = Planner(folder)
    seconds, left_out = {}, {}
    for run in runs:
        try:
            seconds[run.id] = round(planner.seconds(run), 4)
        except NotExpressibleError as reason:
            left_out[run.id] = str(reason)
    return seconds, left_out


def _kept() -> tuple[dict[str, float], dict[str, str]]:
    before = json.loads(RESULT.read_text())
    return {name: row["calculon_s"] for name, row in before["rows"].items()}, before["calculon_left_out"]


def _beside_calculon(words: str, rows: dict[str, dict[str, float]], runs: list[Run]) -> dict[str, str]:
    theirs, ours = (
        _mean([abs(rows[run.id][key] / run.step_s - 1) for run in runs])
        for key in ("calculon_s", "planned_s")
    )
    return _row("Calculon", "step time", words, theirs, ours)


def _row(planner: str, figure: str, runs: str, theirs: str, ours: str) -> dict[str, str]:
    return {"planner": planner, "figure": figure, "runs": runs, "theirs": theirs, "ours": ours}


def _mean(errors: list[float]) -> str:
    return f"{100 * sum(errors) / len(errors):.1f} % mean, {100 * max(errors):.1f} % largest"


def _beside(figure: str) -> dict[str, str]:
    """Return the errors of AIConfigurator and of Fathom on the rows that both predict.

    Rows that Fathom was calibrated on are left out, and the TTFT of saturated ones, which is time in a queue.
    """
    scored: list[dict[str, Any]] = json.loads(SERVED.read_text())["rows"]
    measured = {row["id"]: row for row in scored if row["figure"] == figure}
    with DATA.open(newline="", encoding="utf-8") as file:
        notes = {row["id"]: _NOTE.search(row["notes"]) for row in csv.DictReader(file)}
    both = {name: note for name, row in measured.items() if (note := notes.get(name))}
    theirs = [float(note[figure]) / measured[name]["measured"] - 1 for name, note in both.items()]
    ours = [measured[name]["error"] for name in both]
    runs = f"{len(both)} deployments that Fathom was not calibrated on"
    return _row("AIConfigurator 0.12.0", figure.upper(), runs, _median(theirs), _median(ours))


def _median(errors: list[float]) -> str:
    absolute = np.abs(errors)
    return f"{100 * np.median(absolute):.1f} % median, {100 * absolute.max():.1f} % largest"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calculon", type=Path, help="a checkout of calculon-ai/calculon")
    print(bench(parser.parse_args().calculon))
