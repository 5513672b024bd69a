"""Cost of a recording in its clean phase per step of some 15 µs, without a GPU.

`python -m benchmarks.cost.tiny_steps [PAIRS]` runs stretches of tiny steps in one process, with and without a
recording in turns, and compares their processor times: a program that calls `fathom.step()`, and, where torch
is installed, a loop over a plain list with steps of an optimizer.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import fathom
from fathom.probe import marks

STEPS, WARM = 20_000, 3_000
Step = Callable[[], object]


def plain() -> Step:
    """Return a step of Python's sum, marked by `fathom.step()`."""

    def step() -> None:
        sum(range(600))
        fathom.step()

    return step


def optimizer() -> Step:
    """Return a step of torch's SGD on one small parameter."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    return torch.optim.SGD([parameter], lr=1e-3).step


def us_per_step(step: Step, depth: str | None) -> float:
    """Return the processor time of a step in us, recorded at `depth` or not at all."""
    with tempfile.TemporaryDirectory() as raw:
        if depth:
            marks.start(raw, {"depth": depth})
        for _ in range(WARM):
            step()
        began = time.process_time()
        for _ in range(STEPS):
            step()
        took = time.process_time() - began
        if depth:
            marks.stop()
    return 1e6 * took / STEPS


def cost(step: Step, depth: str, pairs: int) -> dict[str, Any]:
    """Return a bare step, and what recording adds to it: the median of pairs, and its quartiles."""
    bare, added = [], []
    for _ in range(pairs):
        first, recorded, last = (us_per_step(step, here) for here in (None, depth, None))
        bare.append((first + last) / 2)
        added.append(recorded - bare[-1])
    low, middle, high = statistics.quantiles(added, n=4)
    figures = {"bare_us": statistics.median(bare), "added_us": middle, "quartiles_us": [low, high]}
    return {name: round(value, 2) if isinstance(value, float) else [round(v, 2) for v in value]
            for name, value in figures.items()}  # fmt: skip


def main(pairs: int = 15) -> None:
    """Print the cost at surface depth and, for a program without torch, at the default depth."""
    result = {f"fathom.step, {depth}": cost(plain(), depth, pairs) for depth in ("surface", "auto")}
    if find_spec("torch"):
        result["optimizer, surface"] = cost(optimizer(), "surface", pairs)
    load = os.getloadavg()[0]
    print(json.dumps({"load": round(load, 1), "processors": os.cpu_count(), **result}, indent=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
