"""Cost of CUPTI's records and samples per launch on the host, by the number of launches since they began.

    python benchmarks/cost/launch_cost.py --out out/launches   # on the target, alone; 40 s

Whole steps scatter by more than that (`burst_cost.py`). Here rounds of small torch ops in two threads, one
after the other, run with and without records of the device's work, or samples of counters, switched by the
same classes as in a recording. Of each launch the median with is compared with the median without:
`first_us` is what the first dozen of a thread take more, `launch_us` what each of the others does. `made`
is with a launch of Fathom's own right after records are switched on, as in a recording. An H200's line is
kept as results/launch_cost.json.

Needs qualified counters (`fathom machine measure --only counters`) and no table library.
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from burst_cost import Burst, counters_here
from cost_commands import append, device_name

REPEATED, ROUNDS, SAMPLED, WARM_UP = 40, 60, 14, 30
BUFFER_BYTES = 256 << 20
Round = tuple[list[int], list[int]]  # ns of each launch, by thread


class Launches:
    """A dozen kinds of small kernels, launched in turns by this thread and then by another."""

    def __init__(self, torch: Any) -> None:
        functional = torch.nn.functional
        x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 32, device="cuda")
        self.ops: list[Callable[[], Any]] = [
            *(lambda: x.add(1), lambda: x.mul(2), lambda: torch.sin(x), lambda: torch.exp(x)),
            *(lambda: x.sum(), lambda: x @ w, lambda: torch.softmax(x, 1), lambda: functional.gelu(x)),
            *(lambda: functional.layer_norm(x, (32,)), lambda: x.t().contiguous()),
            *(lambda: torch.cat([x, x]), lambda: x > 0),
        ]
        self._torch = torch
        self._todo: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        threading.Thread(target=self._other, daemon=True).start()

    def __call__(self) -> Round:
        mine = self._timed()
        self._todo.put(None)
        others = self._done.get()
        self._torch.cuda.synchronize()
        return mine, others

    def _other(self) -> None:
        while True:
            self._todo.get()
            self._done.put(self._timed())

    def _timed(self) -> list[int]:
        clock = time.perf_counter_ns
        marks = [clock()]
        with self._torch.no_grad():
            for _ in range(REPEATED):
                for op in self.ops:
                    op()
                    marks.append(clock())
        return [end - begin for begin, end in pairwise(marks)]


def reported(on: Sequence[Round], off: Sequence[Round], kinds: int) -> list[dict[str, float]]:
    """By thread, in microseconds: a launch without, and what the first `kinds` and each other take more."""
    result = []
    for thread in (0, 1):
        sides = [
            [statistics.median(item) for item in zip(*(r[thread] for r in side), strict=True)]
            for side in (on, off)
        ]
        more = [(a - b) / 1e3 for a, b in zip(*sides, strict=True)]
        rest = more[kinds:]
        without = statistics.fmean(sides[1]) / 1e3
        result.append(
            {"without_us": without, "first_us": sum(more[:kinds]), "launch_us": statistics.fmean(rest)}
        )
    return result


def compared(burst: Burst, launches: Launches, rounds: int, warm_up: int) -> list[dict[str, float]]:
    """Rounds in a burst, each right after one without."""
    on, off = [], []
    for _ in range(rounds):
        burst.arm()
        for _ in range(warm_up):
            launches()
        off.append(launches())
        burst(True)
        on.append(launches())
        burst(False)
    return reported(on, off, len(launches.ops))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/launches"))
    options = parser.parse_args()
    os.environ["TEARDOWN_CUPTI"] = "1"
    import torch

    counters = counters_here()
    launches = Launches(torch)
    for _ in range(WARM_UP):
        launches()
    options.out.mkdir(parents=True, exist_ok=True)
    given = torch, counters, options.out / "trace.json", BUFFER_BYTES
    records, made, samples = (Burst(*given, [part]) for part in ("activities", "activities", "sampling"))
    records.first = lambda: False
    row = {
        "device": device_name(),
        "records": compared(records, launches, ROUNDS, 1),
        "made": compared(made, launches, ROUNDS, 1),
        "sampling": compared(samples, launches, SAMPLED, WARM_UP),
    }
    append(options.out / "launches.jsonl", row)


if __name__ == "__main__":
    main()
