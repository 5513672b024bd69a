"""The command line that all programs share, and a clock on their steps."""

from __future__ import annotations

import argparse
import atexit
import json
import time
from itertools import pairwise
from pathlib import Path


def arguments(about: str | None, steps: int, workers: int = 0) -> argparse.Namespace:
    """`--fault` runs the planted cause; `--workers` sets the loader's processes, where there is a loader."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--fault", action="store_true", help="run the slow form")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--workers", type=int, default=workers)
    parser.add_argument(
        "--whole-batches", action="store_true", help="take whole batches from tensors in memory"
    )
    parser.add_argument("--times", type=Path, help="write the step times in seconds to this file, as JSON")
    return parser.parse_args()


class Clock:
    """The host's clock at the end of each step; written at exit."""

    def __init__(self, path: Path | None) -> None:
        self.ticks: list[float] = []
        if path:
            atexit.register(self.save, path)

    def tick(self) -> None:
        self.ticks.append(time.perf_counter())

    def save(self, path: Path) -> None:
        path.write_text(json.dumps([after - before for before, after in pairwise(self.ticks)]))
