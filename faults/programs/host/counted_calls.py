"""Compile a model that counts its calls in a Python attribute, to warm up its output.

The user believes that the model is compiled. Each call has a new count, so each is compiled anew, and after
four versions (eight by default) Dynamo runs the model uncompiled for good; a tensor as the count ends it.
"""

import torch
import torch._dynamo
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import AdamW

from faults.common import Fault, start

FAULT = Fault(
    kind="host-recompilation",
    expected=["host-recompilation"],
    forbidden=["host-graph-breaks", "host-compiling-in-steps", "framework-not-compiled"],
    allowed=["host-launch-bound", "kernels-unfused-elementwise"],
    share=[0.35, 0.55, 0.7],
    why="4, 8 and 16 times 1 GB of passes that two generated kernels avoid, beside 0.5 TFLOP of products",
    needs={"gpu": True, "compile": True},
    agree=1e-2,
)
VERSIONS = 4  # a version takes seconds to compile


class Scaled(nn.Module):
    def __init__(self, width, passes):
        super().__init__()
        self.layer, self.passes, self.calls = nn.Linear(width, width), passes, 0

    def forward(self, x, warmth):
        if warmth is None:
            self.calls += 1
            warmth = min(1.0, self.calls / 1000)
        x = self.layer(x)
        for _ in range(self.passes):
            x = x + 0.01 * torch.tanh(x)
        return x * warmth


def main(options):
    torch._dynamo.config.recompile_limit = VERSIONS
    width, passes = options.size(4096, 32), options.by(4, 8, 16)
    model = Scaled(width, passes).to(options.device, options.dtype)
    optimizer = AdamW(model.parameters(), lr=1e-5)
    compiled = torch.compile(model, backend="inductor" if options.cuda else "eager")
    goal = options.normal(options.size(8192, 8), width)
    for number in options.laps():
        warmth = torch.tensor(min(1.0, (number + 1) / 1000), device=options.device, dtype=options.dtype)
        y = compiled(options.normal(*goal.shape), None if options.faulty else warmth)
        loss = F.mse_loss(y, goal)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss


if __name__ == "__main__":
    start(main)
