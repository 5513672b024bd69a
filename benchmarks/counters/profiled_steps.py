"""Run a program with CUDA's profiler switched on for some of its optimizer's steps alone.

    ncu --profile-from-start off … \\
        python benchmarks/counters/profiled_steps.py 20 2 examples/train_gpt.py --steps 30

Profiles 2 steps from the 20th on. Under ncu a launch costs much even where it is not profiled, unless
profiling is off.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    seen = 0

    def after_step(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == first:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
        if seen == first + count:
            torch.cuda.synchronize()
            torch.cuda.cudart().cudaProfilerStop()

    register_optimizer_step_post_hook(after_step)
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
