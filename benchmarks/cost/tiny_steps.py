"""Cost of a recording in its clean phase per step of some 15 µs, without a GPU.

`nice -n -10 python -m benchmarks.cost.tiny_steps [PAIRS]` records a program that calls `fathom.step()`, and,
where torch is installed, one that steps an optimizer, until only clean steps remain to be recorded. Then it
switches the recording off and on in turns of some 0.2 s, and compares the processor times of a step: with
steps that are counted, as in any long run, and with steps that are recorded one by one, as before that.
Switched off, `fathom.step()` finds no recording, and the optimizer has no hook, as without Fathom.

Steps of an optimizer scatter by more than the hook takes, so the hook is also called by itself, in turns with
one that does nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

import fathom
from fathom.probe import current, marks
from fathom.probe.plan import COUNT_AFTER
from fathom.timing import interval, median

STEPS = 12_000  # per turn
PLANS = {
    "surface": {"depth": "surface"},
    "default depth": {"depth": "auto"},
    "default depth, each step recorded": {"depth": "auto", "count_after": 10**9},
}
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


def _hooks() -> dict[int, Callable[..., object]]:
    return getattr(sys.modules.get("torch.optim.optimizer"), "_global_optimizer_post_hooks", {})


@contextmanager
def off() -> Iterator[None]:
    """Let this process run as without a recording."""
    session, current.session = current.session, None
    hooks = _hooks()
    ours = dict(hooks)
    hooks.clear()
    yield
    hooks.update(ours)
    current.session = session


def warm(step: Step) -> None:
    """Step until every burst has been recorded and, by default, further steps are only counted."""
    while current.session is None or not current.session.deferred.until:
        step()
    for _ in range(COUNT_AFTER + STEPS):
        step()


def cost(step: Step, plan: dict[str, Any], pairs: int) -> dict[str, Any]:
    """Return a bare step, and what recording adds to it: the median of pairs, and its 95 % interval."""
    bare, added = [], []
    with tempfile.TemporaryDirectory() as raw:
        marks.start(raw, plan)
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
    low, high = interval(added) or (float("nan"),) * 2
    figures = {"bare_us": median(bare), "added_us": median(added), "low_us": low, "high_us": high}
    return {name: round(value, 2) for name, value in figures.items()}


def hook_alone(plan: dict[str, Any], pairs: int) -> dict[str, float]:
    """Return what a call of the optimizer's hook takes beyond one that does nothing, as `cost` does."""
    step, added = optimizer(), []
    with tempfile.TemporaryDirectory() as raw:
        marks.start(raw, plan)
        warm(step)
        (ours,), about = _hooks().values(), (step.__self__, (), {})  # type: ignore[attr-defined]
        for _ in range(pairs):
            before, taken, after = (us_per_step(partial(hook, *about)) for hook in (_nothing, ours, _nothing))
            added.append(taken - (before + after) / 2)
            for _ in range(100):
                step()
        marks.stop()
    low, high = interval(added) or (float("nan"),) * 2
    return {"added_us": round(median(added), 2), "low_us": round(low, 2), "high_us": round(high, 2)}


def _nothing(optimizer: object, args: object, kwargs: object) -> None:
    """Do nothing, as the shortest hook."""


def main(pairs: int = 100) -> None:
    """Print the costs of each plan."""
    steps = {"fathom.step": plain, **({"optimizer": optimizer} if find_spec("torch") else {})}
    result = {
        f"{name}, {title}": cost(make(), plan, pairs)
        for name, make in steps.items()
        for title, plan in PLANS.items()
    }
    if find_spec("torch"):
        result |= {f"hook of an optimizer, {title}": hook_alone(plan, pairs) for title, plan in PLANS.items()}
    load = os.getloadavg()[0]
    print(json.dumps({"load": round(load, 1), "processors": os.cpu_count(), **result}, indent=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
