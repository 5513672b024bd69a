"""Cost of a recording in its clean phase per step of some 15 µs, without a GPU.

`python -m benchmarks.cost.tiny_steps [PAIRS]` records a program that calls `fathom.step()`, and, where torch
is installed, one that steps an optimizer, until only clean steps remain to be recorded. Then it switches the
recording off and on in turns of half a second, and compares the processor times of a step. Switched off,
`fathom.step()` finds no recording, and the optimizer has no hook, as in a program that is not recorded.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import fathom
from fathom.probe import current, marks

STEPS = 30_000  # per turn
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


def us_per_step(step: Step) -> float:
    """Return the processor time of a step in us."""
    began = time.process_time_ns()
    for _ in range(STEPS):
        step()
    return (time.process_time_ns() - began) / STEPS / 1000


@contextmanager
def off() -> Iterator[None]:
    """Let this process run as without a recording."""
    session, current.session = current.session, None
    hooks = getattr(sys.modules.get("torch.optim.optimizer"), "_global_optimizer_post_hooks", {})
    ours = dict(hooks)
    hooks.clear()
    yield
    hooks.update(ours)
    current.session = session


def warm(step: Step) -> None:
    """Step until every burst has been recorded, and until steps are counted where they are."""
    while current.session is None or not current.session.deferred.until:
        step()
    for _ in range(2):
        us_per_step(step)


def cost(step: Step, depth: str, pairs: int) -> dict[str, Any]:
    """Return a bare step, and what recording adds to it: the median of pairs, and its quartiles."""
    bare, added = [], []
    with tempfile.TemporaryDirectory() as raw:
        marks.start(raw, {"depth": depth, **({"count_after": 10_000} if depth == "surface" else {})})
        warm(step)
        with off():
            before = us_per_step(step)
        for _ in range(pairs):
            recorded = us_per_step(step)
            with off():
                after = us_per_step(step)
            bare.append((before + after) / 2)
            added.append(recorded - bare[-1])
            before = after
        marks.stop()
    low, middle, high = (round(value, 2) for value in statistics.quantiles(added, n=4))
    return {"bare_us": round(statistics.median(bare), 2), "added_us": middle, "quartiles_us": [low, high]}


def main(pairs: int = 15) -> None:
    """Print the costs at surface depth and at the default depth."""
    steps = {"fathom.step": plain, **({"optimizer": optimizer} if find_spec("torch") else {})}
    result = {
        f"{name}, {depth}": cost(make(), depth, pairs)
        for name, make in steps.items()
        for depth in ("surface", "auto")
    }
    load = os.getloadavg()[0]
    print(json.dumps({"load": round(load, 1), "processors": os.cpu_count(), **result}, indent=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
