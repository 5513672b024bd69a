"""Compile a model that prints, or looks at a value, in its forward pass.

The user believes that `torch.compile` compiled the model. Each look at a value ends the graph: what could be
one replay of a CUDA graph becomes many, with Python and guards between them.
"""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from faults.common import Fault, start

FAULT = Fault(
    kind="host-graph-breaks",
    expected=["host-graph-breaks"],
    forbidden=["host-recompilation", "host-python", "host-compiling-in-steps"],
    allowed=["host-sync-item", "host-launch-bound"],
    share=[0.15, 0.3, 0.5],
    why="a break costs a wait, guards and a launch, about 80 us: 3, 6, 12 of them in a step of 1 ms",
    needs={"gpu": True, "compile": True, "steps": 1600},
    agree=1e-2,
)


class Net(nn.Module):
    def __init__(self, width, depth, breaks):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.breaks = breaks

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = x + F.relu(layer(x))
            if place < self.breaks and x.abs().max().item() > 1e30:
                print("too large")
        return x


@torch.no_grad()
def main(options):
    width, batch = options.size(1024, 16), options.size(1024, 4)
    model = Net(width, options.size(24, 4), options.by(3, 6, 12) if options.faulty else 0)
    model.to(options.device, options.dtype)
    how = {"mode": "reduce-overhead"} if options.cuda else {"backend": "eager"}
    compiled = torch.compile(model, **how)
    x = options.normal(batch, width) / 100
    for _ in options.laps():
        y = compiled(x)
    return y.float().square().mean()


if __name__ == "__main__":
    start(main)
