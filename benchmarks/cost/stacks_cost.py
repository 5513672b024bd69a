"""Cost of sampling stacks: steps while they are sampled over those just before and after.

    python benchmarks/cost/stacks_cost.py [--stretches 200]

One process runs steps, this one samples it as Fathom's recorder does. Sampling is on in every other stretch
of a tenth of a second, so that what else the machine does meets both. Each sampled stretch is a ratio of
mean steps to its two neighbours; the median of these, with a bootstrapped 95 % interval, is the cost. The
program pays nothing else: the switch is a line into a named pipe. Both rates are measured: the timeline's
and that of clean steps. Writes `results/stacks_cost.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fathom.probe.frames import Beacon
from fathom.recorder.stacks import StackSampler

STRETCH_S = 0.1
RESULTS = Path(__file__).parent.parent / "results"
PROGRAMS = ("launching", "training", "python")
PHASES = ("timeline", "clean")  # sampled every millisecond, and every 25 ms


def launching() -> Callable[[], object]:
    """Many ops on few numbers in one thread: what a launch-bound step is for the host."""
    import torch

    torch.set_num_threads(1)
    values = [torch.zeros(8) for _ in range(50)]
    return lambda: torch._foreach_add(values, 1) and [value + 1 for value in values]


def training() -> Callable[[], object]:
    """A small network: forward, backward, optimizer."""
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.ones(16, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    return step


def python() -> Callable[[], object]:
    """Python alone."""
    return lambda: sum(i * i for i in range(2000))


class Alone:
    """The parts of a recording that a beacon needs."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    def note(self, what: str, text: str) -> None:
        raise SystemExit(f"{what}: {text}")


def child(program: str, phase: str, raw: str, stretches: int) -> None:
    """Run stretches, every other one sampled, and print each one's mean step in seconds."""
    step, beacon = globals()[program](), Beacon(Alone(raw))
    means = []
    for number in range(2 * stretches + 1):
        beacon.follow(phase if number % 2 else "transition")
        step()
        means.append(stretch(step))
    beacon.follow("transition")
    print(json.dumps(means))


def stretch(step: Callable[[], object]) -> float:
    until, times = time.perf_counter() + STRETCH_S, []
    while (start := time.perf_counter()) < until:
        step()
        times.append(time.perf_counter() - start)
    return statistics.fmean(times)


def measured(program: str, phase: str, stretches: int) -> dict[str, Any]:
    """The ratio with its interval, and how fast samples came."""
    raw = Path(tempfile.mkdtemp())
    with StackSampler(raw) as sampler:
        words = ["--child", program, phase, str(raw), "--stretches", str(stretches)]
        command = [sys.executable, __file__, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        time.sleep(0.3)
    assert sampler.fault is None, sampler.fault
    means = json.loads(done.stdout.splitlines()[-1])
    beside = zip(means[::2], means[1::2], means[2::2], strict=False)
    ratios = [2 * on / (before + after) for before, on, after in beside]
    lines = [
        json.loads(line) for file in raw.glob("stacks-*.jsonl") for line in file.read_text().splitlines()
    ]
    sampled = [line for line in lines if line["t"] == "stretch"]
    rate = (
        sum(item["samples"] for item in sampled)
        / sum(item["end_ns"] - item["start_ns"] for item in sampled)
        * 1e9
    )
    low, high = interval(ratios)
    return {
        "ratio": statistics.median(ratios),
        "low": low,
        "high": high,
        "stretches": len(ratios),
        "samples_per_s": rate,
        "dropped": sum(item["dropped"] for item in sampled),
        "step_ms": 1e3 * statistics.median(means),
    }


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 %, bootstrapped."""
    generator = random.Random(0)
    ordered = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return ordered[50], ordered[-50]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stretches", type=int, default=200)
    parser.add_argument("--child", nargs=3, metavar=("PROGRAM", "PHASE", "RAW"))
    options = parser.parse_args()
    if options.child:
        child(*options.child, options.stretches)
        return
    result: dict[str, Any] = {"processors": os.cpu_count(), "load": os.getloadavg()[0]}
    for program in PROGRAMS:
        result[program] = {phase: measured(program, phase, options.stretches) for phase in PHASES}
        print(program, result[program])
    (RESULTS / "stacks_cost.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
