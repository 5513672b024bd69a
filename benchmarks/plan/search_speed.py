"""The time and memory of a search over a million layouts, and of one plan.

python -m benchmarks.plan.search_speed
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from fathom.planner.hardware import hardware
from fathom.planner.training import Job, ask, constants, plan_training, rates_of, stack
from fathom.planner.training.search import layouts, rank
from fathom.planner.workload import model


def bench() -> str:
    """Return seconds of both, of the clock and of the processor, and the peak memory."""
    question = ask("llama3-70b", "h100", gpus=64, batch=256)
    plan, alone = _timed(lambda: plan_training(question))
    (count, best), searched = _timed(_million)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"one plan, {plan.searched:,} layouts: {alone}; {count:,} layouts: {searched}, "
        f"the best {best:.4g} s a step; {peak:.0f} MB at the peak"
    )


def _million() -> tuple[int, float]:
    shape, system, job = model("deepseek-v3"), hardware("h100"), Job(65536, 184_320, 46_080)
    at = layouts(shape, job)
    seconds, _ = rank(shape, system, job, rates_of(system, stack("megatron"), constants()), at, 76e9)
    return len(at), float(seconds.min())


def _timed(work: Callable[[], Any]) -> tuple[Any, str]:
    begin, used = time.perf_counter(), time.process_time()
    result = work()
    return result, f"{time.perf_counter() - begin:.2f} s ({time.process_time() - used:.2f} s of processor)"


if __name__ == "__main__":
    print(bench())
