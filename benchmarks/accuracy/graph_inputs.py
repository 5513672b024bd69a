"""Host time of a graph's inputs when compiled, in that of an op in eager mode, on one core of a processor.

    python -m benchmarks.accuracy.graph_inputs

Models differ in nothing but the number of their layers, each of which adds a parameter of eight
elements. Compiled, all additions are one kernel, so a step becomes longer by what a parameter costs:
guards, and passing it to both passes. Gradients are not added up, which both forms do alike. An op in
eager mode is the mean of those of 40 thin layers. All take turns, because a host's speed changes.
`results/graph_inputs.json` has the medians, and `signals/eager.py` uses their ratio (INPUT).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.cost.launcher import PROGRAMS, ROOT

RESULT = ROOT / "benchmarks" / "results" / "graph_inputs.json"
FEW, MANY = 60, 240  # parameters
LAYERS, OPS = 40, 404  # of `launch_bound`: its model's ops that launch kernels on a GPU, in both passes
TURNS, STEPS = 25, 20


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


def stretch_of(model: nn.Module, compiled: bool, *shape: int) -> Callable[[], float]:
    """Return a function that runs STEPS forward and backward passes, and returns their mean microseconds."""
    forward = torch.compile(model) if compiled else model
    parameters, x = list(model.parameters()), torch.randn(*shape)

    def stretch() -> float:
        begun = time.perf_counter()
        for _ in range(STEPS):
            torch.autograd.grad(forward(x).sum(), parameters)
        return 1e6 * (time.perf_counter() - begun) / STEPS

    stretch()
    return stretch


def main() -> None:
    sys.path.insert(0, str(PROGRAMS))
    from launch_bound import Layer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    few, many = (stretch_of(nn.Sequential(*(Shift() for _ in range(n))), True, 8) for n in (FEW, MANY))
    thin = stretch_of(nn.Sequential(*(Layer(8) for _ in range(LAYERS))), False, 4, 8)
    turns = [((many() - few()) / (MANY - FEW), thin() / OPS) for _ in range(TURNS)]
    inputs, ops = zip(*turns, strict=True)
    shares = sorted(input_us / op_us for input_us, op_us in turns)
    result = {
        "input_us": statistics.median(inputs),
        "op_us": statistics.median(ops),
        "share": statistics.median(shares),
        "quartiles": [shares[TURNS // 4], shares[-1 - TURNS // 4]],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
