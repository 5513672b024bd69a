"""Plans beside other planners: the runs that Calculon is validated on, and the errors that others publish.

python -m benchmarks.plan.others

Calculon is on GitHub only, as the package of that name on PyPI is another one: its figures are its paper's.
"""

from __future__ import annotations

import json
from pathlib import Path

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
# As their authors publish them.
PUBLISHED = {
    "Calculon": "step time, the eight runs above: mean 3.6 % (SC 2023)",
    "SimuMax": "43 B200 runs: step −13.5 to +0.1 %, memory −1.4 to −0.1 % (v1.2, measured shapes)",
    "AIConfigurator": "serving only: its predictions are among the notes of serving.csv",
}


def predicted(name: str) -> tuple[float, float]:
    """Return the planned seconds with full, and with selective recomputation."""
    layers, hidden, heads, pp, vpp, micro, batch, _, _ = MEASURED[name]
    block = Block(layers, Attention(heads, heads, hidden // heads), Dense(4 * hidden, gated=False))
    shape, system = Model(name, hidden, 51200, (block,), tied=True), hardware("a100-80gb")
    job, rates = (
        Job(2048, batch, 8 * pp),
        rates_of(hardware("a100-80gb"), stack("megatron-2021"), constants()),
    )
    ways = ((FULL, False), (SELECTIVE, True))
    layouts = [Layouts(1, 8, pp, vpp, micro=micro, sharding=DDP, recompute=r, sp=sp) for r, sp in ways]
    full, selective = (float(Step(shape, system, job, at, rates).seconds()[0]) for at in layouts)
    return full, selective


def bench() -> str:
    """Return the table, and keep it."""
    rows, errors = {}, []
    for name, (*_, full, selective) in MEASURED.items():
        planned = predicted(name)
        rows[name] = {"measured_s": [full, selective], "planned_s": [round(value, 3) for value in planned]}
        errors += [abs(planned[0] / full - 1), abs(planned[1] / selective - 1)]
    mean = sum(errors) / len(errors)
    RESULT.write_text(json.dumps({"rows": rows, "mean": mean, "published": PUBLISHED}, indent=1) + "\n")
    lines = [
        f"{name}: {row['measured_s']} s measured, {row['planned_s']} s planned" for name, row in rows.items()
    ]
    lines += [f"mean error {mean:.1%}, largest {max(errors):.1%}"]
    return "\n".join(lines + [f"{name}: {text}" for name, text in PUBLISHED.items()])


if __name__ == "__main__":
    print(bench())
