"""Plans beside other planners: the runs that Calculon is validated on, AIConfigurator's predictions, and the
errors that SimuMax publishes.

python -m benchmarks.plan.validate_serving --write && python -m benchmarks.plan.others

Calculon is on GitHub only, as the package of that name on PyPI is another one: its figures are its paper's.
AIConfigurator's predictions are in the notes of the published serving rows. The accuracy page shows the
table.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.plan.serving_rows import DATA
from benchmarks.plan.validate_serving import RESULT as SERVED
from fathom.planner.hardware import hardware
from fathom.planner.training import Job, Layouts, Step, constants, rates_of, stack
from fathom.planner.training.layout import DDP, FULL, SELECTIVE
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
# As their authors publish them: the mean error of the same eight runs (SC 2023), and ranges of errors.
CALCULON = 0.036
SIMUMAX = "-13.5 to +0.1 % of the step, -1.4 to -0.1 % of memory (v1.2, with measured shapes)"
SIMUMAX_RUNS = "43 runs on B200s, not among the published rows here"
_NOTE = re.compile(r"AIConfigurator .*? predicts TTFT (?P<ttft>[\d.]+) TPOT (?P<tpot>[\d.]+)")


def predicted(name: str) -> tuple[float, float]:
    """Return the planned seconds with full, and with selective recomputation."""
    layers, hidden, heads, pp, vpp, micro, batch, _, _ = MEASURED[name]
    block = Block(layers, Attention(heads, heads, hidden // heads), Dense(4 * hidden, gated=False))
    shape, system = Model(name, hidden, 51200, (block,), tied=True), hardware("a100-80gb")
    job, rates = (
        Job(2048, batch, 8 * pp),
        rates_of(hardware("a100-80gb"), stack("megatron-2022"), constants()),
    )
    ways = ((FULL, False), (SELECTIVE, True))
    layouts = [Layouts(1, 8, pp, vpp, micro=micro, sharding=DDP, recompute=r, sp=sp) for r, sp in ways]
    full, selective = (float(Step(shape, system, job, at, rates).seconds()[0]) for at in layouts)
    return full, selective


def bench() -> str:
    """Return the tables, and keep them."""
    rows, errors = {}, []
    for name, (*_, full, selective) in MEASURED.items():
        planned = predicted(name)
        rows[name] = {"measured_s": [full, selective], "planned_s": [round(value, 3) for value in planned]}
        errors += [abs(planned[0] / full - 1), abs(planned[1] / selective - 1)]
    table = [
        _row(
            "Calculon",
            "step time",
            f"{len(errors)} runs on A100s",
            f"{100 * CALCULON:.1f} % mean",
            _mean(errors),
        ),
        *(_beside(figure) for figure in ("tpot", "ttft")),
        _row("SimuMax", "step time, memory", SIMUMAX_RUNS, SIMUMAX, "not compared"),
    ]
    mean = round(sum(errors) / len(errors), 6)
    RESULT.write_text(json.dumps({"rows": rows, "mean": mean, "table": table}, indent=1) + "\n")
    lines = [
        f"{name}: {row['measured_s']} s measured, {row['planned_s']} planned" for name, row in rows.items()
    ]
    return "\n".join([*lines, *("  ".join(row.values()) for row in table)])


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
    print(bench())
