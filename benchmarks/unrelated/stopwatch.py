"""The command line of all programs, and a clock on their steps."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def arguments(about: str | None, faults: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--fault", choices=("none", *faults), default="none")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="sizes for a CPU")
    parser.add_argument("--times", type=Path, help="write step times to this file, as JSON")
    return parser.parse_args()


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


class Stopwatch:
    """Times each turn of a loop on the host."""

    def __init__(self) -> None:
        self.ticks = [time.perf_counter()]

    def laps(self, things: Iterable[Any]) -> Iterator[Any]:
        self.ticks = [time.perf_counter()]
        for thing in things:
            yield thing
            self.ticks.append(time.perf_counter())

    def save(self, options: argparse.Namespace, loss: Tensor) -> None:
        """Print, and write to `--times`, the last loss and the step times in milliseconds."""
        last = loss.item()  # waits for the device
        total = time.perf_counter() - self.ticks[0]
        laps = [after - before for before, after in pairwise(self.ticks)]
        record = {"fault": options.fault, "steps": len(laps), "loss": last}
        record |= {"median_ms": 1e3 * statistics.median(laps), "mean_ms": 1e3 * total / len(laps)}
        print(json.dumps(record), flush=True)
        if options.times:
            options.times.write_text(json.dumps(record | {"steps_s": laps}))
