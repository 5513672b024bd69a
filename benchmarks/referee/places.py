"""Effect of the place of its tensors in a GPU's memory on a kernel's time, within one process.

    python -m benchmarks.referee.places OUT.json  # on the target, 10 s; no library but torch and numpy

Each of the ten kernels of `equal_sides` is timed with L2 overwritten: sixteen times where it is, and sixteen
times after the referee has moved it (`fathom.referee.child.cuda`). What scatters between places and not
within one is what six pairs of processes would have to average. `results/places.json` holds a run.
"""

from __future__ import annotations

import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.referee.equal_kernels import KERNELS, Kernel
from fathom.referee.child.cuda import Cuda
from fathom.referee.child.values import leaves

TIMES, LOOKS = 16, 3  # places or stays, and samples at each, of which the quickest counts


def microseconds(bench: Cuda, kernel: Kernel, arguments: tuple[Any, ...]) -> float:
    """The quickest of a few cold samples, after one that allocates."""
    sample = partial(bench.run, kernel.plain, [(arguments, {})], cold=True)
    sample()
    return min(sample()[0]["ns"] for _ in range(LOOKS)) / 1e3


def scatter(kernel: Kernel, moved: bool) -> dict[str, float]:
    """Mean in µs, and standard deviation as a share of it."""
    bench, result = Cuda(), []
    arguments = kernel.inputs(0)
    largest = max(leaf.nbytes for _, leaf in leaves(arguments))
    for seed in range(TIMES):
        if moved:
            del arguments
            bench.move(largest)
            arguments = kernel.inputs(seed)
        result.append(microseconds(bench, kernel, arguments))
    mean = statistics.fmean(result)
    return {"us": round(mean, 1), "scatter": round(statistics.stdev(result) / mean, 5)}


def main() -> None:
    result = {}
    for name, kernel in KERNELS.items():
        result[name] = {way: scatter(kernel, way == "moved") for way in ("stayed", "moved")}
        print(name, result[name], flush=True)
    Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
